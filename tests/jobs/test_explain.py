"""What a person is told about one record."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.explain import Explanation, explain, plain, time_ms
from jobs.lake import Lake
from jobs.log_models import TimeColumn
from jobs.requests import ReplayOrder, run_request
from jobs.workspace import Asked, open_workspace
from tests.support.fake_replay import SIDE, FakeReplayer, append_day, day_ms, sales, write_rows

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


def told(tmp_path: Path, table: str, row: dict[str, Any], *, publish: bool = True) -> Explanation:
    append_day(tmp_path, "2024-01-01", {"a": 1})
    lake = Lake(root=str(tmp_path))
    work = open_workspace(sales(), lake, now_ms=lambda: day_ms("2024-02-01"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="me", reason="")
    own = row | {"record_id": "r1"}
    run_request(work, asked, FakeReplayer(beside={"2024-01-01": {table: [own]}}), publish=publish)
    order = ReplayOrder(
        pipeline=sales(), lake=lake, slices=(), before=None, request_id="", attempt_id="an attempt that nobody staged"
    )
    write_rows(order, SIDE[table], [own | {"record_id": "r2", "attempt_id": order.attempt_id, "run_id": "none"}])
    return explain(lake, sales(), "r1", view=work.ledger.view())


def test_a_late_record(tmp_path: Path) -> None:
    found = told(tmp_path, "late_records", LATE)
    assert (found.fate, found.slice_id, found.is_published) == ("late", "2024-01-01", True)
    for part in (
        "it happened at 2023-12-30 00:00:00 UTC",
        "slice 2024-01-01, place 42",
        "the watermark stood at 2024-01-01 00:00:00 UTC",
        "26 h too late for its only window: [2023-12-30 00:00, 2023-12-31 00:00)",
        "late_records",
    ):
        assert part in found.sentence
    assert found.to_json()["details"]["missed_windows"][0]["window_start"] == "2023-12-30T00:00:00Z"


@pytest.mark.parametrize(
    ("table", "row", "fate", "said"),
    [
        ("unassigned_records", UNASSIGNED, "unassigned", "between two windows"),
        ("invalid_records", INVALID, "invalid", "null event time (at_ms)"),
    ],
)
def test_the_other_fates(tmp_path: Path, table: str, row: dict[str, Any], fate: str, said: str) -> None:
    found = told(tmp_path, table, row)
    assert found.fate == fate
    assert said in found.sentence


def test_what_is_only_staged_is_said_to_be(tmp_path: Path) -> None:
    found = told(tmp_path, "late_records", LATE, publish=False)
    assert not found.is_published
    assert found.sentence.endswith("the run is staged, not published.")


def test_times_and_values() -> None:
    assert time_ms(TimeColumn.model_validate({"column": "c", "unit": "s"}), -2) == -2_000
    assert time_ms(TimeColumn.model_validate({"column": "c", "unit": "us"}), -1) == -1
    assert time_ms(TimeColumn.model_validate({"column": "c", "unit": "ns"}), 1_999_999) == 1
    assert time_ms(TimeColumn.model_validate("c"), datetime(1970, 1, 2, tzinfo=UTC)) == 86_400_000
    assert plain({"a": [float("nan"), b"\x01", None, True]}) == {"a": ["nan", "01", None, True]}
