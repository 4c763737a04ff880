"""Which specs the columnar executor covers, and why it does not cover the others."""

from typing import Final

from windowlib.columnar.record_values import ValueLayout
from windowlib.functions.window_functions import Aggregates
from windowlib.kernels.aggregates import choice
from windowlib.kernels.sessions.gaps import is_columnar
from windowlib.keyed.operator_protocol import OperatorSpec
from windowlib.triggers.flink import CountReached, EventTime, Never
from windowlib.triggers.protocol import Trigger
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import DynamicSession, Global, Session, Sliding, Stagger, Tumbling
from windowlib.windows.spec import WindowSpec

_AT_END: Final = (EventTime(), Purging(EventTime()))
_NEVER: Final = (Never(), Purging(Never()))


def why_not(spec: OperatorSpec, layout: ValueLayout) -> str | None:
    """Return why the columnar executor does not cover a spec, as one sentence; None if it covers the spec."""
    if not isinstance(spec, WindowSpec):
        return f"{type(spec).__name__} is not a window computation"
    if spec.profile.name != "strict":
        return f"the semantics are {spec.profile.name!r}, and the columnar executor has the strict semantics only"
    return _why_not_options(spec) or _why_not_windows(spec) or _why_not_function(spec, layout)


def why_not_combined(spec: OperatorSpec, layout: ValueLayout) -> str | None:
    """Return why records cannot be combined before their exchange, as one sentence; None if they can be."""
    reason = why_not(spec, layout)
    if reason is not None:
        return reason
    assert isinstance(spec, WindowSpec), "the columnar executor covers no other specs"
    if not isinstance(spec.assigner, Tumbling | Sliding):
        return f"windows of {type(spec.assigner).__name__} have no slices of time"
    if choice.reads_order(spec):
        return "an aggregate depends on the order of the records"
    return "a sum of some of the decimals may have more than 38 digits" if choice.sums_wide_decimals(spec) else None


def _why_not_options(spec: WindowSpec) -> str | None:
    if spec.evictor is not None:
        return f"the windows have an evictor ({type(spec.evictor).__name__}), which needs whole records"
    if spec.accumulation == "retracting":
        return "retracting panes need the values of the pane before"
    if spec.timestamp_combiner != "end_of_window":
        return f"the timestamp combiner is {spec.timestamp_combiner!r}, not 'end_of_window'"
    if spec.leftovers == "fire":
        return "leftovers: fire needs a pane at the cleanup of a window"
    return "every firing is a window of its own" if spec.stands_alone else None


def _why_not_windows(spec: WindowSpec) -> str | None:
    assigner, trigger = spec.assigner, spec.effective_trigger()
    match assigner:
        case Tumbling() if assigner.stagger is not Stagger.ALIGNED:
            return "the windows are staggered"
        case Tumbling() | Sliding() | Session() | DynamicSession() if not assigner.is_event_time:
            return "the windows are in processing time"
        case Tumbling() | Sliding() | Session() | DynamicSession():
            return None if trigger in _AT_END else _why_not_trigger(trigger, "at the end of the window")
        case Global():
            purges = isinstance(trigger, Purging) and isinstance(trigger.inner, CountReached)
            is_covered = purges or trigger in _NEVER
            return None if is_covered else _why_not_trigger(trigger, "at a count that purges, or never")
        case _:
            return f"windows of {type(assigner).__name__} are not covered"


def _why_not_trigger(trigger: Trigger, when: str) -> str:
    return f"the trigger is {type(trigger).__name__}; covered for these windows are triggers that fire {when}"


def _why_not_function(spec: WindowSpec, layout: ValueLayout) -> str | None:
    function = spec.effective_function()
    if not isinstance(function, Aggregates):
        return f"{type(function).__name__} is a user's function over records"
    if function.then is not None:
        return f"{type(function.then).__name__} is a user's function over windows"
    if isinstance(spec.assigner, (Session, DynamicSession)) and not is_columnar(spec.assigner):
        return "a user's function computes the gap of each record"
    if layout.kind != "tuple" or callable(layout.gap):
        return "a user's function reads the records"
    return next((reason for aggregate in function.aggregates if (reason := choice.why_not(aggregate))), None)
