"""Duplicates (`log.distinct`) in replays without Spark: which records are, and that they change nothing else."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.log_schema import validate_against_schema
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.changed_slices import changed_slices
from jobs.planning.request_context import RequestContext
from jobs.planning.steps import Ask, Reason
from jobs.reading.stored_rows import StoredRuns
from jobs.replay.sizes import Sizes
from jobs.replay.stages import duplicates as of_duplicates
from jobs.replay.stages.shuffle_files import ShuffleBatch, read_shuffled
from jobs.review.explain import explain
from jobs.review.verify_input import verify_inputs
from tests.support.compacted import compact
from tests.support.delta_logs import track_rows
from tests.support.fuzzing import seeds
from tests.support.no_spark import threads
from tests.support.replays import context_in, pipeline_of, run_range, what_was_run
from windowlib.errors import LogError, SpecError

FIRST: Final = date(2026, 1, 5)
DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
DAYS: Final = 5
SIZES: Final = Sizes(local_records=10**9)
SCHEMA: Final = pa.schema(
    [
        ("seq", pa.int64()), ("id", pa.string()), ("part", pa.int32()), ("user", pa.string()), ("at", pa.int64()),
        ("arrived", pa.int64()), ("kind", pa.string()), ("day", pa.date32()),
    ]
)  # fmt: skip
SPEC: Final = """
pipeline: NAME
log:
  table: NAME_log
  key: [user]
  event_time: {column: at, unit: ms}
  ARRIVAL
  slice: {by: day}
  COLUMNS
  where: "kind is null or kind <> 'test'"
  order: ORDER
  DISTINCT
watermark: {kind: bounded, out_of_orderness: 3h}
windows: {tumbling: {size: 5h}}
aggregates: {n: {count: {}}, total: {sum: seq}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log and how it is read. `commits` are (day, records), in the order in which they are appended."""

    by: tuple[str, ...]
    within_ms: int
    has_arrival: bool
    is_ordered_by: bool
    commits: Sequence[tuple[int, Sequence[dict[str, Any]]]]

    def pipeline(self, name: str) -> Pipeline:
        is_distinct = name != "kept"
        distinct = f"distinct: {{by: [{', '.join(self.by)}], within: {self.within_ms}ms}}" if is_distinct else ""
        arrival = "arrival_time: {column: arrived, unit: ms}" if self.has_arrival else ""
        columns = "columns: {pair: \"id || '/' || cast(part as varchar)\"}" if "pair" in self.by else ""
        text = (
            SPEC.replace("COLUMNS", columns)
            .replace("NAME", name)
            .replace("DISTINCT", distinct)
            .replace("ARRIVAL", arrival)
        )
        return pipeline_of(text.replace("ORDER", "[seq]" if self.is_ordered_by else "commits"))

    def in_log_order(self) -> list[list[dict[str, Any]]]:
        days: list[list[dict[str, Any]]] = [[] for _ in range(DAYS)]
        for day, rows in self.commits:
            days[day].extend(rows)
        return [sorted(rows, key=lambda row: row["seq"]) if self.is_ordered_by else rows for rows in days]


def start_ms(day: int) -> int:
    return ((FIRST - date(1970, 1, 1)).days + day) * DAY_MS


def record(random: Random, day: int, seq: int) -> dict[str, Any]:
    at_ms = start_ms(day) + random.randrange(-DAY_MS // 2, DAY_MS)
    return {
        "seq": seq,
        "id": random.choice((None, *"abcdefgh")),
        "part": random.choice((0, 1)),
        "user": random.choice("xyz"),
        "at": random.choice((at_ms, at_ms, at_ms, at_ms, None)),
        "arrived": start_ms(day) + random.randrange(-HOUR_MS, DAY_MS + HOUR_MS),
        "kind": random.choice((None, "click", "click", "test")),
        "day": FIRST + timedelta(days=day),
    }


def random_case(random: Random) -> Case:
    commits: list[tuple[int, list[dict[str, Any]]]] = []
    numbers = iter(random.sample(range(1_000), 400))
    empty = random.choice((None, 1, 2))
    for _ in range(random.randint(4, 9)):
        day = random.choice([day for day in range(DAYS) if day != empty])
        commits.append((day, [record(random, day, next(numbers)) for _ in range(random.randint(1, 12))]))
    has_arrival = random.random() < 0.5
    within = random.choice((1, HOUR_MS, DAY_MS, 2 * DAY_MS, 60 * HOUR_MS))
    return Case(
        by=random.choice((("id",), ("id", "part"), ("pair",))),
        within_ms=within if has_arrival else max(within, DAY_MS),
        has_arrival=has_arrival,
        is_ordered_by=random.random() < 0.5,
        commits=commits,
    )


def expected(case: Case) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the place of each duplicate -> the place of the earlier record, by the words of the documentation."""
    seen: list[tuple[list[Any], int, tuple[int, int]]] = []
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for day, rows in enumerate(case.in_log_order()):
        first_ms, last_ms = start_ms(day), start_ms(day + 1) - 1
        for rank, row in enumerate(rows):
            key = [row["id"], row["part"]] if case.by != ("id",) else [row["id"]]
            if row["kind"] == "test" or row["at"] is None or None in key:
                continue
            arrived = min(max(row["arrived"], first_ms), last_ms)
            earliest, latest = (arrived, arrived) if case.has_arrival else (first_ms, last_ms)
            same = [(then, place) for other, then, place in seen if other == key]
            if same and earliest - max(same)[0] <= case.within_ms:
                found[day, rank] = max(same)[1]
            seen.append((key, latest, (day, rank)))
    return found


def write(lake: Path, name: str, commits: Iterable[tuple[int, Sequence[dict[str, Any]]]]) -> None:
    table = str(lake / f"{name}_log")
    for _, rows in commits:
        write_deltalake(table, pa.Table.from_pylist(list(rows), SCHEMA), mode="append", partition_by=["day"])


def replay(
    lake: Path, pipeline: Pipeline, *, days: tuple[int, int] = (0, DAYS), chunk: int | None = None, sizes: Sizes = SIZES
) -> RequestOutcome:
    first, end = (str(FIRST + timedelta(days=day)) for day in days)
    return run_range(None, lake, pipeline, (first, end), chunk=chunk, sizes=sizes)


def duplicates(lake: Path, pipeline: str) -> dict[tuple[int, int], tuple[int, int]]:
    numbers = {str(FIRST + timedelta(days=day)): day for day in range(DAYS)}
    rows = DeltaTable(str(lake / pipeline / "duplicate_records")).to_pyarrow_table().to_pylist()
    return {
        (numbers[row["slice_id"]], row["rank"]): (numbers[row["earlier_slice_id"]], row["earlier_rank"]) for row in rows
    }


def contents(lake: Path, pipeline: str, table: str) -> Counter[str]:
    rows = DeltaTable(str(lake / pipeline / table)).to_pyarrow_table().to_pylist()
    places = {"attempt_id", "run_id", "rank", "fired_rank", "row_check", "record_id"}
    return Counter(json.dumps({k: v for k, v in row.items() if k not in places}, default=str) for row in rows)


def random_sizes(random: Random) -> Sizes:
    return replace(
        SIZES,
        rows_per_read=random.choice((3, 1_000)),
        records_per_task=random.choice((5, 10**6)),
        least_records=random.choice((5, 10**6)),
        combined_records=random.choice((0, 10**9)),
        distinct_records=random.choice((7, 10**6)),
        distinct_bits=random.choice((1, 2, 64)),
    )


@pytest.mark.slow
def test_duplicates_are_those_of_the_definition_and_change_nothing_else(tmp_path: Path) -> None:
    some = 0
    for seed in seeds(4):
        random, lake = Random(seed), tmp_path / str(seed)
        case = random_case(random)
        found = expected(case)
        some += len(found)
        write(lake, "all", case.commits)
        places = {id(row): (day, rank) for day, rows in enumerate(case.in_log_order()) for rank, row in enumerate(rows)}
        write(
            lake, "kept", ((day, [row for row in rows if places[id(row)] not in found]) for day, rows in case.commits)
        )
        for name in ("all", "kept"):
            track_rows(lake / f"{name}_log")
        if random.random() < 0.5:
            compact(lake / "all_log", random)
        one = replay(lake, case.pipeline("all"), chunk=random.choice((None, 1, 2)), sizes=random_sizes(random))
        replay(lake, case.pipeline("kept"))
        other = tmp_path / f"{seed}-cut"
        other.mkdir()
        (other / "all_log").symlink_to(lake / "all_log")
        cut = random.randrange(1, DAYS)
        parts = [replay(other, case.pipeline("all"), days=days, chunk=3) for days in ((0, cut), (cut, DAYS))]
        assert what_was_run(one) == [run for part in parts for run in what_was_run(part)], seed
        assert duplicates(lake, "all") == found, seed
        for table in (
            "window_outputs",
            "late_records",
            "unassigned_records",
            "invalid_records",
            "watermarks",
            "timers",
        ):
            assert contents(lake, "all", table) == contents(lake, "kept", table), (seed, table)
        counts = [run.result.counts for run in one.runs]
        assert sum(each.duplicate for each in counts) == len(found), seed
        assert all(
            each.read == each.assigned + each.late + each.unassigned + each.invalid + each.filtered + each.duplicate
            for each in counts
        ), seed
    assert some > 10


def simple(*days: Sequence[str]) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return a commit for each day, with a record for each id."""
    return [(day, [click(name, day) for name in names]) for day, names in enumerate(days)]


def click(name: str, day: int, **others: object) -> dict[str, Any]:
    own = {"seq": 0, "id": name, "part": 0, "user": "x", "at": start_ms(day) + HOUR_MS, "arrived": None}
    return {**own, "kind": None, "day": FIRST + timedelta(days=day), **others}


def by_id(within: str = "1d", *, more: str = "", slice_by: str = "day") -> Pipeline:
    text = SPEC.replace("COLUMNS", "").replace("NAME", "all").replace("ARRIVAL", "record_id: id")
    text = text.replace("DISTINCT", f"distinct: {{by: [id], within: {within}}}").replace("ORDER", "appended")
    return pipeline_of(text.replace("slice: {by: day}", f"slice: {{by: {slice_by}{more}}}"))


def work_of(lake: Path, pipeline: Pipeline) -> RequestContext:
    return context_in(lake, pipeline)


def reasons(lake: Path, pipeline: Pipeline) -> list[str]:
    work, days = work_of(lake, pipeline), (0, DAYS)
    from_ms, to_ms = (parse_bound(pipeline, str(FIRST + timedelta(days=day))) for day in days)
    slices = slices_between(pipeline, from_ms, to_ms)
    found = work.plan(work.ledger.view(), Ask(slices=slices))
    return [step.reason.value if step.is_certain else f"perhaps {step.reason.value}" for step in found.steps]


def changed(lake: Path, pipeline: Pipeline) -> list[str]:
    work = work_of(lake, pipeline)
    return [one.slice.slice_id[-1] for one in changed_slices(work, work.ledger.view())]


@pytest.mark.slow
def test_a_run_depends_on_the_slices_before_only_through_its_duplicates(tmp_path: Path) -> None:
    pipeline = by_id()
    write(tmp_path, "all", simple("a", "b", "cx", "d", "e"))
    before = what_was_run(replay(tmp_path, pipeline))
    assert duplicates(tmp_path, "all") == {}
    assert reasons(tmp_path, pipeline) == ["current"] * DAYS

    write(tmp_path, "all", [(3, [click("y", 3, kind="test")])])  # it changes neither states nor duplicates
    changes = ["current"] * 3 + ["input changed"] * 2
    assert reasons(tmp_path, pipeline) == changes
    assert changed(tmp_path, pipeline) == ["8", "9"]
    same = what_was_run(replay(tmp_path, pipeline))
    assert [one["run_id"] == two["run_id"] for one, two in zip(before, same, strict=True)] == [True] * 3 + [False, True]
    assert reasons(tmp_path, pipeline) == ["current"] * DAYS
    assert changed(tmp_path, pipeline) == []

    write(tmp_path, "all", [(1, [click("x", 1)])])  # it makes x of day 2 a duplicate
    assert reasons(tmp_path, pipeline)[:3] == ["current", "input changed", "input changed"]
    assert changed(tmp_path, pipeline) == ["6", "7"]
    after = replay(tmp_path, pipeline)
    assert [run.result.counts.duplicate for run in after.runs] == [0, 0, 1, 0, 0]
    assert what_was_run(after)[2]["input_fingerprint"] != same[2]["input_fingerprint"]
    assert what_was_run(after)[3]["input_fingerprint"] == same[3]["input_fingerprint"]
    assert duplicates(tmp_path, "all") == {(2, 1): (1, 1)}
    assert reasons(tmp_path, pipeline) == ["current"] * DAYS


def test_duplicates_in_files_with_several_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of such a file may have no record of a slice, and the duplicates of a slice are read once."""
    pipeline = by_id("2d", slice_by="stored")
    rows = [click(name, day) for day, names in ((0, "aabbcc"), (1, "abcdddd"), (2, "dx")) for name in names]
    times = [datetime.combine(row["day"], time(1), tzinfo=UTC) for row in rows]
    log = pa.Table.from_pylist(rows, SCHEMA).append_column("stored", pa.array(times, pa.timestamp("us", "UTC")))
    for start, end in ((0, 13), (13, 14), (14, 15)):
        write_deltalake(str(tmp_path / "all_log"), log.slice(start, end - start), mode="append")
    calls: list[int] = []

    def counted(batches: Iterable[ShuffleBatch]) -> Iterator[tuple[ShuffleBatch, pa.RecordBatch]]:
        calls.append(1)
        return read_shuffled(batches)

    monkeypatch.setattr(of_duplicates, "read_shuffled", counted)
    replay(tmp_path, pipeline, days=(0, 3), sizes=replace(SIZES, rows_per_read=3, records_per_task=2))
    earlier = {(0, 1): (0, 0), (0, 3): (0, 2), (0, 5): (0, 4)}
    earlier |= {(1, 0): (0, 1), (1, 1): (0, 3), (1, 2): (0, 5), (1, 4): (1, 3), (1, 5): (1, 4), (1, 6): (1, 5)}
    assert duplicates(tmp_path, "all") == {**earlier, (2, 0): (1, 6)}
    assert 3 <= len(calls) <= 3 + 1  # the buckets of one comparison, and three slices


def test_a_change_of_a_slice_before_alone_is_named(tmp_path: Path) -> None:
    pipeline = by_id("3d")
    write(tmp_path, "all", simple("a", "b", "c", "d", "x"))
    replay(tmp_path, pipeline)
    write(tmp_path, "all", [(0, [click("q", 0)]), (1, [click("x", 1)])])
    work = work_of(tmp_path, pipeline)
    last = tuple(slices_between(pipeline, *(parse_bound(pipeline, f"2026-01-{day:02}") for day in (9, 10))))
    [step] = work.plan(work.ledger.view(), Ask(slices=last)).steps
    assert step.because.startswith("3 records then, 4 now, in the slices before, which log.distinct reads")


def test_slices_before_the_first_one_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, "all", simple("x", "x", "a", "a", ""))
    pipeline = by_id("3d", more=", first: 2026-01-06")
    replay(tmp_path, pipeline, days=(1, DAYS))
    assert duplicates(tmp_path, "all") == {(3, 0): (2, 0)}
    whole = by_id("3d")
    work = work_of(tmp_path, whole)
    days = slices_between(whole, *(parse_bound(whole, f"2026-01-{day:02}") for day in (6, 10)))
    steps = work.plan(work.ledger.view(), Ask(slices=days)).steps
    why = "0 records then, 1 now, in the slices before, which log.distinct reads (log version "
    assert steps[0].because.startswith(why)
    assert [step.reason is Reason.INPUT_CHANGED for step in steps] == [True, True, True, False]


def test_records_that_do_not_count_make_no_duplicates(tmp_path: Path) -> None:
    rows = [
        click("x", 0, at=None), click("x", 0, kind="test"), click("x", 0), click("x", 0, at=None), click("x", 0),
        click("x", 0, kind="test"),
    ]  # fmt: skip
    nulls = [click("n", 0, id=None), click("n", 0, id=None)]
    write(tmp_path, "all", [(0, [*rows, *nulls])])
    [run] = replay(tmp_path, by_id(), days=(0, 1)).runs
    assert duplicates(tmp_path, "all") == {(0, 4): (0, 2)}
    counts = run.result.counts
    assert (counts.assigned, counts.invalid, counts.filtered, counts.duplicate) == (3, 2, 2, 1)


def test_a_duplicate_is_explained_verified_and_read(tmp_path: Path) -> None:
    pipeline, lake = by_id("2d"), Lake(root=str(tmp_path))
    write(tmp_path, "all", simple("ab", "", "cb", "", ""))
    outcome = replay(tmp_path, pipeline)
    work = work_of(tmp_path, pipeline)
    view = work.ledger.view()
    found = explain(lake, pipeline, "b", view=view)
    assert found.fate == "duplicate"
    assert found.is_published
    assert "in slice 2026-01-07 (place 2)" in found.sentence
    assert "with the same id arrived before it, in slice 2026-01-05 (place 2 when it was read)" in found.sentence
    assert explain(lake, pipeline, "a", view=view).fate == "assigned"
    laws = {one.check: one.message for one in outcome.runs[2].result.checks}
    assert laws["conservation"].startswith("read = assigned + late + unassigned + invalid + duplicate: 2 = 1 +")
    assert outcome.to_json()["runs"][2]["counts"]["duplicate"] == 1
    rows = StoredRuns(lake, "all", view).read("duplicate_records", outcome.runs)
    assert [row["record"]["id"] for row in rows.to_pylist()] == ["b"]
    from_ms, to_ms = (parse_bound(pipeline, str(FIRST + timedelta(days=day))) for day in (2, 3))
    planned = work.plan(view, Ask(slices=slices_between(pipeline, from_ms, to_ms)))
    session = threads()
    assert verify_inputs(session, work, planned, who="a test").equal == ("2026-01-07",)


def test_a_slice_is_refused_if_a_slice_that_it_reads_lost_records(tmp_path: Path) -> None:
    pipeline = by_id()
    write(tmp_path, "all", simple("a", "bx", "c", "d", "e"))
    replay(tmp_path, pipeline)
    DeltaTable(str(tmp_path / "all_log")).delete("id = 'x'")
    assert changed(tmp_path, pipeline) == ["6", "7"]
    with pytest.raises(LogError, match=r"commit 5 \(DELETE\) removed or changed records of slice 2026-01-06"):
        replay(tmp_path, pipeline, days=(2, 3))
    assert [run.result.slice.slice_id[-1] for run in replay(tmp_path, pipeline, days=(3, DAYS)).runs] == ["8", "9"]


def test_a_bound_inside_a_slice_needs_an_arrival_time() -> None:
    with pytest.raises(SpecError, match=r"within: 1h is shorter than a slice \(1d\).* write within: 1d or longer"):
        by_id("1h")


def test_columns_that_cannot_be_ids_are_refused() -> None:
    columns = {"id": "double", "user": "string", "at": "bigint", "kind": "string", "day": "date"}
    with pytest.raises(SpecError, match=r"log\.distinct\.by\[0\]: column 'id' is double; allowed: "):
        validate_against_schema(by_id(), columns)
