"""A name of the log that is that of another column: a run has read other values, although no file has changed."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.lake.json_lines import json_lines
from jobs.lake.log_match import Match, compare_coordinates, match_input, other_log
from jobs.ledger.events import coordinates_of
from jobs.planning.assessing import assess, restate_rule
from jobs.planning.changed_slices import look_at_log
from jobs.runs import NO_ID, LogCoordinates, Sighting
from tests.support.delta_logs import commits_of, rename_columns
from tests.support.log_shop import DAYS, SCHEMA, LogShop, Row, records
from windowlib.records.column_types import FIELD_ID, PHYSICAL_NAME, Node, field_ids, identified_fields

WIDER = SCHEMA.append(pa.field("w", pa.int32()))
NAMES = {name: name for name in WIDER.names}


def _rows(first: int, day: int) -> list[Row]:
    return [row | {"w": -1} for row in records(Random(first), first, 4, day)]


def test_a_name_that_another_column_has_got_is_told_and_not_restated_by_itself(tmp_path: Path) -> None:
    """Defect: after DROP COLUMN v and ADD COLUMN v, a late append restated its slice with nulls in all records."""
    shop = LogShop(tmp_path)
    for day in range(3):
        shop.put(_rows(10 * day, day), WIDER)
    before = shop.run()
    assert before.is_published
    rename_columns(shop.log, NAMES | {"text": "remark"}, after=3)
    assert shop.changed() == {}, "the pipeline is refused where it reads the lost column, and nothing else has changed"
    commits_of(shop.log)[-1].unlink()
    rename_columns(shop.log, NAMES | {"v": "w", "w": "v"}, after=3)
    assert shop.changed() == dict.fromkeys(DAYS, Match.CHANGED)
    view = shop.work.ledger.view()
    restating = assess(shop.work, view, look_at_log(shop.work, view).changed, rule=restate_rule(shop.work))
    assert {one.why_not for one in restating.assessed} == {
        "a column of the log was renamed, or dropped and added again, since its run has read it"
    }
    assert shop.run().is_published
    assert shop.changed() == {}
    assert {*shop.published().values()}.isdisjoint(run.result.run_id for run in before.runs)


@pytest.mark.parametrize("names", [{}, {"v": "w", "w": "v"}])
def test_a_name_of_another_column_is_told_after_column_mapping_was_removed(
    tmp_path: Path, names: dict[str, str]
) -> None:
    """Defect: the slices stayed *current*, because a log that maps no names does not tell which columns they were."""
    shop = LogShop(tmp_path)
    for day in range(3):
        shop.put(_rows(10 * day, day), WIDER)
    rename_columns(shop.log, NAMES, after=3)
    shop.run()
    rename_columns(shop.log, NAMES | names, after=4)
    _remove_mapping(shop.log, NAMES | names)
    is_other = bool(names)
    assert shop.changed() == (dict.fromkeys(DAYS, Match.CHANGED) if is_other else {})
    view = shop.work.ledger.view()
    changed = look_at_log(shop.work, view).changed
    why_not = {one.why_not for one in assess(shop.work, view, changed, rule=restate_rule(shop.work)).assessed}
    assert why_not == (
        {"a column of the log was renamed, or dropped and added again, since its run has read it"}
        if is_other
        else set()
    )
    assert shop.run().is_published
    assert shop.changed() == {}
    shop.put(_rows(30, 2), WIDER)
    assert shop.changed() == {DAYS[2]: Match.CHANGED}, "the commits since the first run are read again"


def _remove_mapping(log: Path, names: dict[str, str]) -> None:
    """Write all files of a log again, as `delta.columnMapping.mode = none` does."""
    actions = [entry for commit in commits_of(log) for entry in json_lines(commit.read_bytes())]
    plain = {"metaData": next(entry["metaData"] for entry in actions if "metaData" in entry)}
    entries = [{"commitInfo": {"operation": "REMOVE COLUMN MAPPING"}}, plain]
    for old in (entry["add"] for entry in actions if "add" in entry):
        path = old["path"].replace("part-", "new-")
        table = pq.read_table(log / old["path"], partitioning=None)
        pq.write_table(table.rename_columns([names[name] for name in table.column_names]), log / path)
        new = {**old, "path": path, "size": (log / path).stat().st_size, "dataChange": False}
        entries += [{"remove": {**old, "deletionTimestamp": 0, "dataChange": False}}, {"add": new}]
    commit = log / "_delta_log" / f"{len(commits_of(log)):020}.json"
    commit.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")


def test_an_added_column_is_no_other_input(tmp_path: Path) -> None:
    shop = LogShop(tmp_path)
    shop.put(records(Random(1), 0, 4, 0))
    shop.run(0, 1)
    shop.put(_rows(10, 1), WIDER, schema_mode="merge")
    assert shop.changed() == {}


V, W = "1" * 8, "2" * 8


@pytest.mark.parametrize(
    ("then", "now", "is_other"),
    [
        ("", V + W, False),  # a run of an earlier version
        (V + W, V + W, False),
        (V + W, W + W, False),  # the column was renamed or dropped
        (V + W, V + V, True),
        (V + NO_ID, V + V + W + V, False),  # a log that maps its columns since
        (V + NO_ID, V + W, True),
        (V + W, V + NO_ID, False),  # a log that maps its columns no more
        (V + V + V + W, V + V + V + W + W + W, False),  # defect: two names with the same hash
    ],
)
def test_columns_are_compared_by_their_names(then: str, now: str, *, is_other: bool) -> None:
    log = LogCoordinates(table_id="t", version=1, commits=(), files=1, records=1, bytes=1, digest="d")
    match = compare_coordinates(replace(log, columns=then), replace(log, columns=now))
    assert match is (Match.CHANGED if is_other else Match.SAME)


def test_a_run_that_was_seen_with_the_columns_of_now_has_another_reason() -> None:
    """Defect: after `plan --verify`, an append was told as a renamed column, as that of the first reading."""
    log = LogCoordinates(table_id="t", version=1, commits=(), files=1, records=1, bytes=1, columns=V + W)
    now = replace(log, version=3, columns=V + V, records=2)
    seen = [Sighting(log=own, is_equal=True) for own in (log, replace(log, version=2, columns=V + V))]
    assert match_input(seen, now) is Match.CHANGED
    assert other_log(seen, now) == ""
    assert other_log(seen[:1], now).startswith("a column of the log was renamed")
    elsewhere = Sighting(log=replace(log, table_id="other", columns=""), is_equal=True)
    assert other_log([elsewhere, *seen[:1]], now).startswith("a column of the log was renamed")
    assert other_log([elsewhere], now).startswith("the log is another table")


def test_only_names_that_are_gone_or_of_another_column_are_not_kept() -> None:
    """Defect: a damaged file was told as other records after the log had got a column."""
    log = LogCoordinates(table_id="t", version=1, commits=(), files=1, records=1, bytes=1, columns=V + W)
    columns = {V + W: True, V + W + W + W: True, V + V: False, W + W: False}
    assert {own: log.keeps_columns(replace(log, columns=own)) for own in columns} == columns
    assert replace(log, columns="").keeps_columns(log)


def test_the_columns_of_many_runs_are_kept_once() -> None:
    """A log of 1,000 columns has 16 kB of them, which each slice of a ledger stores."""
    stored = json.dumps(
        asdict(LogCoordinates(table_id="t", version=1, commits=(), files=1, records=1, bytes=1, columns=V))
    )
    first, second = (coordinates_of(json.loads(stored)).columns for _ in range(2))
    assert first is second


@pytest.mark.parametrize("key", [FIELD_ID, PHYSICAL_NAME])
def test_fields_of_structs_are_told_apart_at_any_depth(key: str) -> None:
    def field(name: str, own: object, kind: Node) -> dict[str, object]:
        return {"name": name, "type": kind, "metadata": {key: own}}

    inner: Node = {"type": "struct", "fields": [field("b", 2, "long")]}
    listed: Node = {"type": "array", "elementType": inner, "containsNull": True}
    outer: Node = {"type": "struct", "fields": [field("list", 3, listed)]}
    entries = identified_fields([field("a", "a", "long"), field("s", 4, outer)])
    assert dict(field_ids(entries)) == {"a": "a", "s": "4", "s.list": "3", "s.list.elementType.b": "2"}
