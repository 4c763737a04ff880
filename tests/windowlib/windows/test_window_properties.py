"""Laws of the window operator for random specs and histories, in the profiles strict and flink."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from hypothesis import assume, given, reject, strategies as st

from tests.support.open_edges import open_edges
from tests.support.resuming import resume_at
from tests.support.windows import LIST, SQL, WIDTH, panes_of, specs, steps, without_position
from windowlib.bounds import wrap_int64
from windowlib.keyed.key_groups import key_group, key_group_range
from windowlib.keyed.operator_protocol import Operator
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.timers import KeyGroupRange
from windowlib.profiles import STRICT, EngineFault
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Fate, Late, Output, Pane, Record, Tally, Unassigned
from windowlib.testkit.harness import RecordStep, Step, WatermarkStep, play_step, started
from windowlib.windows.assigners import DynamicSession, Session, Sliding, Tumbling
from windowlib.windows.spec import WindowSpec


def play(spec: WindowSpec, script: Sequence[Step]) -> tuple[Operator, list[Output], list[Fate]]:
    operator = started(spec, script)
    outputs: list[Output] = []
    fates = []
    for rank, step in enumerate(script):
        fate = play_step(operator, step, rank)
        if fate is not None:
            fates.append(fate)
        outputs += operator.drain()
    return operator, outputs, fates


@given(specs(), steps(), st.data())
def test_an_operator_that_continues_from_a_snapshot_gives_the_same_outputs(
    spec: WindowSpec, script: list[Step], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(script)))
    try:
        operator, outputs, _ = play(spec, script)
    except EngineFault:
        reject()
    assert resume_at(spec, script, cut) == (outputs, operator.snapshot())


@given(specs(), steps())
def test_taking_a_snapshot_changes_nothing(spec: WindowSpec, script: list[Step]) -> None:
    operator, without_snapshots = spec.build(), spec.build()
    try:
        for rank, step in enumerate(script):
            operator.snapshot()
            play_step(operator, step, rank)
            play_step(without_snapshots, step, rank)
            if isinstance(step, RecordStep):
                assert operator.drain() == without_snapshots.drain()
                operator.snapshot()
    except EngineFault:
        reject()
    assert operator.drain() == without_snapshots.drain()
    assert operator.snapshot() == without_snapshots.snapshot()


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
        after = open_edges(operator)
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
def test_panes_of_a_window_are_numbered_and_none_follows_the_last(spec: WindowSpec, script: list[Step]) -> None:
    # In processing time the law needs a driver that sends the records of an instant before its timers; `play` does not.
    assume(spec.profile is STRICT and (spec.assigner.is_event_time or not spec.assigner.has_bounds))
    _, outputs, _ = play(spec, script)
    seen: dict[object, list[Pane]] = defaultdict(list)
    for output in outputs:
        if isinstance(output, Pane):
            seen[output.key, output.window].append(output)
    order = {"EARLY": 0, "ON_TIME": 1, "LATE": 2}
    for panes in seen.values():
        indexes = [pane.pane_index for pane in panes]  # several values of one firing share the index
        assert indexes == sorted(indexes)
        assert set(indexes) == set(range(indexes[-1] + 1))
        assert all(pane.is_first == (pane.pane_index == 0) for pane in panes)
        assert not any(pane.is_last for pane in panes if pane.pane_index < indexes[-1])
        timings = [(order[pane.timing], pane.pane_index) for pane in panes if pane.kind == "result"]
        assert [timing for timing, _ in timings] == sorted(timing for timing, _ in timings)
        assert len({index for timing, index in timings if timing == 1}) <= 1
        assert all(pane.record_count > 0 for pane in panes if pane.kind == "result")


@given(specs(), steps(keys="abcd"), st.randoms(use_true_random=False))
def test_keys_do_not_interact(spec: WindowSpec, script: list[Step], random: Random) -> None:
    """The order of the keys between two clock steps changes neither the outputs of a key nor the state."""
    shuffled: list[Step] = []
    run: list[RecordStep] = []
    for step in script:
        if isinstance(step, RecordStep):
            run.append(step)
        else:
            shuffled += [*shuffled_keys(run, random), step]
            run = []
    shuffled += shuffled_keys(run, random)
    try:
        whole, outputs, _ = play(spec, script)
        other, shuffled_outputs, _ = play(spec, shuffled)
    except EngineFault:
        reject()
    assert by_key(outputs) == by_key(shuffled_outputs)
    assert whole.snapshot() == other.snapshot()


def shuffled_keys(run: list[RecordStep], random: Random) -> list[RecordStep]:
    """Return the records in another order that keeps the order within each key."""
    queues: dict[object, list[RecordStep]] = defaultdict(list)
    for step in run:
        queues[step.record.key].append(step)
    drawn = [step.record.key for step in run]
    random.shuffle(drawn)
    return [queues[key].pop(0) for key in drawn]


@given(specs(), steps(keys="abcd"), st.lists(st.tuples(st.integers(0, 25), st.integers(1, 5)), max_size=4))
def test_any_slicing_at_any_parallelism_gives_the_outputs_of_one_run(
    spec: WindowSpec, script: list[Step], slices: list[tuple[int, int]]
) -> None:
    """Each slice has another number of operators, each with its key groups and the state of the slice before."""
    try:
        whole, outputs, _ = play(spec, script)
        found: list[Output] = []
        state, begin = started(spec, script).snapshot(), 0
        for end, parallelism in [*sorted(slices), (len(script), 2)]:
            parts = []
            for subtask in range(parallelism):
                owned = key_group_range(subtask, parallelism)
                part, emitted = play_slice(spec, script, range(begin, max(begin, end)), owned=owned, state=state)
                parts.append(part)
                found += emitted
            state, begin = joined(parts), max(begin, end)
    except EngineFault:
        reject()
    assert by_key(found) == by_key(outputs)
    assert spec_state(spec, state) == whole.snapshot()


def play_slice(
    spec: WindowSpec, script: Sequence[Step], ranks: range, *, owned: range, state: Snapshot
) -> tuple[Snapshot, list[Output]]:
    operator = started(spec, script, KeyGroupRange(owned.start, owned.stop))
    operator.restore(
        replace(
            state,
            windows=[row for row in state.windows if row.key_group in owned],
            timers=[row for row in state.timers if row.key_group in owned],
            user_state=[row for row in state.user_state if row.key_group in owned],
        )
    )
    for rank in ranks:
        step = script[rank] if rank < len(script) else None
        if step is not None and not (isinstance(step, RecordStep) and key_group(step.record.key) not in owned):
            play_step(operator, step, rank)
    return operator.snapshot(), operator.drain()


def joined(parts: Sequence[Snapshot]) -> Snapshot:
    return replace(
        parts[0],
        windows=[row for part in parts for row in part.windows],
        timers=[row for part in parts for row in part.timers],
        user_state=[row for part in parts for row in part.user_state],
    )


def spec_state(spec: WindowSpec, state: Snapshot) -> Snapshot:
    """Return the state in the order in which one operator writes it."""
    operator = spec.build()
    operator.restore(state)
    return operator.snapshot()


def by_key(outputs: Sequence[Output]) -> dict[object, list[Output]]:
    found: dict[object, list[Output]] = defaultdict(list)
    for output in outputs:
        key = output.record.key if isinstance(output, (Late, Unassigned)) else output.key
        found[key].append(without_position(output))
    return found


records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-50, 50), st.integers(1, 15)), max_size=25)
crowded = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 20), st.integers(1, 9)), min_size=3, max_size=15)


@given(crowded, st.integers(1, 9))
def test_sessions_equal_the_merged_intervals_of_the_records(drawn: list[tuple[str, int, int]], gap_ms: int) -> None:
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
            for start, end in _merged((at, at + gap) for _, at, gap in mine):
                inside = tuple((rank,) for rank, at, _ in mine if start <= at < end)
                expected.add((key, start, end, inside))
        assert {(pane.key, *pane.window, pane.values) for pane in panes} == expected
        assert len(panes) == len(expected)


def _merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of half-open intervals. Those that overlap or touch become one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


class SessionModel:
    """Sessions as sets of records: joined while they touch, fired when they end, deleted after the allowed lateness."""

    def __init__(self, lateness_ms: int) -> None:
        self.lateness_ms = lateness_ms
        self.watermark_ms = -(10**9)
        self.open: dict[str, list[frozenset[Record]]] = {"a": [], "b": []}
        self.fired: set[frozenset[Record]] = set()
        self.panes: list[tuple[str, int, int, tuple[int, ...]]] = []

    def bounds(self, session: frozenset[Record]) -> tuple[int, int]:
        starts = [(record.timestamp_ms or 0, (record.timestamp_ms or 0) + (record.gap_ms or 0)) for record in session]
        return min(start for start, _ in starts), max(end for _, end in starts)

    def record(self, record: Record, key: str) -> Fate:
        session, rest = frozenset([record]), list(self.open[key])
        while met := [other for other in rest if self.touch(session, other)]:
            session = session.union(*met)
            rest = [other for other in rest if other not in met]
        end_ms = self.bounds(session)[1]
        if end_ms - 1 + self.lateness_ms <= self.watermark_ms:
            return LATE
        self.open[key] = [*rest, session]
        if end_ms - 1 <= self.watermark_ms:
            self.fire(session, key)
        return ASSIGNED

    def touch(self, left: frozenset[Record], right: frozenset[Record]) -> bool:
        (start, end), (other_start, other_end) = self.bounds(left), self.bounds(right)
        return start <= other_end and other_start <= end

    def fire(self, session: frozenset[Record], key: str) -> None:
        self.fired.add(session)
        values = tuple(record.value[0] for record in sorted(session, key=lambda record: record.position))
        self.panes.append((key, *self.bounds(session), values))

    def watermark(self, watermark_ms: int) -> None:
        self.watermark_ms = watermark_ms
        for key, sessions in self.open.items():
            for session in sorted(sessions, key=self.bounds):
                if self.bounds(session)[1] - 1 <= watermark_ms and session not in self.fired:
                    self.fire(session, key)
            kept = [session for session in sessions if self.bounds(session)[1] - 1 + self.lateness_ms > watermark_ms]
            self.open[key] = kept


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(-20, 20), st.integers(1, 9), st.integers(0, 12)), max_size=20
    ),
    st.sampled_from([0, 3, 15]),
)
def test_dynamic_sessions_equal_those_of_a_brute_force_model(
    drawn: list[tuple[str, int, int, int]], lateness_ms: int
) -> None:
    """Compare fates and panes while the watermark rises between the records."""
    model, watermark_ms = SessionModel(lateness_ms), -25
    operator = WindowSpec(assigner=DynamicSession(), function=LIST, allowed_lateness_ms=lateness_ms).build()
    for rank, (key, at_ms, gap_ms, rise_ms) in enumerate([*drawn, ("a", 0, 1, 1_000)]):
        record = Record(key, at_ms, (rank,), (0, rank), rank, gap_ms)
        assert operator.process(record) is model.record(record, key)
        watermark_ms += max(rise_ms - 6, 0)
        operator.advance_watermark(watermark_ms)
        model.watermark(watermark_ms)
        found = [
            (pane.key, *pane.window, tuple(value[0] for value in pane.values)) for pane in panes_of(operator.drain())
        ]
        assert sorted(found, key=repr) == sorted(model.panes, key=repr)
        model.panes.clear()
    assert operator.snapshot().windows == []


@given(records, st.integers(1, 12), st.integers(1, 12), st.integers(-30, 60), st.sampled_from([0, 4]))
def test_panes_and_fates_follow_from_the_definition(
    drawn: list[tuple[str, int, int]], size_ms: int, slide_ms: int, watermark_ms: int, lateness_ms: int
) -> None:
    """Compute by set arithmetic which records are late or in which window, with one watermark in the middle."""
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
    """Compare the aggregates of a pane with those of the records that the same window lists."""
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
