"""Laws of the window operator, for every combination of assigner, trigger, evictor and function, in both profiles."""

from collections import defaultdict
from collections.abc import Sequence

from hypothesis import assume, given, reject
from hypothesis import strategies as st

from tests.support.windows import LIST, SQL, WIDTH, panes_of, specs, steps, without_position
from windowlib.assigners import DynamicSession, Session, Sliding, Tumbling
from windowlib.intervals import merge
from windowlib.profiles import STRICT, EngineFault
from windowlib.records import ASSIGNED, LATE, UNASSIGNED, Fate, Late, Output, Pane, Record, Tally, Unassigned
from windowlib.spec import WindowSpec
from windowlib.testing import RecordStep, Step, WatermarkStep, play_step, resume_at
from windowlib.window_operator import WindowOperator
from windowlib.windows import wrap_int64


def play(spec: WindowSpec, script: Sequence[Step]) -> tuple[WindowOperator, list[Output], list[Fate]]:
    operator = spec.build()
    outputs: list[Output] = []
    fates = []
    for rank, step in enumerate(script):
        fate = play_step(operator, step, rank)
        if fate is not None:
            fates.append(fate)
        outputs += operator.drain()
    return operator, outputs, fates


@given(specs(), steps(), st.data())
def test_going_on_from_a_snapshot_is_the_same_as_going_on(
    spec: WindowSpec, script: list[Step], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(script)))
    try:
        operator, outputs, _ = play(spec, script)
    except EngineFault:
        reject()
    assert resume_at(spec, script, cut) == (outputs, operator.snapshot())


@given(specs(), steps())
def test_a_snapshot_does_not_disturb(spec: WindowSpec, script: list[Step]) -> None:
    operator, quiet = spec.build(), spec.build()
    try:
        for rank, step in enumerate(script):
            before = operator.snapshot()
            play_step(operator, step, rank)
            play_step(quiet, step, rank)
            if not isinstance(step, RecordStep):
                continue
            operator.drain()
            quiet.drain()
            assert before != operator.snapshot() or before.windows == operator.snapshot().windows
    except EngineFault:
        reject()
    assert operator.drain() == quiet.drain()
    assert operator.snapshot() == quiet.snapshot()


def add(left: Tally, right: Tally) -> Tally:
    return Tally(left.count + right.count, wrap_int64(left.xor ^ right.xor), wrap_int64(left.sum + right.sum))


@given(specs(), steps())
def test_every_edge_is_open_or_closed_once(spec: WindowSpec, script: list[Step]) -> None:
    """Open before + new = open after + closed, at every step: in counts, XOR and sums modulo 2**64."""
    operator = spec.build()
    before = Tally(0, 0, 0)
    for rank, step in enumerate(script):
        try:
            play_step(operator, step, rank)
        except EngineFault:
            reject()
        terms = operator.take_tallies()
        after = operator.open_edges()
        closed = Tally(0, 0, 0)
        for term, tally in terms.items():
            if term != "new":
                assert term.startswith("closed:")
                closed = add(closed, tally)
        assert add(before, terms.get("new", Tally(0, 0, 0))) == add(after, closed)
        before = after


@given(specs(), steps())
def test_every_record_has_one_fate_and_its_row(spec: WindowSpec, script: list[Step]) -> None:
    try:
        _, outputs, fates = play(spec, script)
    except EngineFault:
        reject()
    late = [output for output in outputs if isinstance(output, Late)]
    assert fates.count(LATE) == sum(output.missed_all for output in late)
    assert fates.count(UNASSIGNED) == sum(isinstance(output, Unassigned) for output in outputs)
    assert all(output.late_by_ms >= 0 for output in late)
    assert len(fates) == sum(isinstance(step, RecordStep) for step in script)


@given(specs(), steps())
def test_panes_of_one_window_are_numbered_and_end(spec: WindowSpec, script: list[Step]) -> None:
    # In processing time this needs a driver that lets the records of an instant go before its timers; `play` does not.
    assume(spec.profile is STRICT and (spec.assigner.is_event_time or not spec.assigner.has_bounds))
    _, outputs, _ = play(spec, script)
    seen: dict[object, list[Pane]] = defaultdict(list)
    for output in outputs:
        if isinstance(output, Pane):
            seen[output.key, output.window].append(output)
    order = {"EARLY": 0, "ON_TIME": 1, "LATE": 2}
    for panes in seen.values():
        assert [pane.pane_index for pane in panes] == list(range(len(panes)))
        assert [pane.is_first for pane in panes] == [True] + [False] * (len(panes) - 1)
        assert not any(pane.is_last for pane in panes[:-1])
        timings = [order[pane.timing] for pane in panes if pane.kind == "result"]
        assert timings == sorted(timings)
        assert timings.count(1) <= 1
        assert all(pane.record_count > 0 for pane in panes if pane.kind == "result")


@given(specs(profiles=[STRICT]), steps(keys="abcd"))
def test_keys_do_not_interact(spec: WindowSpec, script: list[Step]) -> None:
    """Records of different keys between two clock steps may come in any order: each key's outputs stay the same."""
    shuffled: list[Step] = []
    run: list[RecordStep] = []
    for step in script:
        if isinstance(step, RecordStep):
            run.append(step)
        else:
            shuffled += [*by_their_keys(run), step]
            run = []
    shuffled += by_their_keys(run)
    assert by_key(play(spec, script)[1]) == by_key(play(spec, shuffled)[1])


def by_their_keys(run: list[RecordStep]) -> list[RecordStep]:
    """Sort records by key; the sort is stable, so the order inside a key stays."""
    return sorted(run, key=lambda one: str(one.record.key))


def by_key(outputs: Sequence[Output]) -> dict[object, list[Output]]:
    found: dict[object, list[Output]] = defaultdict(list)
    for output in outputs:
        key = output.record.key if isinstance(output, (Late, Unassigned)) else output.key
        found[key].append(without_position(output))
    return found


records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-50, 50), st.integers(1, 15)), max_size=25)
crowded = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 20), st.integers(1, 9)), min_size=3, max_size=15)


@given(crowded, st.integers(1, 9))
def test_sessions_are_the_merged_intervals(drawn: list[tuple[str, int, int]], gap_ms: int) -> None:
    for assigner, gaps in (
        (Session(gap_ms=gap_ms), [gap_ms] * len(drawn)),
        (DynamicSession(), [gap for _, _, gap in drawn]),
    ):
        script: list[Step] = [
            RecordStep(Record(key, at_ms, (rank,), (0, rank), rank, gap))
            for rank, ((key, at_ms, _), gap) in enumerate(zip(drawn, gaps, strict=True))
        ]
        spec = WindowSpec(assigner=assigner, function=LIST)
        panes = panes_of(play(spec, [*script, WatermarkStep(1_000)])[1])
        expected = set()
        for key in "ab":
            mine = [(rank, at, gap) for rank, ((k, at, _), gap) in enumerate(zip(drawn, gaps, strict=True)) if k == key]
            for start, end in merge((at, at + gap) for _, at, gap in mine):
                inside = tuple((rank,) for rank, at, _ in mine if start <= at < end)
                expected.add((key, start, end, inside))
        assert {(pane.key, *pane.window, pane.values) for pane in panes} == expected
        assert len(panes) == len(expected)


@given(records, st.integers(1, 12), st.integers(1, 12), st.integers(-30, 60), st.sampled_from([0, 4]))
def test_panes_and_fates_follow_from_the_definition(
    drawn: list[tuple[str, int, int]], size_ms: int, slide_ms: int, watermark_ms: int, lateness_ms: int
) -> None:
    """All records, with one watermark in the middle: what is in which window, and who is late, by set arithmetic."""
    half = len(drawn) // 2
    rows = [Record(key, at_ms, (rank,), (0, rank), rank) for rank, (key, at_ms, _) in enumerate(drawn)]
    script: list[Step] = [RecordStep(row) for row in rows]
    script.insert(half, WatermarkStep(watermark_ms))
    script.append(WatermarkStep(10_000))
    spec = WindowSpec(
        assigner=Sliding(size_ms=size_ms, slide_ms=slide_ms), function=LIST, allowed_lateness_ms=lateness_ms
    )
    _, outputs, fates = play(spec, script)
    expected: dict[tuple[object, int], list[int]] = defaultdict(list)
    for rank, row in enumerate(rows):
        assert row.timestamp_ms is not None
        starts = [
            start for start in range(-100, 100) if start % slide_ms == 0 and 0 <= row.timestamp_ms - start < size_ms
        ]
        met = watermark_ms if rank >= half else -1_000
        on_time = [start for start in starts if start + size_ms - 1 + lateness_ms > met]
        assert fates[rank] is (UNASSIGNED if not starts else ASSIGNED if on_time else LATE)
        for start in on_time:
            expected[row.key, start].append(rank)
    last = {(pane.key, pane.window.start_ms): [value[0] for value in pane.values] for pane in panes_of(outputs)}
    assert last == expected


@given(steps(max_size=30), st.integers(1, 20))
def test_running_aggregates_equal_those_of_the_kept_records(script: list[Step], size_ms: int) -> None:
    """The aggregates of a pane are those of the list of records that the same window would show."""
    for assigner in (Tumbling(size_ms=size_ms), Session(gap_ms=size_ms)):
        lists = panes_of(play(WindowSpec(assigner=assigner, function=LIST, allowed_lateness_ms=5), script)[1])
        sums = panes_of(play(WindowSpec(assigner=assigner, function=SQL, allowed_lateness_ms=5), script)[1])
        assert [pane._replace(values=()) for pane in lists] == [pane._replace(values=()) for pane in sums]
        for kept, computed in zip(lists, sums, strict=True):
            values = [value[0] for value in kept.values]
            assert computed.values == (
                sum(values), values[0], values[-1], values, max(values), float(sum(values)), len(values)
            )  # fmt: skip
            assert len(computed.values) == WIDTH
