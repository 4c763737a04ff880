"""Parts that break one law of windowlib.testkit.contracts each; the check must name the law."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from windowlib.bounds import GLOBAL_WINDOW, TimeWindow, Window
from windowlib.errors import InvariantBroken, SpecError
from windowlib.functions.window_functions import Place, ProcessContext, ProcessFunction
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction, KeyedProcessOperator
from windowlib.keyed.state import StateSpec
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.records import Fate, Record, Stored, Tally
from windowlib.testkit.contracts import (
    LIST,
    check_assigner,
    check_evictor,
    check_function,
    check_operator,
    check_trigger,
)
from windowlib.triggers.flink import EventTime
from windowlib.triggers.protocol import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.assigners import Assigner, AssignerContext, Tumbling
from windowlib.windows.evictors import Evictor, EvictorContext
from windowlib.windows.spec import WindowSpec
from windowlib.windows.window_operator import WindowOperator


class RemembersOnItself(Trigger):
    def __init__(self) -> None:
        self.seen = 0

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        self.seen += 1
        return FIRE if self.seen % 7 == 0 else CONTINUE


class FiresForTheFirstEver(Trigger):
    """Its memory is an attribute of the class, so a check notices it only by a changed output."""

    seen: set[int] = set()  # noqa: RUF012 - the fault that the check must find

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        is_new = record.record_hash not in self.seen
        self.seen.add(record.record_hash)
        return FIRE if is_new else CONTINUE


class TakesANameOfTheOperator(Trigger):
    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.state["finished"] = False
        return CONTINUE


class KeepsASet(Trigger):
    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.state.setdefault("seen", set()).add(record.value)
        return CONTINUE


class ForgetsItsTimer(Trigger):
    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.register_event_timer(1_000_000)
        return CONTINUE


@dataclass(frozen=True, slots=True)
class DoesNotWait(EventTime):
    """It promises to wait for the window's end, but fires at every record."""

    waits_for_end = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        EventTime.on_record(self, record, window, ctx)
        return FIRE


class LeavesRecords(Trigger):
    """It promises to leave no records, but never fires."""

    def may_leave_records(self, *, is_event_time: bool) -> bool:  # noqa: ARG002
        return False


@dataclass(frozen=True, slots=True)
class FiresTwice(EventTime):
    """It promises not to fire after the window's end, but registers a timer there."""

    fires_after_end = False

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if at_ms == window.last_ms:
            ctx.register_event_timer(at_ms + 1)
        return FIRE if at_ms in {window.last_ms, window.last_ms + 1} else CONTINUE


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (RemembersOnItself, "RemembersOnItself remembers nothing on itself"),
        (FiresForTheFirstEver, "outside the state"),
        (TakesANameOfTheOperator, "ctx.state has 'finished' only after the trigger returned FINISH"),
        (KeepsASet, "is not JSON"),
        (ForgetsItsTimer, "no timer is left after its window"),
        (DoesNotWait, "waits_for_end"),
        (LeavesRecords, "may_leave_records returns False"),
        (FiresTwice, "no pane follows a pane that is_last"),
    ],
)
def test_a_broken_trigger_is_found(make: Callable[[], Trigger], message: str) -> None:
    with pytest.raises(InvariantBroken, match=message):
        check_trigger(make())


class DependsOnTheKey(Assigner):
    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:  # noqa: ARG002
        at_ms = record.timestamp_ms or 0
        return (TimeWindow(at_ms, at_ms + (5 if record.key == "a" else 10)),)


class NamesTwice(Assigner):
    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:  # noqa: ARG002
        at_ms = record.timestamp_ms or 0
        return (TimeWindow(at_ms, at_ms + 5),) * 2


class ReturnsEmptyWindows(Assigner):
    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:  # noqa: ARG002
        at_ms = record.timestamp_ms or 0
        return (TimeWindow(at_ms, at_ms),)


class MergesMany(Assigner):
    is_merging = True

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:  # noqa: ARG002
        at_ms = record.timestamp_ms or 0
        return (TimeWindow(at_ms, at_ms + 5), TimeWindow(at_ms + 20, at_ms + 25))


class Counts(Assigner):
    """Its windows depend on how many records it has seen."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:  # noqa: ARG002
        return (TimeWindow(0, 10 + next(self.numbers)),)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (DependsOnTheKey, "do not depend on the key"),
        (NamesTwice, "a record's windows are distinct"),
        (ReturnsEmptyWindows, "a window contains an instant"),
        (MergesMany, "a merging assigner returns one window"),
        (Counts, "Counts remembers nothing on itself"),
    ],
)
def test_a_broken_assigner_is_found(make: Callable[[], Assigner], message: str) -> None:
    with pytest.raises(InvariantBroken, match=message):
        check_assigner(make())


class Reverses(Evictor):
    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return list(reversed(records))


class Repeats(Evictor):
    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return [*records, records[-1]]


class EvictsEverySecondTime(Evictor):
    def __init__(self) -> None:
        self.calls = 0

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        self.calls += 1
        return records[self.calls % 2 :]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Reverses, "in their order"),
        (Repeats, "once each"),
        (EvictsEverySecondTime, "EvictsEverySecondTime remembers nothing on itself"),
    ],
)
def test_a_broken_evictor_is_found(make: Callable[[], Evictor], message: str) -> None:
    with pytest.raises(InvariantBroken, match=message):
        check_evictor(make())


@dataclass
class Totals(ProcessFunction):
    total: int = 0

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        self.total += len(contents)
        return [self.total]


class StoresWhatIsNotPlain(ProcessFunction):
    state = (StateSpec(name="thing"),)

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        ctx.state.value("thing").set(1j)
        return [1]


def test_a_broken_function_is_found() -> None:
    with pytest.raises(InvariantBroken, match="Totals remembers nothing on itself"):
        check_function(Totals())
    with pytest.raises(SpecError, match="complex"):
        check_function(StoresWhatIsNotPlain())


# --- operators --------------------------------------------------------------------------------------------------------


class SharesBetweenKeys(KeyedProcessFunction):
    """It returns the number of records of all keys for each record."""

    def __init__(self) -> None:
        self.count = 0

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
        self.count += 1
        return [self.count]


class WakesAnotherKey(KeyedProcessFunction):
    """A record of one key registers a timer of another key. All memory is in the state, but the keys interact."""

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        ctx.timers.event_timers.register((record.timestamp_ms or 0) + ord(str(record.key)), "c", GLOBAL_WINDOW)
        return ()

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
        return [at_ms]


@dataclass(frozen=True)
class ProcessSpec:
    function: KeyedProcessFunction

    def build(self, groups: KeyGroupRange | None = None) -> KeyedProcessOperator:
        return KeyedProcessOperator(self.function, groups)


SPEC = WindowSpec(assigner=Tumbling(size_ms=10), function=LIST)


@dataclass(frozen=True)
class SpecOf:
    """Builds a broken kind of window operator."""

    kind: type[WindowOperator]
    spec: WindowSpec = field(default=SPEC)

    def build(self, groups: KeyGroupRange | None = None) -> WindowOperator:
        return self.kind(self.spec.build().windowing, groups)


class LosesAnEdge(WindowOperator):
    def take_tallies(self) -> dict[str, Tally]:
        terms = super().take_tallies()
        return {term: tally._replace(count=tally.count + (term == "closed:fired")) for term, tally in terms.items()}


class IsDisturbedBySnapshots(WindowOperator):
    looks = 0

    def next_event_timer_ms(self) -> int | None:
        self.looks += 1
        if self.looks == 5:
            self.drain()
            self.advance_watermark(self.watermark_ms + 1)
        return super().next_event_timer_ms()


class HidesItsTimers(WindowOperator):
    def next_event_timer_ms(self) -> int | None:
        return None


class HasNoFate(WindowOperator):
    def process(self, record: Record) -> Fate:
        super().process(record)
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ProcessSpec(SharesBetweenKeys()), "outside the state"),
        (SpecOf(LosesAnEdge), r"open before \+ new = open now \+ closed"),
        (SpecOf(IsDisturbedBySnapshots), "two snapshots of one moment|taking snapshots does not change"),
        (SpecOf(HidesItsTimers), "does not wait for"),
        (SpecOf(HasNoFate), "a record has one fate"),
        (ProcessSpec(WakesAnotherKey()), "keys do not interact"),
    ],
    ids=["sharing", "edges", "snapshots", "timers", "fates", "keys"],
)
def test_a_broken_operator_is_found(spec: Any, message: str) -> None:  # noqa: ANN401 - one of two kinds of spec
    with pytest.raises(InvariantBroken, match=message):
        check_operator(spec)
