"""The ways to cut a table that are proposed to the grammar, for each form of partitions. No Spark."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.doctor.slice_candidates import SliceCandidate, slice_candidates
from jobs.doctor.table_facts import read_table_facts
from jobs.doctor.yaml_text import spelled
from jobs.pipeline.strict_yaml import parse_yaml
from tests.jobs.doctor import tables
from tests.jobs.doctor.tables import Row

FIRST_MS = int(tables.FIRST.timestamp() * 1000)


def _parts(row: Row) -> Row:
    return row | {"year": row["dt"].year, "month": row["dt"].month, "day": row["dt"].day}


FORMS: dict[str, tuple[Callable[[Row], Row], list[str], str]] = {
    "dates": (lambda row: row, ["dt"], "by: dt"),
    "ISO dates": (lambda row: row | {"dt": str(row["dt"])}, ["dt"], "by: dt"),
    "ISO hours": (lambda row: row | {"dt": f"{row['dt']}T{row['received_at']:%H}"}, ["dt"], "by: dt, every: 1h"),
    "yyyyMMdd": (lambda row: row | {"dt": f"{row['dt']:%Y%m%d}"}, ["dt"], "by: dt"),
    "yyyyMMddHH": (
        lambda row: row | {"dt": f"{row['received_at']:%Y%m%d%H}"},
        ["dt"],
        "by: dt, format: yyyyMMddHH, every: 1h",
    ),
    "yyyyMMddHHmm": (lambda row: row | {"dt": f"{row['received_at']:%Y%m%d%H}30"}, ["dt"], "by: dt, every: 30m"),
    "integers": (lambda row: row | {"dt": int(f"{row['dt']:%Y%m%d}")}, ["dt"], "by: dt"),
    "parts": (_parts, ["year", "month", "day"], "by: [year, month, day]"),
    "a date and an hour": (
        lambda row: row | {"hour": row["received_at"].hour},
        ["dt", "hour"],
        "by: [dt, hour], every: 1h",
    ),
    "an arrival": (lambda row: row, [], "by: received_at"),
    "another partition": (lambda row: row, ["user_id"], "by: received_at"),
}


def _candidates(place: Path, *chosen: str) -> list[SliceCandidate]:
    return slice_candidates(read_table_facts(str(place)), ["received_at"], chosen)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_candidate_of_each_form(form: str, tmp_path: Path) -> None:
    change, by, text = FORMS[form]
    tables.write(tmp_path / "log", change, by or None)
    found = _candidates(tmp_path / "log")
    assert found[0].text == text
    assert found[-1].kind == "commits"
    if found[0].kind == "partition":
        files = read_table_facts(str(tmp_path / "log")).files
        starts = [found[0].of_partition(file.partition) for file in files]
        assert None not in starts
        assert {0 if at is None else (at - FIRST_MS) // 86_400_000 for at in starts} == {0, 1, 2}


def test_named_columns_are_the_only_candidate(tmp_path: Path) -> None:
    tables.by_date(tmp_path / "log")
    assert [one.text for one in _candidates(tmp_path / "log", "received_at")] == ["by: received_at"]
    assert [one.kind for one in _candidates(tmp_path / "log", "commits")] == ["commits"]
    assert [one.text for one in _candidates(tmp_path / "log", "a b", "c")] == ['by: ["a b", c]']


@pytest.mark.parametrize("text", ["plain", "true", "No", "1", "", "a b", 'q"', "#", "'", "x: y", "é", "\u2028", "~"])
def test_a_spelled_text_is_read_as_the_same_text(text: str) -> None:
    assert parse_yaml(f"a: {spelled(text)}\nb: {{c: {spelled([text, text])}}}", source="x") == {
        "a": text,
        "b": {"c": [text, text]},
    }
