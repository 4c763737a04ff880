"""Logs that users really have: mapped columns, deletions, reserved names, odd types, damaged and rewritten files."""

# ruff: noqa: S608 - the SQL here is made of constants

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.log_pin import pin_input
from jobs.planning.plan import Plan
from jobs.planning.request_context import Asked, RequestContext
from jobs.planning.steps import Ask
from jobs.replay.chunk.record_columns import record_names, record_type
from jobs.review.verify_input import Verification, verify_inputs
from jobs.spark.lazy_session import LazySession
from tests.support.clicks_log import PARTITION, PIPELINE, SCHEMA, day_rows
from tests.support.delta_logs import clean_commits, commits_of, cut_off
from tests.support.fake_replay import PIPELINE as SALES, FakeReplayer, append_day, sales
from tests.support.logs import make_log
from tests.support.read_logs import ReadLog, read_log
from tests.support.replays import context_in, pipeline_of, run_range
from windowlib.errors import LogError
from windowlib.records.column_types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ONE_DAY, TWO_DAYS = ("1970-01-01", "1970-01-02"), ("1970-01-01", "1970-01-03")


def two_days(spark: "SparkSession", lake: Path) -> Path:
    make_log(spark, str(lake / "log"), [day_rows(0, 50, 1), day_rows(1, 50, 1)], schema=SCHEMA, partition_by=PARTITION)
    return lake / "log"


def read(spark: "SparkSession", lake: Path, text: str = PIPELINE, bounds: tuple[str, str] = TWO_DAYS) -> ReadLog:
    pipeline = pipeline_of(text)
    slices = slices_between(pipeline, *(parse_bound(pipeline, bound) for bound in bounds))
    pinned = pin_input(pipeline, Lake(root=str(lake)), slices)
    return read_log(spark, pipeline, pinned, slices)


def in_order(read: ReadLog, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(one.record[name] for name in columns) for one in read.records]


def request_context(lake: Path) -> RequestContext:
    return context_in(lake, pipeline_of(PIPELINE))


def planned(work: RequestContext, days: tuple[str, str] = TWO_DAYS) -> Plan:
    bounds = [parse_bound(work.pipeline, text) for text in days]
    return work.plan(work.ledger.view(), Ask(slices=slices_between(work.pipeline, *bounds)))


def reasons(work: RequestContext, days: tuple[str, str] = TWO_DAYS) -> list[str]:
    return [step.reason.value for step in planned(work, days).steps]


def verify(
    spark: "SparkSession", work: RequestContext, days: tuple[str, str] = TWO_DAYS, *, records_per_job: int = 1
) -> Verification:
    return verify_inputs(LazySession.of(spark), work, planned(work, days), who="me", records_per_job=records_per_job)


NAMES = (
    "_metadata", "__metadata", "_row_id", "o0", "o1", "slice_no", "slice_value", "rank", "record", "record_id",
    "record_hash", "sequence", "problem", "read_problem", "read_ms", "event_time_ms", "arrival_ms", "commit", "block",
    "row_id", "row_commit_version", "slice_id", "attempt_id", "tag", "kind", "k0", "v0",
)  # fmt: skip


def named_log(spark: "SparkSession", lake: Path, names: Sequence[str], commits: int = 3) -> None:
    """Each commit one record; every column but three is called like one of ours, and ordered the other way round."""
    for number in range(commits):
        place = commits - number
        fields = ", ".join(
            f"named_struct('row_commit_version', {place}L, 'row_id', {place}L) AS `{name}`"
            if name == "_metadata"
            else f"{place} AS `{name}`"
            for name in names
        )
        row = spark.sql(f"SELECT 'ann' AS user, {number * 1000}L AS at_ms, {fields}, DATE'1970-01-01' AS day")
        writer = row.coalesce(1).write.format("delta").mode("append").partitionBy("day")
        writer.option("delta.enableRowTracking", "true").save(str(lake / "log"))


def test_columns_named_like_ours_are_columns_like_others(spark: "SparkSession", tmp_path: Path) -> None:
    """The log is read in the order of its commits, whatever a column called `_metadata` says."""
    named_log(spark, tmp_path, NAMES)
    assert in_order(read(spark, tmp_path), "at_ms", "o0") == [(0, 3), (1000, 2), (2000, 1)]


@pytest.mark.soak
def test_columns_named_like_ours_may_be_used(spark: "SparkSession", tmp_path: Path) -> None:
    named_log(spark, tmp_path, NAMES)
    text = PIPELINE.replace("user]", "o0]").replace("  slice:", "  record_id: record_id\n  slice:")
    outcome = run_range(spark, tmp_path, pipeline_of(text), ONE_DAY)
    assert outcome.is_published
    assert outcome.runs[0].result.counts.assigned == 3


def test_ties_name_the_columns_of_the_log(spark: "SparkSession", tmp_path: Path) -> None:
    make_log(spark, str(tmp_path / "log"), [day_rows(0, 1, 2)], schema=SCHEMA, partition_by=PARTITION)
    text = PIPELINE.replace("  slice:", "  order: [day, user]\n  slice:")
    with pytest.raises(LogError, match=r"for example day = 1970-01-01, user = 'ann'\. Add") as refused:
        read(spark, tmp_path, text)
    assert "o0" not in str(refused.value)


def mapped_log(spark: "SparkSession", lake: Path, mode: str) -> str:
    table = f"delta.`{lake / 'log'}`"
    spark.sql(
        f"CREATE TABLE {table} ({SCHEMA}) USING delta PARTITIONED BY (day) TBLPROPERTIES "
        f"('delta.columnMapping.mode' = '{mode}', 'delta.enableRowTracking' = 'true')"
    )
    for day in ("1970-01-01", "1970-01-02"):
        spark.sql(f"INSERT INTO {table} VALUES ('ann', 1000, DATE'{day}'), ('bob', 2000, DATE'{day}')")
    return table


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_log_with_mapped_columns_is_replayed_and_guarded(spark: "SparkSession", tmp_path: Path, mode: str) -> None:
    table = mapped_log(spark, tmp_path, mode)
    assert in_order(read(spark, tmp_path), "user") == [("ann",), ("bob",)] * 2
    change = "DELETE FROM {} WHERE user = 'bob'" if mode == "name" else "UPDATE {} SET at_ms = 7 WHERE user = 'bob'"
    spark.sql(change.format(table))
    with pytest.raises(LogError, match="removed or changed records of slice 1970-01-01"):
        read(spark, tmp_path)


@pytest.mark.soak
def test_deletion_vectors_are_found_when_their_commit_is_gone(spark: "SparkSession", tmp_path: Path) -> None:
    table = f"delta.`{two_days(spark, tmp_path)}`"
    properties = (
        "'delta.appendOnly' = 'false', 'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '1'"
    )
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({properties})")
    spark.sql(f"DELETE FROM {table} WHERE day = DATE'1970-01-02' AND at_ms % 100000 = 1000")
    with pytest.raises(LogError, match=r"commit 3 \(DELETE\)"):
        read(spark, tmp_path)
    make_log(spark, str(tmp_path / "log"), [day_rows(0, 70)], schema=SCHEMA, partition_by=PARTITION)
    for commit in commits_of(tmp_path / "log")[:-1]:
        commit.unlink()
    with pytest.raises(LogError, match=r"records of slice 1970-01-02 .* were deleted .* has a deletion vector"):
        read(spark, tmp_path)
    assert [one.records.count for one in read(spark, tmp_path, bounds=ONE_DAY).slices] == [3]


NESTED = "user string, at_ms bigint, m map<string,map<string,int>>, s struct<a: array<map<string,int>>>, day date"


def backwards(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    """The same maps, with their entries the other way round."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return type(value)(backwards(one) for one in value) if isinstance(value, list | tuple) else value


def test_maps_of_maps_have_one_hash_whatever_their_order(spark: "SparkSession", tmp_path: Path) -> None:
    maps = ({"a": {"v": 1}, "b": {"w": 2}, "y": {"p": 2, "q": 3}}, ([{"a": 1, "b": 2}],))
    for name, (nested, inside) in (("one", maps), ("two", backwards(maps)), ("three", ({"a": {"v": 2}}, maps[1]))):
        row = ("ann", 1000, nested, inside, date(1970, 1, 1))
        make_log(spark, str(tmp_path / name / "log"), [[row]], schema=NESTED, partition_by=PARTITION)
    found = [read(spark, tmp_path / name, bounds=ONE_DAY).slices[0].fingerprint for name in ("one", "two", "three")]
    assert found[0] == found[1] != found[2]


def variants(spark: "SparkSession", lake: Path, text: str) -> None:
    rows: DataFrame = spark.sql(
        f"SELECT 'ann' AS user, at AS at_ms, parse_json('{text}') AS v, array(parse_json('{text}')) AS more, "
        "map('a', map('b', 1)) AS m, DATE'1970-01-01' AS day FROM VALUES (50000L), (1000L) AS t(at)"
    )
    writer = rows.coalesce(1).write.format("delta").partitionBy("day")
    writer.option("delta.enableRowTracking", "true").save(str(lake / "log"))


@pytest.mark.soak
def test_a_variant_is_read_as_its_json(spark: "SparkSession", tmp_path: Path) -> None:
    variants(spark, tmp_path / "one", '{"a": 1, "b": [true]}')
    variants(spark, tmp_path / "two", '{"b": [true], "a": 1}')
    one, two = (read(spark, tmp_path / name, bounds=ONE_DAY) for name in ("one", "two"))
    assert one.slices == two.slices
    assert in_order(one, "v", "more") == [('{"a":1,"b":[true]}', ['{"a":1,"b":[true]}'])] * 2


@pytest.mark.soak
def test_nested_columns_reach_the_side_tables(spark: "SparkSession", tmp_path: Path) -> None:
    variants(spark, tmp_path, '{"a": 1}')
    assert run_range(spark, tmp_path, pipeline_of(PIPELINE), ONE_DAY).is_published
    late = spark.read.format("delta").load(str(tmp_path / "clicks" / "late_records"))
    assert late.select("record.v", "record.more", "record.m").first() == ('{"a":1}', ['{"a":1}'], {"a": {"b": 1}})


def test_a_column_that_became_wider_is_kept_beside_its_old_field() -> None:
    stored = struct_type({"n": "integer", "s": struct_type({"a": "integer"}), "gone": "string"})
    columns = {"n": "long", "s": struct_type({"a": "integer", "b": "long"}), "n__bigint": "string", "gone": "string"}
    assert record_names(columns, [stored]) == {name: name for name in columns} | {"n": "n__bigint_"}
    assert record_names({"n": "integer"}, [stored]) == {"n": "n"}
    assert record_names({"n": "long"}, []) == {"n": "n"}


def test_a_record_keeps_the_stored_fields_that_the_log_has_no_more() -> None:
    stored = [struct_type({"n": "integer", "gone": "string"}), struct_type({"n": "integer", "other": "date"})]
    columns = {"new": "double", "n": "long"}
    found = record_type(columns, record_names(columns, stored), stored)
    assert found == struct_type(
        {"n": "integer", "other": "date", "gone": "string", "new": "double", "n__bigint": "long"}
    )


@pytest.mark.slow
def test_an_unused_column_may_become_wider(spark: "SparkSession", tmp_path: Path) -> None:
    """INT is BIGINT from the second day on: the first day's records keep their ids, the side tables both types."""
    table = f"delta.`{tmp_path / 'log'}`"
    spark.sql(
        f"CREATE TABLE {table} (user string, at_ms bigint, n int, day date) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.enableRowTracking' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} VALUES ('ann', 50000, 7, DATE'1970-01-01')")
    spark.sql(f"INSERT INTO {table} VALUES ('ann', 1000, 8, DATE'1970-01-01')")
    first = run_range(spark, tmp_path, pipeline_of(PIPELINE), ("1970-01-01", "1970-01-02"))
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN n TYPE bigint")
    spark.sql(f"INSERT INTO {table} VALUES ('ann', 2000, {2**40}, DATE'1970-01-02')")
    assert read(spark, tmp_path).slices[0].fingerprint == first.runs[0].result.input_fingerprint
    assert run_range(spark, tmp_path, pipeline_of(PIPELINE), ("1970-01-02", "1970-01-03")).is_published
    late = spark.read.format("delta").load(str(tmp_path / "clicks" / "late_records")).orderBy("slice_id")
    assert [tuple(row) for row in late.select("record.n", "record.n__bigint").collect()] == [(8, None), (None, 2**40)]


@pytest.mark.soak
def test_mixed_spellings_of_a_slice_are_all_replayed(spark: "SparkSession", tmp_path: Path) -> None:
    days = ["1970-01-02", "19700101", "1970-01-01", "1970-01-02T00:00"]
    rows = [[("ann", number * 1000, day)] for number, day in enumerate(days)]
    make_log(spark, str(tmp_path / "log"), rows, schema="user string, at_ms bigint, day string", partition_by=PARTITION)
    work = request_context(tmp_path)
    assert planned(work).start.note == "the chain begins at 1970-01-01: the log holds no record before it"
    assert [one.records.count for one in read(spark, tmp_path).slices] == [2, 2]


def test_a_damaged_data_file_is_one_clear_paragraph(spark: "SparkSession", tmp_path: Path) -> None:
    """The same size, and no Parquet file any more; then another number of records than the log says."""
    log = two_days(spark, tmp_path)
    file, other = sorted(log.glob("day=*/*.parquet"))
    whole = file.read_bytes()
    for crc in log.glob("day=*/.*.crc"):
        crc.unlink()
    file.write_bytes(whole[:-20] + bytes(20))
    with pytest.raises(LogError, match=re.escape(file.name)) as refused:
        read(spark, tmp_path)
    assert "slice 1970-01-01" in str(refused.value)
    assert "\n" not in str(refused.value)
    file.write_bytes(whole)
    for commit in sorted((log / "_delta_log").glob("*.json")):
        commit.write_text(commit.read_text().replace('numRecords\\":2', 'numRecords\\":3'))
    for crc in (log / "_delta_log").glob("*.crc"):
        crc.unlink()
    with pytest.raises(
        LogError, match=r"file day=1970-01-01/.* holds 2 records, but by its statistics version 1 has 3"
    ):
        read(spark, tmp_path)
    cut_off(other, keep=0.5)
    with pytest.raises(LogError, match="has another size now"):
        read(spark, tmp_path)


def fake_run(spark: "SparkSession", work: RequestContext, days: tuple[str, str]) -> None:
    """Runs in the ledger that have read what Spark reads; their windows are nobody's business here."""
    bounds = [parse_bound(work.pipeline, day) for day in days]
    slices = slices_between(work.pipeline, *bounds)
    pinned = pin_input(work.pipeline, work.lake, slices)
    found = read_log(spark, work.pipeline, pinned, slices)
    read_as = {one.slice_id: read.fingerprint for one, read in zip(slices, found.slices, strict=True)}
    replayer = FakeReplayer(change=lambda run: replace(run, input_fingerprint=read_as[run.slice.slice_id]))
    run_request(work, Asked(from_ms=bounds[0], to_ms=bounds[1], who="me", reason=""), replayer)


def test_what_the_delta_log_cannot_tell_is_read_and_recorded(spark: "SparkSession", tmp_path: Path) -> None:
    """OPTIMIZE and log cleaning are innocent; one record deleted and one inserted are not."""
    days = ("2024-01-01", "2024-01-02")
    for day in days:
        append_day(tmp_path, day, {"a": 1, "b": 2})
        append_day(tmp_path, day, {"c": 3})
    pipeline = sales(SALES)
    work = context_in(tmp_path, pipeline)
    log, bounds = tmp_path / "event_logs" / "sales", ("2024-01-01", "2024-01-03")
    fake_run(spark, work, bounds)
    version = work.ledger.view().version
    DeltaTable(str(log)).optimize.compact()
    assert reasons(work, bounds) == ["current", "current"], "the commit says that no data changed"
    DeltaTable(str(log)).delete("id = '2024-01-02/a/1'")
    append_day(tmp_path, days[1], {"d": 4})
    DeltaTable(str(log)).optimize.compact()
    clean_commits(log)
    assert reasons(work, bounds) == ["input unverified", "input unverified"]
    found = verify(spark, work, bounds)
    assert (found.equal, found.different, found.damaged) == (days[:1], days[1:], ())
    assert "damaged" not in found.summary
    assert "In 2024-01-02 the log holds other records than the run read" in found.summary
    assert reasons(work, bounds) == ["current", "input changed"]
    assert work.ledger.view().version == version + 2, "one commit for each job that found something new"
    assert verify(spark, work, bounds, records_per_job=1_000).different == days[1:]
    assert work.ledger.view().version == version + 2, "nothing new, nothing written"


@pytest.mark.slow
def test_a_flip_in_a_file_that_a_run_has_read_is_found_and_a_backup_mends_it(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The Delta log does not show it: the file has the same size. The checksum of the page does."""
    log = two_days(spark, tmp_path)
    run_range(spark, tmp_path, pipeline_of(PIPELINE), TWO_DAYS)
    work = request_context(tmp_path)
    for crc in log.glob("day=*/.*.crc"):
        crc.unlink()
    file = min(log.glob("day=1970-01-01/*.parquet"))
    whole, value = file.read_bytes(), (50_000).to_bytes(8, "little")
    assert value in whole, "the file stores it as it is"
    file.write_bytes(whole.replace(value, (50_001).to_bytes(8, "little"), 1))
    assert reasons(work) == ["current", "current"]
    with pytest.raises(LogError, match=rf"{file.name} .* is damaged"):
        verify(spark, work)
    file.write_bytes(whole)
    assert verify(spark, work).different == ()
    assert reasons(work) == ["current", "current"]
