"""Hypothesis strategies for window specs and for histories of records, watermarks and clocks; outputs to compare."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from windowlib.bounds import MAX_TIME_MS
from windowlib.functions.window_functions import (
    Aggregates,
    Apply,
    Place,
    ProcessContext,
    ProcessFunction,
    Reduce,
    UserAggregate,
    Whole,
    WindowFunction,
    aggregate,
    fold,
)
from windowlib.keyed.state import StateSpec
from windowlib.keyed.timers import STALE_MAX
from windowlib.profiles import FLINK, STRICT, Profile
from windowlib.records.records import Late, Output, Pane, Record, Unassigned
from windowlib.testkit.harness import ClockStep, RecordStep, Step, WatermarkStep
from windowlib.triggers.flink import (
    EXACT_FIRINGS,
    ContinuousEventTime,
    ContinuousProcessingTime,
    CountReached,
    DeltaExceeded,
    EndOfStream,
    EventTime,
    Never,
    ProcessingTime,
)
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.windows.assigners import (
    SHARED_MAX,
    Assigner,
    DynamicSession,
    Global,
    Session,
    Sliding,
    Stagger,
    Tumbling,
)
from windowlib.windows.evictors import Evictor, KeepClose, KeepCount, KeepRecent
from windowlib.windows.spec import WindowSpec
from windowlib.windows.windowing import PENDING_MAX, WAITING_MAX

if TYPE_CHECKING:
    from windowlib.triggers.protocol import Trigger


class Remembers(ProcessFunction):
    """A user's function with state of the key. The sizes of panes with more than two records go to a side output."""

    state = (StateSpec(name="panes", type="bigint"), StateSpec(name="sizes", kind="map", type="bigint"))

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        panes, sizes = ctx.state.value("panes"), ctx.state.map("sizes")
        panes.set((panes.get() or 0) + 1)
        sizes.put(str(place.window.start_ms), len(contents))
        if len(contents) > 2:
            ctx.output("big", len(contents))
        return [(panes.get(), *sizes.items()), (ctx.watermark_ms, ctx.processing_time_ms)]


class RemembersEachWindow(Remembers):
    """The same with state of each window, which windows that merge cannot have."""

    window_state = (StateSpec(name="shown", kind="list", type="bigint"),)

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        ctx.window_state.list("shown").append(len(contents))
        yield ctx.window_state.list("shown").get()
        yield from super().process(place, contents, ctx)

    def clear(self, place: Place, ctx: ProcessContext) -> None:
        ctx.output("shown", (str(place.key), *ctx.window_state.list("shown").get()))


LIST = Apply(lambda _key, _window, values: [tuple(values)])
SUM = Whole(Reduce(function=lambda left, right: (left[0] + right[0],), output_type="bigint"))
SQL = Aggregates(
    (
        *(aggregate(kind, "bigint") for kind in ("sum", "first", "last", "collect_list", "max")),
        aggregate("sum", "double"),
        aggregate("count"),
    )
)
WIDTH = len(SQL.aggregates)

sizes = st.integers(1, 20)


def measure(value: tuple[Any, ...]) -> float:
    return float(value[0])


@st.composite
def assigners(draw: st.DrawFn) -> Assigner:
    is_event_time = draw(st.sampled_from([True, True, True, False]))
    kind = draw(st.sampled_from(["tumbling", "sliding", "session", "dynamic", "global"]))
    size = draw(sizes)
    if kind == "tumbling":
        return Tumbling(
            size_ms=size,
            offset_ms=draw(st.integers(-size + 1, size - 1)),
            is_event_time=is_event_time,
            stagger=draw(st.sampled_from([Stagger.ALIGNED, Stagger.ALIGNED, Stagger.NATURAL, Stagger.RANDOM])),
            seed=draw(st.integers(0, 9)),
        )
    if kind == "sliding":
        shared_max = draw(st.sampled_from([0, 1, 2, SHARED_MAX]))
        return Sliding(size_ms=size, slide_ms=draw(sizes), is_event_time=is_event_time, shared_max=shared_max)
    if kind == "session":
        return Session(gap_ms=size, is_event_time=is_event_time)
    return DynamicSession(is_event_time=is_event_time) if kind == "dynamic" else Global()


simple_triggers = st.one_of(
    st.just(EventTime()),
    st.just(ProcessingTime()),
    st.just(Never()),
    st.just(EndOfStream()),
    st.builds(ContinuousEventTime, sizes, st.sampled_from([1, 2, EXACT_FIRINGS])),
    st.builds(ContinuousProcessingTime, sizes),
    st.builds(CountReached, st.integers(1, 4)),
    st.builds(DeltaExceeded, st.integers(-2, 5), st.just(measure), st.booleans()),
)
timeouts = st.builds(
    ProcessingTimeout, inner=simple_triggers, timeout_ms=sizes, resets=st.booleans(), clears=st.booleans()
)
triggers = st.one_of(simple_triggers, st.builds(Purging, simple_triggers), timeouts, st.builds(Purging, timeouts))
evictors = st.one_of(
    st.builds(KeepCount, count=st.integers(0, 4), evicts_after=st.booleans()),
    st.builds(KeepRecent, size_ms=st.integers(0, 10), evicts_after=st.booleans()),
    st.builds(
        KeepClose,
        threshold=st.integers(-2, 5),
        evicts_after=st.booleans(),
        measure=st.just(measure),
        is_absolute=st.booleans(),
    ),
)
RANGE = UserAggregate(
    create_accumulator=lambda: None,
    add_value=lambda ends, value: [min(value[0], *ends or value), max(value[0], *ends or value)],
    get_result=lambda ends: ends,
    merge_accumulators=lambda left, right: [*map(min, left, right)][:1] + [*map(max, left, right)][1:],
)
JOINED = fold("", lambda text, value: f"{text},{value[0]}")
MERGING: list[WindowFunction] = [
    LIST,
    SUM,
    SQL,
    Remembers(),
    Whole(RANGE),
    Whole(RANGE, then=Remembers()),
    Aggregates(SQL.aggregates, then=Remembers()),
]
SINGLE: list[WindowFunction] = [
    *MERGING,
    RemembersEachWindow(),
    Whole(JOINED),
    Whole(JOINED, then=RemembersEachWindow()),
]


@st.composite
def specs(draw: st.DrawFn, profiles: Sequence[Profile] = (STRICT, FLINK)) -> WindowSpec:
    assigner = draw(assigners())
    trigger: Trigger | None = draw(st.one_of(st.none(), triggers))
    if assigner.is_merging and trigger is not None and not trigger.can_merge:
        trigger = None
    evictor: Evictor | None = draw(st.one_of(st.none(), st.none(), evictors))
    profile = draw(st.sampled_from(profiles))
    return WindowSpec(
        assigner=assigner,
        trigger=trigger,
        evictor=evictor,
        function=draw(st.sampled_from(MERGING if assigner.is_merging else SINGLE)),
        allowed_lateness_ms=draw(st.sampled_from([0, 0, 3, 20, 1_000, MAX_TIME_MS])),
        accumulation=draw(st.sampled_from(["accumulating", "accumulating", "discarding"])),
        leftovers=draw(st.sampled_from(["report", "fire"])),
        profile=profile,
        stale_max=draw(st.sampled_from([0, 1, 2, STALE_MAX])),
        pending_max=draw(st.sampled_from([0, 1, 2, PENDING_MAX])),
        waiting_max=draw(st.sampled_from([0, 1, 3, WAITING_MAX])),
    )


@st.composite
def steps(draw: st.DrawFn, keys: str = "abc", max_size: int = 25) -> list[Step]:
    """Draw records out of order, a watermark and a clock that only rise; in half of the cases both end far ahead."""
    made: list[Step] = []
    watermark_ms, clock_ms, latest_ms = -30, 0, 0
    for rank in range(draw(st.integers(0, max_size))):
        kind = draw(st.sampled_from(["record", "record", "record", "watermark", "clock"]))
        if kind == "watermark":
            watermark_ms += draw(st.integers(0, 12))
            made.append(WatermarkStep(watermark_ms))
        elif kind == "clock":
            clock_ms += draw(st.integers(0, 12))
            made.append(ClockStep(clock_ms))
        else:
            latest_ms += draw(st.integers(0, 5))
            at_ms = latest_ms - draw(st.integers(0, 30))
            value = draw(st.integers(-5, 5))
            identity = draw(st.integers(-(2**63), 2**63 - 1))
            gap_ms = draw(st.integers(1, 12))
            made.append(
                RecordStep(Record(draw(st.sampled_from(keys)), at_ms, (value,) * WIDTH, (0, rank), identity, gap_ms))
            )
    if draw(st.booleans()):
        made += [WatermarkStep(watermark_ms + 2_000), ClockStep(clock_ms + 200)]
    return made


def without_position(output: Output) -> Output:
    """Return an output without its position in the log, which depends on the records of other keys."""
    return output if isinstance(output, (Late, Unassigned)) else output._replace(position=(0, 0))


def panes_of(outputs: Iterable[Output]) -> list[Pane]:
    return [output for output in outputs if isinstance(output, Pane) and output.kind == "result"]
