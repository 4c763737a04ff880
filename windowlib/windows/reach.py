"""How long a record matters to the windows: after that, no state and no output depends on it.

A replay that begins in the middle of a log begins at the oldest record that still matters (jobs.replay.restart).
"""

from dataclasses import dataclass
from typing import Final

from windowlib.errors import SpecError
from windowlib.functions.window_functions import process_function
from windowlib.keyed.operator_protocol import OperatorSpec
from windowlib.triggers.flink import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    CountReached,
    DeltaExceeded,
    EventTime,
    Never,
    ProcessingTime,
)
from windowlib.triggers.protocol import Trigger
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import Session, Sliding, Stagger, Tumbling
from windowlib.windows.spec import WindowSpec

_LEAVE_CLEANUP: Final = (
    EventTime, ProcessingTime, ContinuousEventTime, ContinuousProcessingTime, CountReached, DeltaExceeded, Never
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """When records stop to matter.

    With `gap_ms`, records whose event times are at most so far apart belong together: they may be in one session. Else
    each record is alone. Records that belong together matter until the watermark reaches the latest of their event
    times plus `after_ms`. A window is deleted when the watermark reaches its end plus `margin_ms`. If `is_on_clock`,
    read arrival time and the replay's clock for event time and watermark.
    """

    after_ms: int
    margin_ms: int
    gap_ms: int | None = None
    is_on_clock: bool = False


def reach_of(operator: OperatorSpec) -> Reach:
    """Return how long records matter to an operator.

    A window is deleted when the watermark reaches its end plus `Profile.deleted_after_end_ms` plus the allowed
    lateness, and the last window of a record ends at most one size after it. On processing time there is no lateness.
    Raises SpecError: nothing bounds it. The message is the reason, without a subject.
    """
    if not isinstance(operator, WindowSpec):
        raise SpecError("only tumbling windows, sliding windows and sessions say how long a record matters")
    then = process_function(operator.effective_function())
    if then is not None and then.state:
        names = ", ".join(state.name for state in then.state)
        raise SpecError(f"its function keeps state per key ({names}), which never ends")
    if not (operator.profile.protects_cleanup_timer or _leaves_cleanup(operator.effective_trigger())):
        raise SpecError("its trigger can delete the cleanup timer of a window, which then stays for ever (F11)")
    assigner, is_event_time = operator.assigner, operator.assigner.is_event_time
    margin_ms = operator.profile.deleted_after_end_ms + operator.allowed_lateness_ms if is_event_time else -1
    match assigner:
        case Tumbling(stagger=Stagger.NATURAL):
            raise SpecError("the first record of each task shifts its windows (stagger: natural)")
        case Tumbling() | Sliding():
            return Reach(after_ms=assigner.size_ms + margin_ms, margin_ms=margin_ms, is_on_clock=not is_event_time)
        case Session() if is_event_time:
            return Reach(after_ms=assigner.gap_ms + margin_ms, margin_ms=margin_ms, gap_ms=assigner.gap_ms)
        case Session():
            raise SpecError("its sessions are on processing time")
        case _:
            raise SpecError("its windows do not end by time, or each record has a gap of its own")


def _leaves_cleanup(trigger: Trigger) -> bool:
    """Return whether a trigger is known to delete no timer at which its window is deleted."""
    return _leaves_cleanup(trigger.inner) if isinstance(trigger, Purging) else isinstance(trigger, _LEAVE_CLEANUP)
