"""Properties of composite triggers, panes and retractions, for random specs and scripts, in strict and beam."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.support.fuzzing import cases
from tests.support.open_edges import open_edges
from tests.support.resuming import resume_at
from windowlib.beam import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Composite,
    Default,
    Never,
    OrFinally,
    Repeatedly,
)
from windowlib.bounds import wrap_int64
from windowlib.errors import SpecError
from windowlib.functions.window_functions import Reduce, Whole, aggregate
from windowlib.profiles import BEAM, STRICT, Profile
from windowlib.records.records import Output, Pane, Record, Tally
from windowlib.testkit.harness import ClockStep, RecordStep, Step, WatermarkStep, play_step
from windowlib.windows.assigners import Assigner, DynamicSession, Session, Sliding, Tumbling
from windowlib.windows.spec import MODES, Accumulation, WindowSpec

AGGREGATES = (aggregate("collect_list", "bigint"), aggregate("count"), aggregate("sum", "bigint"))
LEAVES = st.one_of(
    st.builds(AfterCount, st.integers(1, 4)),
    st.builds(AfterProcessingTime, st.integers(0, 20)),
    st.sampled_from([Default(), AfterWatermark(), Always(), Never()]),
)


def grown(inner: st.SearchStrategy[Composite]) -> st.SearchStrategy[Composite]:
    several = st.lists(inner, min_size=1, max_size=3)
    maybe = st.none() | inner
    return st.one_of(
        st.builds(Repeatedly, inner),
        st.builds(AfterWatermark, early=maybe, late=maybe),
        st.builds(OrFinally, inner, inner),
        several.map(lambda parts: AfterAll(*parts)),
        several.map(lambda parts: AfterAny(*parts)),
        several.map(lambda parts: AfterEach(*parts)),
    )


composites: st.SearchStrategy[Composite] = st.recursive(LEAVES, grown, max_leaves=4)
assigners: st.SearchStrategy[Assigner] = st.one_of(
    st.builds(Session, gap_ms=st.integers(1, 12)),
    st.just(DynamicSession()),
    st.builds(Tumbling, size_ms=st.integers(1, 20)),
    st.builds(Sliding, size_ms=st.integers(2, 12), slide_ms=st.integers(1, 12)),
)


@st.composite
def specs(draw: st.DrawFn, *, accumulation: Accumulation | None = None) -> WindowSpec:
    return WindowSpec(
        assigner=draw(assigners),
        function=AGGREGATES,
        trigger=draw(composites),
        accumulation=draw(st.sampled_from(MODES if accumulation is None else [accumulation])),
        timestamp_combiner=draw(st.sampled_from(["end_of_window", "earliest", "latest"])),
        allowed_lateness_ms=draw(st.sampled_from([0, 5, 25])),
        leftovers="report",
        profile=draw(st.sampled_from([BEAM, STRICT])),
    )


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    """Draw a script: records of two keys near the watermark, and a clock and a watermark that only rise."""
    watermark = now = 0
    steps: list[Step] = []
    for rank in range(draw(st.integers(1, 30))):
        kind = draw(st.sampled_from(["record"] * 6 + ["watermark", "clock"]))
        if kind == "record":
            at_ms = watermark + draw(st.integers(-15, 20))
            key, gap_ms = draw(st.sampled_from("ab")), draw(st.integers(1, 12))
            steps.append(RecordStep(Record(key, at_ms, (rank, rank, 1 << rank), (0, rank), 7919 * rank + 1, gap_ms)))
        elif kind == "watermark":
            watermark += draw(st.integers(0, 20))
            steps.append(WatermarkStep(watermark))
        else:
            now += draw(st.integers(0, 10))
            steps.append(ClockStep(now))
    return steps


def play(spec: WindowSpec, steps: Sequence[Step]) -> list[Output]:
    operator = spec.build()
    outputs: list[Output] = []
    for rank, step in enumerate(steps):
        play_step(operator, step, rank)
        outputs += operator.drain()
    return outputs


def panes_of(outputs: Sequence[Output]) -> list[Pane]:
    return [output for output in outputs if isinstance(output, Pane)]


def with_accumulation(spec: WindowSpec, accumulation: Accumulation) -> WindowSpec:
    return WindowSpec(
        assigner=spec.assigner,
        function=spec.function,
        trigger=spec.trigger,
        accumulation=accumulation,
        timestamp_combiner=spec.timestamp_combiner,
        allowed_lateness_ms=spec.allowed_lateness_ms,
        leftovers=spec.leftovers,
        profile=spec.profile,
    )


def applied(panes: Sequence[Pane]) -> dict[tuple[object, object], tuple[Any, int]]:
    """Return the results that remain after each retraction has removed the result that it names."""
    valid: dict[tuple[object, object], tuple[Any, int]] = {}
    for pane in panes:
        place, content = (pane.key, pane.window), (pane.values, pane.record_count)
        if pane.kind == "result":
            assert place not in valid, f"{pane} came before the retraction of the previous result"
            valid[place] = content
        else:
            assert pane.kind == "retraction"
            assert valid.pop(place) == content
    return valid


def latest(panes: Sequence[Pane]) -> dict[tuple[object, object], tuple[Any, int]]:
    """Return the last accumulating pane of each window, unless it was superseded."""
    valid: dict[tuple[object, object], tuple[Any, int]] = {}
    for pane in panes:
        if pane.kind == "result":
            valid[pane.key, pane.window] = (pane.values, pane.record_count)
        else:
            assert pane.kind == "superseded"
            valid.pop((pane.key, pane.window), None)
    return valid


@given(specs(accumulation="retracting"), scripts())
def test_results_minus_retractions_equal_the_accumulating_panes(spec: WindowSpec, steps: list[Step]) -> None:
    retracting = panes_of(play(spec, steps))
    accumulating = panes_of(play(with_accumulation(spec, "accumulating"), steps))
    assert applied(retracting) == latest(accumulating)
    results = [pane for pane in retracting if pane.kind == "result"]
    assert results == [pane for pane in accumulating if pane.kind == "result"]


@given(specs(accumulation="retracting"), scripts())
def test_a_retraction_has_the_attributes_of_the_result_that_it_withdraws(spec: WindowSpec, steps: list[Step]) -> None:
    results: dict[tuple[object, ...], Pane] = {}
    for pane in panes_of(play(spec, steps)):
        name = (pane.key, pane.window, pane.pane_index)
        if pane.kind == "result":
            results[name] = pane
            continue
        result = results.pop(name)
        assert (pane.values, pane.record_count) == (result.values, result.record_count)
        assert (pane.timestamp_ms, pane.nonspeculative_index) == (result.timestamp_ms, result.nonspeculative_index)
        assert (pane.timing == "EARLY") == (result.timing == "EARLY")
        assert not pane.is_first
        assert not result.is_last


@given(specs(accumulation="retracting"), scripts())
def test_a_sum_over_results_and_retractions_counts_each_record_once(spec: WindowSpec, steps: list[Step]) -> None:
    """A downstream sum that adds results and subtracts retractions is the sum over the valid results."""
    total = 0
    for pane in panes_of(play(spec, steps)):
        total += pane.values[1] if pane.kind == "result" else -pane.values[1]
        assert pane.values[1] == pane.record_count == len(pane.values[0])
    assert total == sum(count for _, count in applied(panes_of(play(spec, steps))).values())


@given(specs(), scripts(), st.data())
def test_a_cut_at_any_step_changes_no_output_and_no_state(
    spec: WindowSpec, steps: list[Step], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(steps)))
    operator = spec.build()
    outputs: list[Output] = []
    for rank, step in enumerate(steps):
        play_step(operator, step, rank)
        outputs += operator.drain()
    assert resume_at(spec, steps, cut) == (outputs, operator.snapshot())


def add(left: Tally, right: Tally) -> Tally:
    return Tally(left.count + right.count, wrap_int64(left.xor ^ right.xor), wrap_int64(left.sum + right.sum))


@given(specs(), scripts())
def test_every_edge_is_open_or_closed_once(spec: WindowSpec, steps: list[Step]) -> None:
    operator = spec.build()
    before = Tally(0, 0, 0)
    for rank, step in enumerate(steps):
        play_step(operator, step, rank)
        terms = operator.take_tallies()
        closed = Tally(0, 0, 0)
        for term, tally in terms.items():
            closed = closed if term == "new" else add(closed, tally)
        after = open_edges(operator)
        assert add(before, terms.get("new", Tally(0, 0, 0))) == add(after, closed)
        before = after


@given(specs(), scripts())
def test_panes_have_consecutive_indexes_and_ordered_timings(spec: WindowSpec, steps: list[Step]) -> None:
    order = {"EARLY": 0, "ON_TIME": 1, "LATE": 2}
    results = [pane for pane in panes_of(play(spec, steps)) if pane.kind == "result"]
    for place in {(pane.key, pane.window) for pane in results}:
        panes = [pane for pane in results if (pane.key, pane.window) == place]
        assert [pane.pane_index for pane in panes] == list(range(len(panes)))
        assert [pane.is_first for pane in panes] == [True] + [False] * (len(panes) - 1)
        assert not any(pane.is_last for pane in panes[:-1])
        timings = [order[pane.timing] for pane in panes]
        assert timings == sorted(timings)
        assert timings.count(1) <= 1
        counted = [pane.nonspeculative_index for pane in panes]
        assert counted == [-1] * timings.count(0) + list(range(len(timings) - timings.count(0)))
        for pane in panes:
            assert pane.record_count or (spec.profile is BEAM and pane.timing == "ON_TIME")


@given(specs(), scripts(), st.sampled_from(["refuse", "fire"]))
@settings(max_examples=cases(60))
def test_a_spec_that_is_not_refused_shows_every_record(spec: WindowSpec, steps: list[Step], leftovers: Any) -> None:  # noqa: ANN401
    """If `leftovers: refuse` (or `fire`) accepts a spec, every record of every closed window was in a pane."""
    try:
        strict = WindowSpec(
            assigner=spec.assigner,
            function=spec.function,
            trigger=spec.trigger,
            allowed_lateness_ms=spec.allowed_lateness_ms,
            leftovers=leftovers,
            profile=STRICT,
        )
    except SpecError:
        return
    operator = strict.build()
    for rank, step in enumerate([*steps, WatermarkStep(1_000)]):
        play_step(operator, step, rank)
    assert set(operator.take_tallies()) <= {"new", "closed:fired"}


@pytest.mark.parametrize("profile", [STRICT, BEAM], ids=lambda profile: profile.name)
def test_the_result_of_a_reduce_is_retracted(profile: Profile) -> None:
    spec = WindowSpec(
        assigner=Session(gap_ms=10),
        function=Whole(Reduce(function=max, output_type="bigint")),
        trigger=AfterWatermark(early=AfterCount(1)),
        accumulation="retracting",
        leftovers="report",
        profile=profile,
    )
    steps: list[Step] = [RecordStep(Record("a", at, at, (0, at), at)) for at in (1, 30, 5)]
    panes = panes_of(play(spec, [*steps, WatermarkStep(20)]))
    assert [(pane.kind, pane.values, *pane.window) for pane in panes] == [
        ("result", 1, 1, 11),
        ("result", 30, 30, 40),
        ("retraction", 1, 1, 11),
        ("result", 5, 1, 15),
        ("retraction", 5, 1, 15),
        ("result", 5, 1, 15),
    ]
