"""A log that is a table of another pipeline: each final window once, and only changed rows change a slice."""

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.durability import durable_files
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import StagedRun
from jobs.orchestration.following import slices_to_follow, stopped_readers
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.repair_range import repair_of
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.change_sentences import told_changes
from jobs.planning.plan import Plan
from jobs.planning.request_context import Asked, not_in_upstream, open_request_context
from jobs.planning.standing import due_slices, standing
from jobs.planning.steps import Ask, Reason
from jobs.publishing.decisions import rollback
from jobs.publishing.publishing import publish_request
from jobs.reading import upstream_place
from jobs.reading.published import read_published, read_published_table
from jobs.reading.upstream_place import UpstreamPlace
from jobs.reading.verified_log import verify_log
from jobs.reading.verify import Span
from jobs.replay.orders import ReplayOrder
from jobs.replay.sizes import Sizes
from jobs.review.pages.lineage import lineage_of
from jobs.runs import RunResult
from tests.jobs.orchestration.test_late_repair import random_pipeline, repair, run_days
from tests.jobs.replay.test_without_spark import DAY_MS, DAYS, FIRST, days, make_log
from tests.support import day_chains
from tests.support.delta_logs import change_bounds
from tests.support.fuzzing import seeds
from tests.support.replays import NOW_MS, context_in, pipeline_of, run_range
from tests.support.waiving import waive_newest
from windowlib.errors import LogError, RequestError, SpecError

HOUR_MS: Final = 3_600_000
EPOCH: Final = date(1970, 1, 1)
SIZES: Final = Sizes(local_records=10**9)
LATE: Final = "  table: late_records\n"
WINDOWS: Final = (
    "tumbling: {size: 5h}",
    "tumbling: {size: 30h}\n  allowed_lateness: 20h",
    "sliding: {size: 30h, slide: 10h}\n  allowed_lateness: 9h",
    "session: {gap: 6h}\n  allowed_lateness: 12h",
    "tumbling: {size: 20h}\n  allowed_lateness: 15h\n  accumulation: discarding",
    "tumbling: {size: 9h}\n  time: processing",
)


def upstream(random: Random, windows: str | None = None, *, total: str = "total") -> Pipeline:
    return pipeline_of(upstream_text(random, windows, total=total))


def upstream_text(random: Random, windows: str | None = None, *, total: str = "total") -> str:
    return (
        "pipeline: hours\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
        "  arrival_time: {column: at, unit: ms}\n  slice: {by: day}\n  order: appended\n"
        f"watermark: {{kind: bounded, out_of_orderness: {random.choice(('0s', '6h'))}}}\n"
        f"windows:\n  {windows or random.choice(WINDOWS)}\n"
        f"aggregates: {{n: {{count: {{}}}}, {total}: {{sum: v}}, all: {{collect_list: v}}}}\n"
    )


def downstream(more: str = "", *, name: str = "days", reads: str = "hours", column: str = "window_time") -> Pipeline:
    aggregates = "{records: {count: {}}}" if more else "{windows: {count: {}}, n: {sum: n}, total: {sum: total}}"
    return pipeline_of(
        f"pipeline: {name}\nlog:\n  pipeline: {reads}\n  key: [k]\n  event_time: {{column: {column}}}\n{more}"
        f"watermark: {{kind: ascending}}\nwindows:\n  tumbling: {{size: 1d}}\naggregates: {aggregates}\n"
    )


def run(lake: Path, pipeline: Pipeline, first: int, last: int) -> RequestOutcome:
    return run_range(None, lake, pipeline, days(first, last), sizes=SIZES)


def records_of(lake: Path, reader: Pipeline, *, slices_at_once: int = 64) -> dict[str, list[dict[str, Any]]]:
    """The records of each slice of a log, in log order."""
    version = UpstreamPlace(lake=Lake(root=str(lake)), pipeline=reader, slices_at_once=slices_at_once).open()
    root = version.listing.root
    return {
        str(file.partition["slice_id"]): pq.read_table(f"{root}/{file.path}").to_pylist() for file in version.files()
    }


def window_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["k"], row["window_start"], row["window_end"]


def is_final(pipeline: Pipeline, row: dict[str, Any], run_: StagedRun, end_ms: int) -> bool:
    windows = pipeline.windows
    assert windows is not None
    if windows.is_processing_time:
        return int(row["window_end"].timestamp() * 1_000) <= end_ms
    at_ms = int(row["window_end"].timestamp() * 1_000) - 1 + windows.allowed_lateness_ms
    return run_.result.watermark_ms is not None and at_ms <= run_.result.watermark_ms


def check_records(
    lake: Path, pipeline: Pipeline, slices: dict[str, list[dict[str, Any]]], outputs: Sequence[str] = ("n", "total")
) -> dict[Any, Any]:
    """Return window -> values of the records of slices, which are the published windows that are final, each once."""
    view = Ledger(Lake(root=str(lake)).ledger(pipeline.name), now_ms=lambda: NOW_MS).view()
    head = view.run([*view.published.values()][-1])
    published = read_published(Lake(root=str(lake)), pipeline.name, view).to_pylist()
    final = [row for row in published if is_final(pipeline, row, head, head.result.slice.end_ms)]
    rows, records = (
        [(window_of(row), [row[name] for name in outputs]) for row in own]
        for own in (final, [record for own in slices.values() for record in own])
    )
    assert sorted(rows) == sorted(records)
    return dict(records)


@pytest.mark.slow
def test_each_window_is_one_record_of_the_first_slice_after_which_nothing_changes_it(tmp_path: Path) -> None:
    """For random windows and logs: the records are the published windows that are final, and stay as the log grows."""
    placed = Counter[bool]()
    for seed in seeds(2):
        random, lake = Random(seed), tmp_path / str(seed)
        lake.mkdir()
        for day in range(DAYS):
            append(lake / "log", random, day=day, most=8)
        pipeline, reader = upstream(random), downstream()
        before: dict[str, list[dict[str, Any]]] = {}
        for first, last in ((0, 2), (2, 3), (3, DAYS)):
            run(lake, pipeline, first, last)
            view = Ledger(Lake(root=str(lake)).ledger("hours"), now_ms=lambda: NOW_MS).view()
            now = records_of(lake, reader, slices_at_once=random.choice((1, 2, 64)))
            assert before.items() <= now.items(), seed
            before = now
            runs = [view.run(run_id) for run_id in view.published.values()]
            assert [*now] == [own.result.slice.slice_id for own in runs], seed
            check_records(lake, pipeline, now, outputs=("n", "total", "all"))
            for own, rows in zip(runs, now.values(), strict=True):
                assert all(is_final(pipeline, row, own, own.result.slice.end_ms) for row in rows), seed
                keys = [(row["window_end"], row["window_start"], row["row_id"]) for row in rows]
                assert keys == sorted(keys), seed
                placed[bool(rows)] += 1
            for earlier, rows in zip(runs[:-1], [*now.values()][1:], strict=True):
                assert not any(is_final(pipeline, row, earlier, earlier.result.slice.end_ms) for row in rows), seed
        change_bounds(lake / "hours" / "window_outputs", "maxValues", "window_end", "1960-01-01T00:00:00.000Z")
        assert records_of(lake, reader) == before, f"{seed}: damaged statistics hide panes of earlier slices"
    assert placed[True] > 10


def test_the_files_of_a_group_of_slices_are_awaited_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: each file was awaited alone, so the first plan of a long log took longer by 3 ms for each slice."""
    append(tmp_path / "log", Random(0), day=0)
    append(tmp_path / "log", Random(0), day=DAYS - 1)
    run(tmp_path, upstream(Random(0), WINDOWS[0]), 0, DAYS)
    contexts = Mock(side_effect=durable_files)
    monkeypatch.setattr(upstream_place, "durable_files", contexts)
    assert len(records_of(tmp_path, downstream(), slices_at_once=2)) == DAYS
    assert contexts.call_count == -(-DAYS // 2) + 1, "one for each group, and one for the index"


@pytest.mark.slow
def test_a_correction_changes_exactly_the_slices_whose_rows_change(tmp_path: Path) -> None:
    """For random late commits: the plan names the slices with other rows, and the runs are those of a new lake."""
    changed_slices = equal_slices = 0
    for seed in seeds(3):
        random, lake, fresh = Random(seed), tmp_path / str(seed), tmp_path / f"{seed}-fresh"
        lake.mkdir()
        for day in range(DAYS):
            append(lake / "log", random, day=day, most=8)
        pipeline, reader = upstream(random), downstream()
        run(lake, pipeline, 0, DAYS)
        first = run(lake, reader, 0, DAYS).to_json()["runs"]
        before = records_of(lake, reader)
        append(lake / "log", random, day=random.randrange(DAYS - 1))
        run(lake, pipeline, 0, DAYS)
        after = records_of(lake, reader)
        plan = plan_of(lake, reader)
        moved = {slice_id for slice_id in after if before[slice_id] != after[slice_id]}
        assert {step.slice.slice_id for step in plan.steps if step.reason is Reason.INPUT_CHANGED} == moved, seed
        changed_slices += len(moved)
        equal_slices += len(after) - len(moved)
        second = run(lake, reader, 0, DAYS).to_json()["runs"]
        fresh.mkdir()
        (fresh / "log").symlink_to(lake / "log")
        run(fresh, pipeline, 0, DAYS)
        assert ids(run(fresh, reader, 0, DAYS).to_json()["runs"]) == {**ids(first), **ids(second)}, seed
    assert changed_slices
    assert equal_slices


def ids(runs: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {own["slice_id"]: own["run_id"] for own in runs}


def plan_of(lake: Path, pipeline: Pipeline, last: int = DAYS) -> Plan:
    place = Lake(root=str(lake))
    work = open_request_context(pipeline, place, now_ms=lambda: NOW_MS)
    bounds = [parse_bound(pipeline, text) for text in days(0, last)]
    return work.plan(work.ledger.view(), Ask(slices=slices_between(pipeline, *bounds)))


def append(place: Path, random: Random, *, day: int, most: int = 2) -> None:
    """Append records of a day in one commit. They are up to half a day late."""
    start_ms = (FIRST - EPOCH).days * DAY_MS + day * DAY_MS
    rows = [
        {
            "k": random.randrange(4),
            "at": start_ms + random.randrange(-DAY_MS // 2, DAY_MS),
            "v": random.randrange(9),
            "day": FIRST + timedelta(days=day),
        }
        for _ in range(random.randint(1, most))
    ]
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64()), ("day", pa.date32())])
    write_deltalake(str(place), pa.Table.from_pylist(rows, schema), mode="append", partition_by=["day"])


@pytest.mark.slow
def test_windows_that_a_repair_fired_again_have_the_values_that_readers_see(tmp_path: Path) -> None:
    """For random logs and windows. Without statistics, each slice has the same ones."""
    fired_again = 0
    for seed in seeds(2):
        random, root = Random(seed), tmp_path / str(seed)
        make_log(root / "log", random, keys=[*range(5)], share=0.9)
        work = context_in(root, random_pipeline(random))
        run_days(work, 0, DAYS - 1)
        reader, pipeline = downstream(name="reader", reads="late"), work.pipeline
        before = check_records(root, pipeline, records_of(root, reader))
        every = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
        day = random.choice(every.late).slice
        try:
            repair(work, repair_of(work, from_ms=day.start_ms, to_ms=day.end_ms, at_most_ms=None))
        except RequestError:  # sessions that are still open
            continue
        run_days(work, DAYS - 1, DAYS)
        records = records_of(root, reader)
        after = check_records(root, pipeline, records)
        fired_again += sum(after[window] != values for window, values in before.items())
        change_bounds(root / "late" / "window_outputs", "maxValues", "window_end", "1960-01-01T00:00:00.000Z")
        assert records_of(root, reader) == records, seed
        DeltaTable(root / "late" / "window_outputs").optimize.z_order(["window_start"])
        assert records_of(root, reader) == records, seed
    assert fired_again


@pytest.mark.slow
@pytest.mark.parametrize("other", [["k"], ["j", "k"]], ids=["fewer", "swapped"])
def test_windows_of_specs_with_other_keys_are_not_one_window(tmp_path: Path, other: list[str]) -> None:
    """For random logs: slices after an adoption of other keys have the last windows of the former spec.

    Defects: windows were one whose common keys are equal; and keys in another order made two windows of one.
    """
    fired_again = 0
    for seed in seeds(3):
        random, lake = Random(seed), tmp_path / str(seed)
        for day in range(DAYS):
            append(lake / "log", random, day=day, most=20)
        keys = [["k", "j"], other]
        random.shuffle(keys)
        wide = "tumbling: {size: 6h}\n  allowed_lateness: 20h"
        text = upstream_text(random, wide).replace("key: [k]", "key: [KEYS]\n  columns: {j: v % 3}")
        former, new = (pipeline_of(text.replace("KEYS", ", ".join(own))) for own in keys)
        run(lake, former, 0, 3)
        before = records_of(lake, downstream())
        outcome = run_range(None, lake, new, days(3, DAYS), sizes=SIZES, warms_up=True)
        if not outcome.is_published:  # the check of the border holds windows with other keys
            waive_newest(work := context_in(lake, new), days(3, DAYS)[0], reason="new keys", who="ann")
            assert publish_request(work, outcome.request_id, who="ann").is_published
        records = records_of(lake, downstream())
        assert before.items() <= records.items(), seed
        check_records(lake, new, records)
        view = Ledger(Lake(root=str(lake)).ledger("hours"), now_ms=lambda: NOW_MS).view()
        shown = Counter(
            (row["j"], *window_of(row)) for row in read_published(Lake(root=str(lake)), "hours", view).to_pylist()
        )
        assert set(shown.values()) == {1}, seed
        fired_again += sum(row.get("j") is not None for own in [*records.values()][3:] for row in own)
    assert fired_again


@pytest.mark.slow
def test_the_windows_of_a_slice_stay_its_own_after_optimize(tmp_path: Path) -> None:
    place = day_chains.Place(tmp_path)
    for day in range(5):
        place.put(*(day_chains.Put(day, 24 * day + hour) for hour in (1, 5, 9, 20)))
    place.put(day_chains.Put(2, 46), day_chains.Put(3, 54))
    day_chains.run(place.work(), 0, 5)
    day_chains.repair(place.work(), 2, 4)
    reader = downstream(name="reader", reads="late")
    before = records_of(tmp_path, reader)
    DeltaTable(tmp_path / "late" / "window_outputs").optimize.z_order(["window_start"])
    assert records_of(tmp_path, reader) == before


@pytest.mark.parametrize("is_optimized", [False, True])
def test_windows_without_an_end_are_refused_with_what_to_write(tmp_path: Path, *, is_optimized: bool) -> None:
    place = day_chains.Place(tmp_path)
    place.put(*(day_chains.Put(0, hour) for hour in (1, 5, 6)))
    text = place.text().replace("  tumbling: {size: 2h}\n  allowed_lateness: 0s\n", "  count: {size: 2}\n")
    work = replace(place.work(), pipeline=pipeline_of(text))
    day_chains.run(work, 0, 1)
    if is_optimized:
        DeltaTable(tmp_path / "late" / "window_outputs").optimize.z_order(["total"])
    with pytest.raises(LogError, match="Write panes: all"):
        records_of(tmp_path, downstream(name="reader", reads="late"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    random = Random(3)
    for day in range(DAYS):
        append(tmp_path / "log", random, day=day, most=8)
    return tmp_path


@pytest.mark.slow
def test_all_panes_are_the_rows_of_the_slice_that_fired_them(lake: Path) -> None:
    random = Random(5)
    run(lake, upstream(random, "tumbling: {size: 2d}\n  trigger: {continuous: {every: 3h}}"), 0, DAYS)
    view = Ledger(Lake(root=str(lake)).ledger("hours"), now_ms=lambda: NOW_MS).view()
    rows = read_published_table(Lake(root=str(lake)), "hours", "window_outputs", view=view).to_pylist()
    records = records_of(lake, downstream("  panes: all\n"))
    for slice_id, own in records.items():
        expected = [row["row_id"] for row in rows if row["slice_id"] == slice_id]
        assert sorted(record["row_id"] for record in own) == sorted(expected)
        places = [(record["fired_rank"], record["pane_index"], record["row_id"]) for record in own]
        assert places == sorted(places)
    assert len(rows) > read_published(Lake(root=str(lake)), "hours", view).num_rows
    outcome = run(lake, downstream("  panes: all\n"), 0, DAYS)
    assert sum(own["counts"]["read"] for own in outcome.to_json()["runs"]) == len(rows)


@pytest.mark.slow
def test_a_side_table_is_a_log_of_its_records(lake: Path) -> None:
    random = Random(5)
    run(lake, upstream(random, "tumbling: {size: 3h}"), 0, DAYS)
    view = Ledger(Lake(root=str(lake)).ledger("hours"), now_ms=lambda: NOW_MS).view()
    late = read_published_table(Lake(root=str(lake)), "hours", "late_records", view=view).to_pylist()
    reader = downstream(LATE, column="at, unit: ms")
    records = records_of(lake, reader)
    assert sum(map(len, records.values())) == len(late) > 0
    expected = sorted(str((row["record"]["at"], row["record"]["v"], row["late_by_ms"])) for row in late)
    assert sorted(str((row["at"], row["v"], row["late_by_ms"])) for own in records.values() for row in own) == expected
    outcome = run(lake, reader, 0, DAYS)
    assert sum(own["counts"]["read"] for own in outcome.to_json()["runs"]) == len(late)


@pytest.mark.slow
def test_columns_with_names_of_hindcast_through_three_pipelines(tmp_path: Path) -> None:
    """Side records are in the order of the log that they are from, whatever columns it has, and lose none of them."""
    random = Random(5)
    for day in range(DAYS):
        append(tmp_path / "plain", random, day=day, most=20)
    rows = DeltaTable(str(tmp_path / "plain")).to_pyarrow_table().sort_by("day")
    number = pa.array([random.randrange(10**6) for _ in range(rows.num_rows)], pa.int64())
    for name in ("Rank", "slice_id", "window_end", "window_time"):
        rows = rows.append_column(name, number.cast(pa.string()) if name == "window_end" else number)
    write_deltalake(str(tmp_path / "log"), rows, partition_by=["day"])
    run(tmp_path, upstream(random, "tumbling: {size: 1h}"), 0, DAYS)
    named = {"Rank": "record_Rank", "slice_id": "record_slice_id"} | {name: name for name in ("window_end", "v")}
    for name, reads in (("second", "hours"), ("third", "second")):
        view = Ledger(Lake(root=str(tmp_path)).ledger(reads), now_ms=lambda: NOW_MS).view()
        late = read_published_table(Lake(root=str(tmp_path)), reads, "late_records", view=view).to_pylist()
        late.sort(key=lambda row: (row["slice_id"], row["rank"]))
        reader = downstream(LATE, name=name, reads=reads, column="at, unit: ms")
        records = [record for own in records_of(tmp_path, reader).values() for record in own]
        of_log = named if reads == "hours" else dict.fromkeys([*named.values(), "window_time"])
        assert [[record[there or own] for own, there in of_log.items()] for record in records] == [
            [row["record"][own] for own in of_log] for row in late
        ]
        outcome = run(tmp_path, reader, 0, DAYS)
        assert sum(own["counts"]["read"] for own in outcome.to_json()["runs"]) == len(late) > 5


@pytest.mark.slow
def test_a_window_time_that_is_no_windows_own_is_refused(lake: Path) -> None:
    run(lake, upstream(Random(5), "tumbling: {size: 5h}"), 0, DAYS)
    by_time = pipeline_of(
        "pipeline: by_time\nlog:\n  pipeline: hours\n  key: [window_time]\n  event_time: {column: window_time}\n"
        "watermark: {kind: ascending}\nwindows:\n  tumbling: {size: 1d}\naggregates: {n: {sum: n}}\n"
    )
    run(lake, by_time, 0, DAYS)
    with pytest.raises(LogError, match=r"windows of pipeline by_time have a key or an output 'window_time'"):
        plan_of(lake, downstream(name="third", reads="by_time"))


@pytest.mark.slow
def test_the_cached_files_are_made_again_with_the_same_rows(lake: Path) -> None:
    run(lake, upstream(Random(5), "tumbling: {size: 5h}"), 0, DAYS)
    run(lake, downstream(), 0, DAYS)
    place = UpstreamPlace(lake=Lake(root=str(lake)), pipeline=downstream())
    before = place.open().files()
    shutil.rmtree(place.uri)
    assert [step.reason for step in plan_of(lake, downstream()).steps] == [Reason.CURRENT] * DAYS
    assert place.open().files() == before
    (Path(place.uri) / "_index.json").write_text("{ damaged")
    next(Path(place.uri).glob("*/*.parquet")).unlink()
    assert place.open().files() == before
    assert [step.reason for step in plan_of(lake, downstream()).steps] == [Reason.CURRENT] * DAYS


@pytest.mark.slow
def test_the_cached_files_are_made_again_after_the_log_has_got_a_column(lake: Path) -> None:
    """The stored records of the slices before have the column since, as null. Their rows are the same."""
    hours, reader = upstream(Random(5), "tumbling: {size: 3h}"), downstream(LATE, column="at, unit: ms")
    run(lake, hours, 0, DAYS - 1)
    run(lake, reader, 0, DAYS - 1)
    log = DeltaTable(str(lake / "log")).to_pyarrow_table()
    last = log.filter(pc.equal(log["day"], FIRST + timedelta(days=DAYS - 1)))
    added = last.append_column("more", pa.nulls(last.num_rows, pa.int64()))
    write_deltalake(str(lake / "log"), added, mode="append", partition_by=["day"], schema_mode="merge")
    run(lake, hours, DAYS - 1, DAYS)
    place = UpstreamPlace(lake=Lake(root=str(lake)), pipeline=reader)
    before = place.open()
    shutil.rmtree(place.uri)
    assert [step.reason for step in plan_of(lake, reader).steps][:-1] == [Reason.CURRENT] * (DAYS - 1)
    assert place.open() == before
    assert before.nodes["more"] == "long", "no late record has a value"
    assert run(
        lake, downstream(f"{LATE}  where: more is null\n", name="all", column="at, unit: ms"), 0, DAYS
    ).is_published


@pytest.mark.slow
def test_all_chunks_of_a_request_read_one_version_of_the_other_ledger(tmp_path: Path) -> None:
    """Defect: a repair between two chunks moved a window to a later slice, and it was in two slices of the reader."""
    place = day_chains.Place(tmp_path)
    for day in range(4):
        place.put(*(day_chains.Put(day, 24 * day + hour) for hour in (1, 9, 20)))
    place.put(day_chains.Put(2, 24 + 9.5, 100))
    day_chains.run(place.work(), 0, 4)
    reader = downstream(name="reader", reads="late")
    before = records_of(tmp_path, reader)
    read = list[int | None]()

    def replay(order: ReplayOrder) -> list[RunResult]:
        results = day_chains.replayed(order)
        read.append(order.log_version)
        if len(read) == 2:
            day_chains.repair(place.work())
        return results

    from_ms = day_chains.FIRST_MS
    asked = Asked(from_ms=from_ms, to_ms=from_ms + 4 * DAY_MS, who="ann", reason="")
    assert run_request(context_in(tmp_path, reader), asked, replay, staging=Staging(chunk=1)).is_published
    assert len(read) == 4
    assert len({*read}) == 1
    windows = [len(rows) for rows in before.values()]
    assert [len(rows) for rows in records_of(tmp_path, reader).values()] != windows
    view = Ledger(Lake(root=str(tmp_path)).ledger("reader"), now_ms=lambda: NOW_MS).view()
    assert [view.run(run_id).result.counts.read for run_id in view.published.values()] == windows


@pytest.mark.slow
def test_slices_that_the_other_pipeline_has_not_published_are_refused(lake: Path) -> None:
    with pytest.raises(LogError, match="pipeline hours has published nothing"):
        plan_of(lake, downstream())
    run(lake, upstream(Random(5), "tumbling: {size: 5h}"), 0, 3)
    run(lake, downstream(), 0, 3)
    with pytest.raises(RequestError, match=r"cannot read 2 slices of its log hours/window_outputs, 1970-01-08"):
        run(lake, downstream(), 0, DAYS)
    work = context_in(lake, downstream())
    stands = standing(work, work.ledger.view(), until_ms=(FIRST - EPOCH).days * DAY_MS + DAYS * DAY_MS)
    assert (stands.ready, [slice_.slice_id for slice_ in stands.due]) == ((), ["1970-01-08", "1970-01-09"])
    assert stands.waiting is not None
    assert "1970-01-08 is not complete: pipeline hours has not published it" in stands.waiting.line(NOW_MS)
    run(lake, upstream(Random(5), "tumbling: {size: 5h}"), 3, 4)
    ready = standing(work, work.ledger.view(), until_ms=(FIRST - EPOCH).days * DAY_MS + DAYS * DAY_MS).ready
    assert [slice_.slice_id for slice_ in ready] == ["1970-01-08"]


@pytest.mark.slow
def test_an_upstream_that_has_rolled_back_all_is_told_and_no_damage(lake: Path) -> None:
    """Defects: its readers were told that no published slice has changed, and `verify` stopped the clean-up."""
    hours, work = upstream(Random(5), "tumbling: {size: 5h}"), context_in(lake, downstream())
    run(lake, hours, 0, 3)
    run(lake, downstream(), 0, 3)
    theirs = context_in(lake, hours)
    seq = theirs.ledger.view().standing[-1].seq
    rollback(theirs, publication=seq, who="ann", reason="wrong")
    told = told_changes(work, work.ledger.view())
    assert told.slices is None
    assert "not compared with the log: pipeline hours has published nothing" in told.sentences[0]
    assert not_in_upstream(work, work.ledger.view(), staged=["1970-01-08"]) == {
        f"1970-01-0{day}" for day in (5, 6, 7, 8)
    }
    verified = verify_log(work.lake, work.pipeline, work.ledger.view(), span=Span())
    assert not verified.findings
    assert str(verified).startswith("the log was not compared: pipeline hours has published nothing")


@pytest.mark.slow
def test_slices_without_a_column_that_the_reader_names_are_refused(lake: Path) -> None:
    hours = upstream(Random(5), "tumbling: {size: 5h}")
    renamed = upstream(Random(5), "tumbling: {size: 5h}", total="sum_of_v")
    last, readers = DAYS - 2, (downstream(), downstream("  where: total > 0\n", name="expression"))
    run(lake, hours, 0, last)
    run(lake, downstream(), 0, last)
    assert not [*stopped_readers(readers, Lake(root=str(lake)), before=hours, after=hours)]
    warned = [*stopped_readers(readers, Lake(root=str(lake)), before=hours, after=renamed)]
    assert [line.partition(" of hours")[0] for line in warned] == [f"pipeline {r.name} names total" for r in readers]
    run_range(None, lake, renamed, days(last, DAYS), sizes=SIZES, is_fresh=True)
    for reader in readers:
        with pytest.raises(
            RequestError, match=r"cannot read 2 slices of its log.* has no column total \(it has all, k"
        ):
            run_range(None, lake, reader, days(last, DAYS), sizes=SIZES, is_fresh=True)
    assert [step.reason for step in plan_of(lake, downstream(), last).steps] == [Reason.CURRENT] * last
    assert run(lake, downstream("  where: n > 0\n", name="other"), 0, DAYS).is_published, "it does not name the column"
    run_range(None, lake, renamed, days(1, DAYS), sizes=SIZES, is_fresh=True)
    work = context_in(lake, downstream())
    told = " ".join(told_changes(work, work.ledger.view()).sentences)
    assert re.search(r"not proposed, because slice 1970-01-0\d cannot be read: pipeline hours has published it", told)
    assert "hindcast run" not in told, "it would be refused"


def test_a_run_without_rows_lets_no_slice_pass_that_lacks_a_column_and_stops_none(lake: Path) -> None:
    """Windows of 30 hours: the first run has fired none. It is a part of every later slice, with the old spec."""
    windows, last = "tumbling: {size: 30h}", DAYS - 2
    run(lake, upstream(Random(5), windows), 0, last)
    run_range(None, lake, upstream(Random(5), windows, total="sum_of_v"), days(last, DAYS), sizes=SIZES, is_fresh=True)
    view = context_in(lake, upstream(Random(5), windows)).ledger.view()
    empty = [not view.run(run_id).result.counts.panes for run_id in view.published.values()]
    assert empty[0]
    names = downstream("  where: sum_of_v > 0\n")
    with pytest.raises(RequestError, match=r"has no column sum_of_v \(it has all, k"):
        run(lake, names, 0, DAYS)
    reasons = UpstreamPlace(lake=Lake(root=str(lake)), pipeline=names).open().missing([*view.slices.values()])
    assert "1970-01-05" not in reasons, "it has no record"
    assert "1970-01-06" in reasons
    assert "1970-01-09" not in reasons, "all its records are of the new spec"


def test_an_upstream_that_does_not_fit_is_refused(lake: Path) -> None:
    run(lake, upstream(Random(5), "count: {size: 3}"), 0, DAYS)
    with pytest.raises(LogError, match=r"no windows that end by the time of its records.*Write panes: all"):
        plan_of(lake, downstream())
    run(lake, downstream("  panes: all\n"), 0, DAYS)
    with pytest.raises(SpecError, match=r"found \{every: 1h, timezone: UTC\}, allowed: \{every: 1d, timezone: UTC\}"):
        plan_of(lake, downstream("  panes: all\n  slice: {every: 1h}\n", name="other"))
    with pytest.raises(LogError, match="has no table side_outputs_none yet"):
        plan_of(lake, downstream("  table: side_outputs_none\n", name="other"))
    with pytest.raises(SpecError, match="hours -> days -> hours"):
        plan_of(lake, downstream("  panes: all\n", name="hours", reads="days"))


@pytest.mark.slow
def test_hourly_slices_and_a_chain_of_three_pipelines(tmp_path: Path) -> None:
    rows = [{"k": hour % 2, "at": hour * HOUR_MS, "v": hour, "dt": day_and_hour(hour)} for hour in range(30)]
    for row in rows:
        write_deltalake(str(tmp_path / "log"), pa.Table.from_pylist([row]), mode="append", partition_by=["dt"])
    by = "every: 1h"
    first = pipeline_of(
        "pipeline: one\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
        f"  slice: {{by: dt, {by}}}\n  order: appended\nwatermark: {{kind: ascending}}\n"
        "windows:\n  tumbling: {size: 2h}\naggregates: {n: {count: {}}, total: {sum: v}}\n"
    )
    more = f"  slice: {{{by}}}\n"
    chain = [first, counting("two", "one", more, size="4h"), counting("three", "two", more, size="8h")]
    for pipeline in chain:
        run_range(None, tmp_path, pipeline, ("1970-01-01T00:00", "1970-01-02T06:00"), sizes=SIZES)
    view = Ledger(Lake(root=str(tmp_path)).ledger("three"), now_ms=lambda: NOW_MS).view()
    windows = read_published(Lake(root=str(tmp_path)), "three", view).to_pylist()
    totals = {window["window_start"].hour: 0 for window in windows}
    for window in windows:
        totals[window["window_start"].hour] += window["total"]
    assert totals == {0: sum(range(8)), 8: sum(range(8, 16))}


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [("12h", "6h"), ("6h", "12h"), ("1d", "12h")])
def test_an_upstream_that_goes_on_with_slices_of_another_length(tmp_path: Path, before: str, after: str) -> None:
    """Defect: no command could go on with its reader, and none told that before the adoption."""
    rows = [{"k": hour % 2, "at": hour * HOUR_MS, "v": hour, "dt": day_and_hour(hour)} for hour in range(96)]
    write_deltalake(str(tmp_path / "log"), pa.Table.from_pylist(rows), partition_by=["dt"])
    by = "  slice: {by: dt, every: EVERY}\n  order: [v]\n"
    text = (
        "pipeline: one\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
        f"{by}watermark: {{kind: ascending}}\nwindows:\n  tumbling: {{size: 2h}}\n"
        "aggregates: {n: {count: {}}, total: {sum: v}}\n"
    )
    one, other = (pipeline_of(text.replace("EVERY", every)) for every in (before, after))
    reader, adopted = (counting("two", "one", f"  slice: {{every: {every}}}\n", size="8h") for every in (before, after))
    border = "1970-01-03T00:00"
    run_range(None, tmp_path, one, ("1970-01-01T00:00", border), sizes=SIZES)
    run_range(None, tmp_path, reader, ("1970-01-01T00:00", border), sizes=SIZES)
    is_readable = before != "6h"
    warned = [*stopped_readers((reader,), Lake(root=str(tmp_path)), before=one, after=other)]
    assert ["cannot read those of" in line for line in warned] == ([] if is_readable else [True])
    run_range(None, tmp_path, other, (border, "1970-01-05T00:00"), sizes=SIZES, warms_up=True)
    slices, warnings = slices_to_follow(context_in(tmp_path, reader))
    assert slices[-1].end_ms == (4 if is_readable else 2) * DAY_MS
    assert ["cannot read those of" in line for line in warnings] == ([] if is_readable else [True])
    if is_readable:
        run_range(None, tmp_path, reader, (border, "1970-01-05T00:00"), sizes=SIZES)
        work = context_in(tmp_path, reader)
        assert not not_in_upstream(work, work.ledger.view())
    else:
        with pytest.raises(RequestError, match=f"published its time in slices of {after}"):
            run_range(None, tmp_path, reader, (border, "1970-01-05T00:00"), sizes=SIZES)
        run_range(None, tmp_path, adopted, (border, "1970-01-05T00:00"), sizes=SIZES, warms_up=True)
        work = context_in(tmp_path, adopted)
        assert slices_to_follow(work)[0][0].start_ms == 2 * DAY_MS
        assert told_changes(work, work.ledger.view()).slices == ()
    view = Ledger(Lake(root=str(tmp_path)).ledger("two"), now_ms=lambda: NOW_MS).view()
    windows = read_published(Lake(root=str(tmp_path)), "two", view).to_pylist()
    totals = Counter[int]()
    for window in windows:
        totals[int(window["window_start"].timestamp()) // 3_600] += window["total"]
    assert totals == {hour: sum(range(hour, hour + 8)) for hour in range(0, 88, 8)}


@pytest.mark.slow
def test_a_reader_may_have_longer_slices_than_all_that_its_upstream_publishes(tmp_path: Path) -> None:
    """Defect: without one slice of its own length, the reader was refused, and `status` took it for broken."""
    rows = [{"k": hour % 2, "at": hour * HOUR_MS, "v": hour, "dt": day_and_hour(hour)} for hour in range(48)]
    write_deltalake(str(tmp_path / "log"), pa.Table.from_pylist(rows), partition_by=["dt"])
    one = pipeline_of(
        "pipeline: one\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
        "  slice: {by: dt, every: 6h}\n  order: [v]\nwatermark: {kind: ascending}\nwindows:\n  tumbling: {size: 2h}\n"
        "aggregates: {n: {count: {}}, total: {sum: v}}\n"
    )
    half = "  slice: {every: 12h}\n"
    bounds, reader = ("1970-01-01T00:00", "1970-01-03T00:00"), counting("two", "one", half, size="8h")
    run_range(None, tmp_path, one, ("1970-01-01T00:00", "1970-01-02T06:00"), sizes=SIZES)
    with pytest.raises(RequestError, match="1970-01-02T00, 1970-01-02T12: pipeline one has not published it"):
        run_range(None, tmp_path, reader, bounds, sizes=SIZES)
    run_range(None, tmp_path, one, ("1970-01-02T06:00", "1970-01-03T00:00"), sizes=SIZES)
    assert run_range(None, tmp_path, reader, bounds, sizes=SIZES).is_published
    work = context_in(tmp_path, reader)
    rows = read_published(work.lake, "two", work.ledger.view()).to_pylist()
    totals = {(row["k"], int(row["window_start"].timestamp()) // 3_600): row["total"] for row in rows}
    assert totals == {(k, hour): sum(range(hour + k, hour + 8, 2)) for k in range(2) for hour in range(0, 40, 8)}
    assert not not_in_upstream(work, work.ledger.view())
    head = work.ledger.view().head
    assert head is not None
    read = lineage_of(work.lake, reader, work.ledger.view(), run=head).upstream
    assert [result.slice.slice_id for result in read] == ["1970-01-02T12", "1970-01-02T18"]
    upstream_work = context_in(tmp_path, one)
    newest = upstream_work.ledger.view().standing[-1].seq
    rollback(upstream_work, newest, reason="a test", who="ann")  # 1970-01-02T00 of 6h is still published
    assert not_in_upstream(work, work.ledger.view()) == {"1970-01-02T00", "1970-01-02T12"}
    for more in ("  panes: all\n", "  table: late_records\n"):  # the order of their rows begins anew in each slice
        with pytest.raises(SpecError, match="slices must be those of pipeline one"):
            plan_of(tmp_path, counting("four", "one", half + more, size="8h"))
    with pytest.raises(SpecError, match="slices must be those of pipeline one"):
        plan_of(tmp_path, counting("three", "one", "  slice: {every: 8h}\n", size="8h"))


@pytest.mark.slow
def test_slices_that_have_read_other_panes_are_not_changed(lake: Path) -> None:
    """Defect: after an adoption of other `panes`, `status` told all slices before it as changed for ever."""
    run(lake, upstream(Random(5), "tumbling: {size: 5h}"), 0, 4)
    run(lake, downstream(), 0, 3)
    every = downstream("  panes: all\n  where: kind = 'result'\n")
    run_range(None, lake, every, days(2, 3), sizes=SIZES, is_fresh=True)
    work = context_in(lake, every)
    assert told_changes(work, work.ledger.view()).slices == ()
    assert [slice_.slice_id for slice_ in slices_to_follow(work)[0]] == [days(2, 3)[0], days(3, 4)[0]]


@pytest.mark.slow
def test_a_chain_begins_after_a_slice_of_which_the_upstream_has_a_part_only(tmp_path: Path) -> None:
    """Defect: the reader was refused, with a command that was refused as well, and its schedule waited for ever."""
    rows = [{"k": 1, "at": hour * HOUR_MS, "v": hour, "dt": day_and_hour(hour)} for hour in range(72)]
    write_deltalake(str(tmp_path / "log"), pa.Table.from_pylist(rows), partition_by=["dt"])
    one = pipeline_of(
        "pipeline: one\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
        "  slice: {by: dt, every: 6h}\n  order: [v]\nwatermark: {kind: ascending}\nwindows:\n  tumbling: {size: 2h}\n"
        "aggregates: {n: {count: {}}, total: {sum: v}}\n"
    )
    reader, second = counting("two", "one", "", size="8h"), ("1970-01-02", "1970-01-03")
    run_range(None, tmp_path, one, ("1970-01-01T06:00", "1970-01-03T00:00"), sizes=SIZES, is_fresh=True)
    work = context_in(tmp_path, reader)
    due = due_slices(work, work.ledger.view(), 3 * DAY_MS)
    assert [slice_.slice_id for slice_ in due] == ["1970-01-02", "1970-01-03"]
    slices = slices_between(reader, *(parse_bound(reader, text) for text in second))
    planned = work.plan(work.ledger.view(), Ask(slices=slices))
    assert planned.start.note.endswith("the log holds no whole slice before it")
    assert run_range(None, tmp_path, reader, second, sizes=SIZES).is_published
    assert told_changes(work, work.ledger.view()).sentences == ()
    run_range(None, tmp_path, one, ("1970-01-01T00:00", "1970-01-03T00:00"), sizes=SIZES)
    assert "publishes 1970-01-01 now, before 1970-01-02" in told_changes(work, work.ledger.view()).sentences[-1]


def counting(name: str, reads: str, more: str, *, size: str) -> Pipeline:
    return pipeline_of(
        f"pipeline: {name}\nlog:\n  pipeline: {reads}\n  key: [k]\n  event_time: {{column: window_time}}\n{more}"
        f"watermark: {{kind: ascending}}\nwindows:\n  tumbling: {{size: {size}}}\n"
        "aggregates: {n: {sum: n}, total: {sum: total}}\n"
    )


def day_and_hour(hour: int) -> str:
    return (datetime(1970, 1, 1) + timedelta(hours=hour)).strftime("%Y-%m-%dT%H")  # noqa: DTZ001 - a text in UTC
