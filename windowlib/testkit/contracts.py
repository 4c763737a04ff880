"""Checks of the laws that every trigger, assigner, evictor, function and operator must keep, including users' own.

    check_trigger(MyTrigger())

Each check plays typical histories through operators. At the first broken law it raises InvariantBroken with the law and
both values. `values` are record values that the checked part accepts; a few are enough.
"""

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from windowlib.bounds import TimeWindow, Window, wrap_int64
from windowlib.functions.window_functions import Apply, Whole, WindowFunction, can_merge, process_function
from windowlib.keyed.key_groups import key_group
from windowlib.keyed.operator_protocol import Operator, OperatorSpec
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.timers import KeyGroupRange
from windowlib.profiles import FLINK, STRICT, EngineFault, Profile
from windowlib.records.records import Fate, Late, Output, Pane, Record, Tally, Unassigned, Value
from windowlib.records.tallies import LEFT_OVER, NEVER_FIRED, NEW, NO_EDGES, signed, together
from windowlib.testkit.harness import ClockStep, RecordStep, Step, WatermarkStep, check_resumable, play_step, started
from windowlib.testkit.laws import WatchedEvictor, WatchedTrigger, expect
from windowlib.triggers.flink import CountReached
from windowlib.triggers.protocol import Trigger
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import Assigner, DynamicSession, Global, Session, Sliding, Tumbling
from windowlib.windows.evictors import Evictor
from windowlib.windows.spec import WindowSpec, default_trigger

LIST: Final = Apply(lambda _key, _window, values: [list(values)])
"""The function in checks of other parts: a pane has the values of its records."""
KEYS: Final = ("a", "b", "c")
_FAR_MS: Final = 400
_NONE: Final = Tally(0, 0, 0)


def typical_steps(values: Sequence[Value] = (1, 1, 2, 5, 3)) -> list[Step]:
    """Return a history of three keys with records in and out of order, in time and late.

    The clocks advance in small and in large steps, far enough to complete windows of up to 100 ms.
    """
    steps: list[Step] = []
    value = itertools.cycle(values)
    instants = (1, 3, 12, 7, 2, 14, None, 30, 22, 8, None, 38, 21, 55, None, 41, 57, 56)
    watermark_ms = itertools.chain((5, 29, 40), itertools.count(60, 20))
    for number, at_ms in enumerate(instants):
        if at_ms is None:
            now_ms, clock_ms = next(watermark_ms), 8 * number + 60
            steps += [*(WatermarkStep(now_ms - back) for back in (6, 3, 0)), *map(ClockStep, (clock_ms - 7, clock_ms))]
            continue
        for key in KEYS[: 1 + number % 3]:
            rank = len(steps)
            identity = wrap_int64((rank + 1) * 0x9E37_79B9_7F4A_7C15)
            steps.append(RecordStep(Record(key, at_ms, next(value), (0, rank), identity, 4 + number % 3)))
        steps.append(ClockStep(8 * number + 1))
    steps += [WatermarkStep(70), ClockStep(200), WatermarkStep(_FAR_MS), ClockStep(_FAR_MS)]
    return _rising(steps)


def _rising(steps: list[Step]) -> list[Step]:
    """Leave out the steps that would set the clock back."""
    clock_ms, kept = 0, list[Step]()
    for step in steps:
        now_ms = step.processing_time_ms if isinstance(step, ClockStep) else clock_ms
        if now_ms >= clock_ms:
            clock_ms = now_ms
            kept.append(step)
    return kept


# --- operators --------------------------------------------------------------------------------------------------------


def check_operator(spec: OperatorSpec, steps: Sequence[Step] | None = None) -> list[Output]:
    """Check the laws of operators that a replay relies on, and return the outputs of the steps.

    - A snapshot and a restore at any step do not change the results.
    - Taking a snapshot and asking for the next timers change nothing.
    - Each edge is either open, or closed once.
    - Keys do not interact: key groups can be computed separately and their states joined.
    - Steps that the operator does not wait for can be left out.

    Raises:
        InvariantBroken: a law does not hold; the message names the law.
    """
    steps = typical_steps() if steps is None else steps
    outputs, state = _run(spec, steps)
    check_resumable(spec, steps, expected=(outputs, state))
    _check_looking(spec, steps, outputs)
    _check_edges(spec, steps)
    _check_groups(spec, steps, outputs, state=state)
    _check_leaving_out(spec, steps, outputs)
    return outputs


def _run(spec: OperatorSpec, steps: Sequence[Step]) -> tuple[list[Output], Snapshot]:
    operator = started(spec, steps)
    return _drive(operator, steps), operator.snapshot()


def _drive(operator: Operator, steps: Sequence[Step]) -> list[Output]:
    outputs: list[Output] = []
    for rank, step in enumerate(steps):
        fate = play_step(operator, step, rank)
        expect("a record has one fate", isinstance(fate, Fate), isinstance(step, RecordStep))
        outputs += operator.drain()
    return outputs


def _check_looking(spec: OperatorSpec, steps: Sequence[Step], outputs: list[Output]) -> None:
    operator, seen = started(spec, steps), list[Output]()
    for rank, step in enumerate(steps):
        play_step(operator, step, rank)
        first = operator.snapshot()
        operator.next_event_timer_ms()
        operator.next_processing_timer_ms()
        expect("two snapshots of one moment are equal", operator.snapshot(), first)
        seen += operator.drain()
    expect("taking snapshots does not change the outputs", seen, outputs)


def _check_edges(spec: OperatorSpec, steps: Sequence[Step]) -> None:
    operator, before = started(spec, steps), _NONE
    for rank, step in enumerate(steps):
        play_step(operator, step, rank)
        terms = operator.take_tallies()
        after = _total(
            Tally(row.edge_count, row.edge_xor, row.edge_sum)
            for row in operator.snapshot().windows
            if not row.is_orphan
        )
        closed = _total(tally for term, tally in terms.items() if term != NEW)
        opened = _total([before, terms.get(NEW, _NONE)])
        expect(f"edges open before + new = open now + closed, at step {rank} ({step})", opened, _total([after, closed]))
        before = after


def _total(tallies: Iterable[Tally]) -> Tally:
    return Tally(*signed(reduce(together, tallies, NO_EDGES)))


def _check_groups(spec: OperatorSpec, steps: Sequence[Step], outputs: list[Output], *, state: Snapshot) -> None:
    """Compute two halves of the key groups separately, join their states, and compare with the whole operator."""
    owned = sorted({key_group(step.record.key) for step in steps if isinstance(step, RecordStep)})
    if len(owned) < 2:  # noqa: PLR2004
        return
    middle = owned[len(owned) // 2]
    joined = replace(state, windows=[], timers=[], user_state=[])
    by_key: dict[Hashable, list[Output]] = {}
    for groups in (KeyGroupRange(0, middle), KeyGroupRange(middle)):
        mine = [step for step in steps if not isinstance(step, RecordStep) or key_group(step.record.key) in groups]
        part = started(spec, steps, groups)
        for key, seen in _by_key(_drive(part, mine)).items():
            by_key.setdefault(key, []).extend(seen)
        rows = part.snapshot()
        joined.windows += rows.windows
        joined.timers += rows.timers
        joined.user_state += rows.user_state
    expect("keys do not interact", by_key, _by_key(outputs))
    whole = spec.build()
    whole.restore(joined)
    expect("the joined states of the key groups equal the state of all", whole.snapshot(), state)


def _by_key(outputs: Sequence[Output]) -> dict[Hashable, list[Output]]:
    """Group outputs by key, without their positions in the log, because other keys' records change those."""
    by_key: dict[Hashable, list[Output]] = defaultdict(list)
    for output in outputs:
        match output:
            case Late() | Unassigned():
                by_key[output.record.key].append(output)
            case _:
                by_key[output.key].append(output._replace(position=(0, 0)))
    return by_key


def _check_leaving_out(spec: OperatorSpec, steps: Sequence[Step], outputs: list[Output]) -> None:
    """Leave out each clock step that the operator does not wait for, except the last before another kind of step."""
    operator, seen = started(spec, steps), list[Output]()
    for rank, (step, after) in enumerate(itertools.zip_longest(steps, steps[1:])):
        if type(step) is not type(after) or _is_awaited(operator, step):
            play_step(operator, step, rank)
            seen += operator.drain()
    expect("steps that the operator does not wait for can be left out", _by_key(seen), _by_key(outputs))


def _is_awaited(operator: Operator, step: Step) -> bool:
    match step:
        case RecordStep():
            return True
        case WatermarkStep():
            due_ms = operator.next_event_timer_ms()
            return due_ms is not None and due_ms <= step.watermark_ms
        case ClockStep():
            due_ms = operator.next_processing_timer_ms()
            return due_ms is not None and due_ms <= step.processing_time_ms


# --- the parts of a window spec ---------------------------------------------------------------------------------------

_ASSIGNERS: Final = (
    Tumbling(size_ms=10),
    Sliding(size_ms=10, slide_ms=5),
    Sliding(size_ms=5, slide_ms=8),
    Session(gap_ms=5),
    DynamicSession(),
    Tumbling(size_ms=10, is_event_time=False),
    Session(gap_ms=5, is_event_time=False),
    Global(),
)


def check_trigger(
    trigger: Trigger, values: Sequence[Value] = (1, 1, 2, 5, 3), *, profiles: Sequence[Profile] = (STRICT, FLINK)
) -> None:
    """Check a trigger on all kinds of windows that it supports; on sessions only if `can_merge`.

    Besides the laws of `check_operator`: the trigger keeps memory in `ctx.state` only, and no name of the operator's
    there (see WatchedTrigger); `waits_for_end`,
    `fires_after_end` and `may_leave_records` hold; no timer of a deleted window is left once both clocks passed it.
    Raises InvariantBroken: a law does not hold; the message names the law.
    """
    for assigner, profile in itertools.product(_ASSIGNERS, profiles):
        if trigger.can_merge or not assigner.is_merging:
            spec = _spec(assigner, profile, trigger=trigger)
            _check_window_spec(spec, typical_steps(values), part=trigger)
            _check_promises(spec, trigger, typical_steps(values))


def check_assigner(assigner: Assigner, values: Sequence[Value] = (1, 1, 2, 5, 3)) -> None:
    """Check an assigner with triggers that purge and triggers that do not.

    Besides the laws of `check_operator`: windows do not depend on the key, the windows of one record are distinct and
    not empty (`start_ms < end_ms`), and a merging assigner returns one window.
    Raises InvariantBroken: a law does not hold; the message names the law.
    """
    steps = typical_steps(values)
    for trigger in (default_trigger(assigner), CountReached(2), Purging(CountReached(2))):
        _check_window_spec(_spec(assigner, STRICT, trigger=trigger), steps, part=assigner)
    for step in steps:
        if isinstance(step, RecordStep):
            windows = assigner.assign(step.record, _AssignerContext())
            others = assigner.assign(step.record._replace(key="another"), _AssignerContext())
            expect("windows do not depend on the key", list(others), list(windows))
            expect("a record's windows are distinct", len(set(windows)), len(windows))
            if assigner.is_merging:
                expect("a merging assigner returns one window", len(windows), 1)
            empty = [
                window for window in windows if isinstance(window, TimeWindow) and window.start_ms >= window.end_ms
            ]
            expect("a window contains an instant", empty, [])


def check_evictor(evictor: Evictor, values: Sequence[Value] = (1, 1, 2, 5, 3)) -> None:
    """Check an evictor on all kinds of windows, with a trigger that fires early.

    Besides the laws of `check_operator`: the evictor has no memory and returns some of the given records, in order.
    Raises InvariantBroken: a law does not hold; the message names the law.
    """
    for assigner in _ASSIGNERS:
        spec = _spec(assigner, STRICT, trigger=CountReached(2), evictor=WatchedEvictor(evictor))
        _check_window_spec(spec, typical_steps(values), part=evictor)


def check_function(function: WindowFunction, values: Sequence[Value] = (1, 1, 2, 5, 3)) -> None:
    """Check the laws of `check_operator` for a window function on all kinds of windows that it supports.

    Raises InvariantBroken: a law does not hold; the message names the law.
    """
    then = process_function(function)
    merges = not (isinstance(function, Whole) and not can_merge(function.aggregate)) and not (
        then and then.window_state
    )
    for assigner, trigger in itertools.product(_ASSIGNERS, (CountReached(2), Purging(CountReached(2)))):
        if merges or not assigner.is_merging:
            spec = _spec(assigner, STRICT, trigger=trigger, function=function)
            _check_window_spec(spec, typical_steps(values), part=function)


def _spec(assigner: Assigner, profile: Profile, **parts: Any) -> WindowSpec:  # noqa: ANN401 - arguments of WindowSpec
    arguments: dict[str, Any] = {"function": LIST, "leftovers": "report", "allowed_lateness_ms": 3, **parts}
    return WindowSpec(assigner=assigner, profile=profile, **arguments)


def _check_window_spec(spec: WindowSpec, steps: Sequence[Step], *, part: object) -> None:
    try:
        with _unchanged(part):
            first, state = _run(spec, steps)
        outputs = check_operator(spec, steps)
    except EngineFault:
        return  # the engine itself fails here, so there is nothing to compare
    expect("the same steps give the same outputs; memory is kept outside the state", outputs, first)
    panes: dict[tuple[Hashable, Window], list[Pane]] = defaultdict(list)
    for output in outputs:
        if isinstance(output, Pane):
            panes[output.key, output.window].append(output)
    if spec.profile is STRICT and spec.assigner.is_event_time:
        for of_window in panes.values():
            followed = [pane for pane in of_window[:-1] if pane.is_last]
            expect("no pane follows a pane that is_last (fires_after_end)", followed, [])
    if spec.profile is STRICT and spec.assigner.has_bounds:
        expect("no window is open after its cleanup", state.windows, [])
        expect("no timer is left after its window's cleanup (clear)", state.timers, [])


def _check_promises(spec: WindowSpec, trigger: Trigger, steps: Sequence[Step]) -> None:
    try:
        _run(replace(spec, trigger=WatchedTrigger(trigger)), steps)
        outputs, state = _run(spec, steps)
    except EngineFault:
        return
    operator = started(spec, steps)
    _drive(operator, steps)
    left = {LEFT_OVER, NEVER_FIRED} & operator.take_tallies().keys()
    if not trigger.may_leave_records(is_event_time=spec.assigner.is_event_time) and spec.profile is STRICT:
        expect("if may_leave_records returns False, no record is left", left, set())
    if trigger.waits_for_end:
        called = replace(spec, trigger=_without_promise(trigger))
        expect(
            "waits_for_end: calling on_record for each record changes nothing", _run(called, steps), (outputs, state)
        )


def _without_promise(trigger: Trigger) -> Trigger:
    """Return the same trigger with `waits_for_end` False."""
    kind = type(type(trigger).__name__, (type(trigger),), {"__slots__": (), "waits_for_end": False})
    twin = copy(trigger)
    object.__setattr__(twin, "__class__", kind)  # triggers are frozen
    return twin


@dataclass(frozen=True, slots=True)
class _AssignerContext:
    processing_time_ms: int = 1_000
    stagger_ms: int = 0
    profile: Profile = STRICT


@contextmanager
def _unchanged(part: object) -> Iterator[None]:
    """Check that a part's attributes do not change while it is used."""
    before = _memory(part)
    yield
    expect(f"{type(part).__name__} remembers nothing on itself", _memory(part), before)


def _memory(part: object) -> dict[str, str]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [name for name in (*slots, *getattr(part, "__dict__", {})) if hasattr(part, name)]
    return {name: repr(getattr(part, name)) for name in names}
