"""The explanation of one record: its fate, its sentence and its windows."""

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.delta_log import describe_log
from jobs.lake.lake import Lake
from jobs.lake.log_rows import find_records
from jobs.lake.store import attempt_batches
from jobs.ledger.removals import Removal, Why
from jobs.orchestration.requests import run_request
from jobs.pipeline.models.log import TimeColumn
from jobs.planning.request_context import Asked, open_request_context
from jobs.reading import stored_rows
from jobs.reading.plain_values import plain
from jobs.reading.stored_rows import IDS, StoredRuns
from jobs.replay.orders import ReplayOrder
from jobs.replay.replayer import replay_chunk
from jobs.review import explain as module
from jobs.review.explain import Explanation, explain
from jobs.review.explain_windows import record_time
from jobs.review.pages.record_page import SearchLimits, find, scope_after
from tests.support.delta_logs import cut_off, map_columns
from tests.support.fake_replay import PIPELINE, SIDE, FakeReplayer, append_day, day_ms, sales, write_rows
from tests.support.no_spark import threads
from windowlib.errors import LogError, RequestError

AT_MS = day_ms("2023-12-30")
WINDOW = {"window_start": AT_MS * 1_000, "window_end": (AT_MS + 86_400_000) * 1_000}
COMMON = {"record_hash": 5, "rank": 41, "slice_id": "2024-01-01"}
LATE = COMMON | {
    "event_time_ms": AT_MS,
    "missed_windows": [WINDOW],
    "missed_all": True,
    "watermark_ms": day_ms("2024-01-01"),
    "late_by_ms": 26 * 3_600_000,
    "reason": "late",
}
UNASSIGNED = COMMON | {"event_time_ms": AT_MS, "watermark_ms": AT_MS}
INVALID = COMMON | {"reason": "null event time", "detail": "at_ms"}


def explained(tmp_path: Path, table: str, row: dict[str, Any], *, publish: bool = True) -> Explanation:
    append_day(tmp_path, "2024-01-01", {"a": 1})
    lake = Lake(root=str(tmp_path))
    work = open_request_context(sales(), lake, now_ms=lambda: day_ms("2024-02-01"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="me", reason="")
    own = row | {"record_id": "r1"}
    run_request(work, asked, FakeReplayer(beside={"2024-01-01": {table: [own]}}), publish=publish)
    order = ReplayOrder(
        pipeline=sales(), lake=lake, slices=(), before=None, request_id="", attempt_id="an attempt that nobody staged"
    )
    write_rows(order, SIDE[table], [own | {"record_id": "r2", "attempt_id": order.attempt_id, "run_id": "none"}])
    return explain(lake, sales(), "r1", view=work.ledger.view())


def test_a_late_record_is_explained_with_its_missed_windows(tmp_path: Path) -> None:
    found = explained(tmp_path, "late_records", LATE)
    assert (found.fate, found.slice_id, found.is_published) == ("late", "2024-01-01", True)
    for part in (
        "it happened at 2023-12-30 00:00:00 UTC",
        "slice 2024-01-01, place 42",
        "the watermark was 2024-01-01 00:00:00 UTC",
        "26 h too late for its only window: [2023-12-30 00:00, 2023-12-31 00:00)",
        "late_records",
    ):
        assert part in found.sentence
    assert found.to_json()["details"]["missed_windows"][0]["window_start"] == "2023-12-30T00:00:00Z"


@pytest.mark.parametrize(("late_by_ms", "late"), [(7_200_000, "2 h too late"), (None, "late")])
def test_a_late_record_without_a_watermark_is_explained_by_its_reason(
    tmp_path: Path, late_by_ms: int | None, late: str
) -> None:
    row = LATE | {"watermark_ms": None, "late_by_ms": late_by_ms, "reason": "S4_before_1970"}
    found = explained(tmp_path, "late_records", row)
    assert found.fate == "late"
    expected = f"there was no watermark yet. For the reason S4_before_1970, it was {late} for its only window: ["
    assert expected in found.sentence
    assert found.to_json()["details"]["watermark_ms"] is None


@pytest.mark.parametrize(
    ("table", "row", "fate", "reason"),
    [
        ("unassigned_records", UNASSIGNED, "unassigned", "between two windows"),
        ("invalid_records", INVALID, "invalid", "null event time (at_ms)"),
    ],
)
def test_an_unassigned_and_an_invalid_record_are_explained(
    tmp_path: Path, table: str, row: dict[str, Any], fate: str, reason: str
) -> None:
    found = explained(tmp_path, table, row)
    assert found.fate == fate
    assert reason in found.sentence


@pytest.mark.parametrize("record_hash", [0x00A1, -5, 0x0123456789012345, 2**63 - 1, -(2**63), 0])
@pytest.mark.parametrize("stored", ["016x", "x"], ids=["today's ids", "ids of older runs"])
def test_without_a_column_of_ids_a_record_is_explained_by_its_hash(
    tmp_path: Path, record_hash: int, stored: str
) -> None:
    hexadecimal = f"{record_hash % 2**64:016x}"
    append_day(tmp_path, "2024-01-01", {"a": 1})
    pipeline, lake = sales(PIPELINE.replace("  record_id: id\n", "")), Lake(root=str(tmp_path))
    work = open_request_context(pipeline, lake, now_ms=lambda: day_ms("2024-02-01"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="me", reason="")
    row = INVALID | {"record_hash": record_hash, "record_id": format(record_hash % 2**64, stored)}
    run_request(work, asked, FakeReplayer(beside={"2024-01-01": {"invalid_records": [row]}}))
    for text in (hexadecimal, hexadecimal.upper(), format(record_hash % 2**64, "x"), str(record_hash)):
        found = explain(lake, pipeline, text, view=work.ledger.view())
        assert (found.fate, found.record_id) == ("invalid", hexadecimal)
        assert found.sentence.startswith(f"Record {hexadecimal} is invalid")
    for text in ("", "x", "0x5", "-", "12345678901234567", "1" * 5_000, "\u0665"):
        with pytest.raises(RequestError, match="no late, unassigned or invalid record of pipeline sales has the hash"):
            explain(lake, pipeline, text, view=work.ledger.view())


def test_the_fate_in_a_staged_run_is_marked_as_not_published(tmp_path: Path) -> None:
    found = explained(tmp_path, "late_records", LATE, publish=False)
    assert not found.is_published
    assert found.sentence.endswith("the run is staged, not published.")


def test_of_a_large_side_table_only_the_column_that_finds_the_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = explained(tmp_path / "whole", "late_records", LATE)
    read: list[set[str]] = []

    def noted(uri: str, attempts: Any, columns: Sequence[str], *, rows: int) -> Iterator[pa.RecordBatch]:  # noqa: ANN401
        read.append({*columns})
        return attempt_batches(uri, attempts, columns, rows=rows)

    monkeypatch.setattr(stored_rows, "attempt_batches", noted)
    monkeypatch.setattr(module, "StoredRuns", partial(StoredRuns, content_rows=0))
    large = explained(tmp_path / "large", "late_records", LATE)
    assert (large.sentence, large.details["missed_windows"]) == (whole.sentence, whole.details["missed_windows"])
    assert read == [{"record_id", *IDS}]


def test_only_the_panes_and_open_windows_of_the_key_become_plain_values(tmp_path: Path) -> None:
    append_day(tmp_path, "2024-01-01", {f"k{number}": 1 for number in range(6_000)})
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-02-01"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="me", reason="")
    run_request(work, asked, FakeReplayer())
    view = work.ledger.view()
    explain(work.lake, sales(), "2024-01-01/k7/1", view=view)
    tracemalloc.start()
    found = explain(work.lake, sales(), "2024-01-01/k7/1", view=view)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.details["fired"] == ["[2024-01-01 00:00, 2024-01-02 00:00)"]
    assert peak < 1_000_000, f"{peak} bytes; the values of all rows take three times that"


@pytest.mark.parametrize(
    ("grammar", "value", "at_ms"),
    [
        ({"column": "c", "unit": "s"}, -2, -2_000),
        ({"column": "c", "unit": "s"}, 1.001, 1_001),
        ({"column": "c", "unit": "us"}, -1, -1),
        ({"column": "c", "unit": "ns"}, 1_999_999, 1),
        ("c", datetime(1970, 1, 2, tzinfo=UTC), 86_400_000),
        ("c", datetime.fromisoformat("1970-01-02T00:00:00.0019"), 86_400_001),
        ("c", date(1970, 1, 2), 86_400_000),
        ("c", "1970-01-02T00:00:00.001Z", 86_400_001),
        ("c", "12:34:56", None),
    ],
)
def test_times_are_read_as_in_a_replay(grammar: object, value: object, at_ms: int | None) -> None:
    """Each kind of value that a valid record may have. A record without a time has a row in invalid_records."""
    assert record_time(TimeColumn.model_validate(grammar), {"c": value}).ms == at_ms


def test_values_become_plain_json() -> None:
    assert plain({"a": [float("nan"), b"\x01", None, True]}) == {"a": ["nan", "01", None, True]}


def test_an_open_window_is_read_from_the_state_after_the_last_slice_staged_or_published(tmp_path: Path) -> None:
    lake = Lake(root=str(tmp_path))
    work = open_request_context(sales(), lake, now_ms=lambda: day_ms("2024-02-01"))
    for day in range(1, 5):
        append_day(tmp_path, f"2024-01-0{day}", {"a": day})
    for start, end, publish in (("2024-01-01", "2024-01-04", True), ("2024-01-04", "2024-01-05", False)):
        asked = Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="me", reason="")
        run_request(work, asked, lambda order: replay_chunk(threads(), order), publish=publish)
    view = work.ledger.view()
    found = explain(lake, sales(), "2024-01-04/a/4", view=view)
    assert found.details["open"] == ["[2024-01-04 00:00, 2024-01-05 00:00)"]
    first = view.run(view.published["2024-01-01"])
    gone = replace(first, checkpoint_removal=Removal(seq=9, at_ms=0, who="ann", why=Why.CHECKPOINTS))
    kept = replace(view, runs={**view.runs, first.result.run_id: gone})
    assert explain(lake, sales(), "2024-01-04/a/4", view=kept) == found, "the state after an earlier slice is not read"
    for slices, told in (
        (1, "1 window is still open after slice 2024-01-01: [2024-01-01 00:00, 2024-01-02 00:00). The slices after "
            "2024-01-01 were not searched."),
        (4, "1 window fired: [2024-01-01 00:00, 2024-01-02 00:00)."),
    ):  # fmt: skip
        scope = scope_after(view, "2024-01-01", limits=SearchLimits(slices=slices))
        explanation = find(lake, sales(), "2024-01-01/a/1", scope=scope).explanation
        assert explanation is not None
        assert explanation.sentence.endswith(told)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2024-01-01T{text}+00:00")


def panes_of(tmp_path: Path, *panes: tuple[str, str, str]) -> Explanation:
    """Explain a record of key `a` at midnight, with these rows (start, end, kind) in window_outputs."""
    lake = Lake(root=str(tmp_path))
    append_day(tmp_path, "2024-01-01", {"a": 1})
    work = open_request_context(sales(), lake, now_ms=lambda: day_ms("2024-02-01"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="me", reason="")
    replayer = FakeReplayer()
    run_request(work, asked, replayer)
    [uri] = [lake.table("sales", "window_outputs")]
    DeltaTable(uri).delete()
    row = {"key": "a", "slice_id": "2024-01-01", "attempt_id": replayer.orders[0].attempt_id, "pane_index": 0}
    rows = [
        row | {"window_start": at(start), "window_end": at(end), "kind": kind, "fired_rank": number}
        for number, (start, end, kind) in enumerate(panes)
    ]
    schema = DeltaTable(uri).to_pyarrow_table().schema
    write_deltalake(uri, pa.Table.from_pylist(rows, schema=schema), mode="append")
    return explain(lake, sales(), "2024-01-01/a/1", view=work.ledger.view())


def test_a_superseded_window_is_named_with_the_window_that_replaced_it(tmp_path: Path) -> None:
    """A session fired, was extended, and was merged later. Readers see the last window."""
    first, second, third = ("00:00", "01:00"), ("00:00", "01:30"), ("00:00", "03:00")
    rows = [
        (*first, "result"),
        (*first, "superseded"),
        (*second, "result"),
        (*second, "superseded"),
        (*third, "result"),
    ]
    found = panes_of(tmp_path, *rows)
    assert found.details["fired"] == ["[2024-01-01 00:00, 03:00)"]
    assert found.details["superseded"] == {
        "[2024-01-01 00:00, 01:00)": "[2024-01-01 00:00, 03:00)",
        "[2024-01-01 00:00, 01:30)": "[2024-01-01 00:00, 03:00)",
    }
    assert "1 window fired: [2024-01-01 00:00, 03:00)" in found.sentence
    assert "2 windows fired and are superseded now: [2024-01-01 00:00, 01:00) by [2024-01-01 00:00, 03:00)" in (
        found.sentence
    )


def test_a_window_that_fires_again_after_a_retraction_is_shown(tmp_path: Path) -> None:
    rows = [("00:00", "01:00", "result"), ("00:00", "01:00", "retraction"), ("00:00", "01:00", "result")]
    found = panes_of(tmp_path, *rows)
    assert (found.details["fired"], found.details["superseded"]) == (["[2024-01-01 00:00, 01:00)"], {})
    gone = panes_of(tmp_path / "other", *rows[:2])
    assert gone.details["superseded"] == {"[2024-01-01 00:00, 01:00)": None}
    assert "by nothing that readers see" in gone.sentence


def test_a_record_is_found_in_a_log_with_mapped_columns(tmp_path: Path) -> None:
    """The files have the physical names; deltalake would not find a column by its logical name."""
    append_day(tmp_path, "2024-01-01", {"a": 1, "b": 2})
    log = tmp_path / "event_logs" / "sales"
    [file] = log.glob("*/*.parquet")
    stored = pq.read_table(file)
    pq.write_table(stored.rename_columns([f"col-{name[::-1]}" for name in stored.column_names]), file)
    map_columns(log, "name")
    found = next(find_records(describe_log(str(log)), "id", "2024-01-01/b/2"), None)
    assert found == {
        "id": "2024-01-01/b/2", "key": "b", "at_ms": AT_MS + 2 * 86_400_000, "amount": 2, "day": date(2024, 1, 1)
    }  # fmt: skip
    assert next(find_records(describe_log(str(log)), "id", "nobody"), None) is None
    cut_off(file, keep=0.5)
    with pytest.raises(LogError, match=f"reading the data file {file}"):
        next(find_records(describe_log(str(log)), "id", "2024-01-01/b/2"), None)
