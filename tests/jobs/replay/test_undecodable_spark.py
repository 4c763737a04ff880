"""Records with texts that are not UTF-8 are invalid in both ways of a replay, and their bytes are kept."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.lake.store import ensure_table
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.reading.plain_values import plain
from jobs.reading.published import read_published
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.verify import verify
from jobs.replay.sizes import SIZES, Sizes
from jobs.review.execution import execution
from jobs.review.explain import explain
from jobs.review.pages.cells import cell, csv_line
from jobs.review.pages.row_filters import Comparison, Filter
from jobs.review.pages.row_pages import RowsAsk, RunRows
from tests.support.replays import NOW_MS, order_of, pipeline_of, run_range, what_was_run
from tests.support.spark_session import SparkSession
from windowlib.records.tables import invalid_records

pytestmark = pytest.mark.spark

PIPELINE = """
pipeline: texts
log:
  table: log
  key: [user]
  event_time: at
  record_id: id
  slice: {by: day}
watermark: {kind: ascending}
windows: {tumbling: {size: 1h}}
aggregates: {clicks: {count: {}}, most: {max: note}, notes: {collect_list: note}, first: {first: note}}
"""
DAYS = ("2020-01-01", "2020-01-03")
FROM = " FROM (SELECT '{}' AS day)"
CAFE = "cast(X'636166E9' AS string)"
GOOD = {
    "id": "'good'", "user": "'ann'", "at": "day || 'T10:00Z'", "note": "'café'", "unused": "'é'",
    "nested": "named_struct('a', 1, 'texts', array('x', null))", "tags": "map('k', 'v')", "raw": "X'FF'",
}  # fmt: skip
BAD: dict[str, tuple[dict[str, str], dict[str, bytes]]] = {
    "a key": ({"user": CAFE}, {"user": b"caf\xe9"}),
    "an aggregate": ({"note": "cast(X'FF' AS string)"}, {"note": b"\xff"}),
    "a column that nothing reads": ({"unused": CAFE}, {"unused": b"caf\xe9"}),
    "a time": ({"at": CAFE}, {"at": b"caf\xe9"}),
    "two texts": ({"at": CAFE, "user": CAFE}, {"user": b"caf\xe9", "at": b"caf\xe9"}),
    "a text and no key": ({"note": CAFE, "user": "cast(null AS string)"}, {"note": b"caf\xe9"}),
    "in a list": ({"nested": f"named_struct('a', 1, 'texts', array('x', {CAFE}))"}, {"nested.texts[1]": b"caf\xe9"}),
    "in a map": ({"tags": f"map('k', {CAFE}, {CAFE}, 'v')"}, {"tags[0].value": b"caf\xe9", "tags[1].key": b"caf\xe9"}),
}
"""The record -> (changes of a good record as SQL, path of the text -> its bytes)."""
WAYS = {
    "usual": SIZES,
    "small batches": Sizes(local_records=0, rows_per_read=2, rows_per_encoding=1),
    "compacted": Sizes(ordered_bytes=200, sorted_rows=3),
}
"""Sizes by name. Of the `compacted` log, the files have the records in another order, and tasks sort them."""


def write_log(spark: SparkSession, lake: Path) -> None:
    rows = [
        *({"id": f"'{name}'", **changes} for name, (changes, _) in BAD.items()),
        {"id": CAFE},
        {},
        {"id": "'no key'", "user": "cast(null AS string)"},
        {"id": "'good again'", "note": "'z'"},
    ]
    for number, day in enumerate(("2020-01-01", "2020-01-02")):
        selects = [
            "SELECT day, "
            + ", ".join(f"{value} AS {name}" for name, value in {**GOOD, **row}.items())
            + FROM.format(day)
            for row in rows
        ]
        frame = spark.sql(" UNION ALL ".join(selects)).coalesce(1)
        writer = frame.write.format("delta").partitionBy("day").mode("append" if number else "error")
        writer.option("delta.enableRowTracking", "true").save(str(lake / "log"))


def view_of(lake: Lake) -> LedgerView:
    return Ledger(lake.ledger("texts"), now_ms=lambda: NOW_MS).view()


def invalid_rows(lake: Lake) -> list[dict[str, Any]]:
    view = view_of(lake)
    rows = StoredRuns(lake, "texts", view).read("invalid_records", view.runs.values()).to_pylist()
    return sorted(rows, key=lambda row: (row["slice_id"], row["rank"]))


def replayed(spark: SparkSession, root: Path, sizes: Sizes) -> tuple[object, list[dict[str, Any]]]:
    """Return what was run, and the invalid rows without their attempt."""
    lake, pipeline = Lake(root=str(root)), pipeline_of(PIPELINE)
    order = order_of(root, pipeline, DAYS)
    assert execution(pipeline, order.lake, order.slices).why_spark is None
    outcome = run_range(spark, root, pipeline, DAYS, sizes=sizes)
    assert outcome.is_published
    assert not verify(lake, "texts", view_of(lake)).findings
    rows = [{name: value for name, value in row.items() if name != "attempt_id"} for row in invalid_rows(lake)]
    return what_was_run(outcome), rows


def assert_that_pages_show_them(lake: Lake) -> None:
    view = view_of(lake)
    rows = RunRows(StoredRuns(lake, "texts", view), next(iter(view.runs.values())), "invalid_records")
    wanted = Filter(column="detail", comparison=Comparison.CONTAINS, value="caf\\xe9")
    for sort in rows.columns():
        page = rows.page(RowsAsk(filter=wanted, sort=sort))
        assert page.matching == len(BAD)  # one of them has another text, and the one with a bad id is not in BAD
        for name in page.columns:
            assert all(cell(value, name) for value in page.rows[name].to_pylist())
            csv_line(page.rows[name].to_pylist())


@pytest.mark.slow
def test_records_with_texts_that_are_not_utf_8_are_invalid_and_their_bytes_are_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_log(spark, tmp_path / "usual")
    for name in WAYS:
        if name != "usual":
            shutil.copytree(tmp_path / "usual", tmp_path / name)
    spark.sql(f"OPTIMIZE delta.`{tmp_path / 'compacted' / 'log'}` ZORDER BY (note)").collect()
    runs = {name: replayed(spark, tmp_path / name, sizes) for name, sizes in WAYS.items()}
    for name, run in runs.items():
        assert run == runs["usual"], name

    stored = {row["record_id"]: row for row in runs["usual"][1] if row["slice_id"] == "2020-01-01"}
    assert set(stored) == {*BAD, "caf\\xe9", "no key"}
    for name, (_, raws) in BAD.items():
        row = stored[name]
        assert (row["reason"], dict(row["undecoded"])) == ("not_utf8", raws)
        assert all(path in row["detail"] for path in raws)
        assert all(row["record"][path] is None for path in raws if path in row["record"])
    assert stored["in a map"]["record"]["tags"] == [("k", None), ("caf\\xe9", "v")]
    assert stored["in a list"]["record"]["nested"] == {"a": 1, "texts": ["x", None]}
    no_key = stored["no key"]
    assert (no_key["reason"], no_key["undecoded"], no_key["detail"]) == ("null_key", None, None)

    lake = Lake(root=str(tmp_path / "usual"))
    shown = plain(read_published(lake, "texts", view_of(lake)).to_pylist())
    assert [(row["clicks"], row["most"], row["notes"]) for row in shown] == [(2, "z", ["café", "z"])]
    for text in ("in a map", "caf\\xe9"):
        explanation = explain(lake, pipeline_of(PIPELINE), text, view=view_of(lake))
        assert explanation.fate == "invalid"
        assert f"Record {text} is invalid: not_utf8 (" in explanation.sentence
        assert "caf\\xe9" in explanation.sentence
        assert json.dumps(explanation.to_json())
    assert_that_pages_show_them(lake)


def test_a_record_that_is_not_replayed_yet_is_explained_with_escapes(spark: SparkSession, tmp_path: Path) -> None:
    write_log(spark, tmp_path)
    lake = Lake(root=str(tmp_path))
    found = explain(lake, pipeline_of(PIPELINE), "a key", view=view_of(lake))
    assert (found.fate, found.details["record"]["user"]) == ("not replayed", "caf\\xe9")


def test_a_table_of_invalid_records_from_before_the_column_undecoded_is_read_and_extended(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = pipeline_of(PIPELINE)
    write_log(spark, tmp_path)
    lake = Lake(root=str(tmp_path))
    fields = json.loads(DeltaTable(f"{lake.root}/log").schema().to_json())["fields"]
    table = invalid_records({"type": "struct", "fields": fields})
    before = {name: node for name, node in table.coordinates.items() if name != "undecoded"}
    ensure_table(lake.table("texts", table.name), replace(table, coordinates=before))
    assert run_range(spark, tmp_path, pipeline, ("2020-01-01", "2020-01-02")).is_published
    assert not verify(lake, "texts", view_of(lake)).findings
    assert [row["undecoded"] is None for row in invalid_rows(lake)].count(True) == 1
