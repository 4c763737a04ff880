"""`examine` over logs that are no Delta table: what the proposed file says, and the findings that they have."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.doctor.column_roles import Wishes
from jobs.doctor.finding import Severity
from jobs.reading.log_places import found_format
from tests.jobs.doctor import tables
from tests.jobs.doctor.test_examination import examined, found
from tests.support.iceberg_logs import open_again
from tests.support.replays import pipeline_of
from windowlib.errors import LogError

PROPOSED = {
    "Parquet by date": ("by: dt", "  format: parquet\n  partitions: {dt: date} "),
    "Parquet by parts of dates": ("by: [year, month, day]", "  partitions: {year: bigint, day: bigint} "),
    "Parquet without partitions": ("by: received_at", "  format: parquet\n"),
    "Iceberg by date": ("by: dt", "  format: iceberg\n"),
    "Iceberg without partitions": ("by: received_at", "  format: iceberg\n"),
}


@pytest.mark.parametrize("kind", tables.OTHERS)
def test_the_proposed_file_has_the_format_and_the_types_of_partitions(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "clicks"
    tables.OTHERS[kind](place)
    examination = examined(place)
    accepted, proposal = examination.accepted, examination.proposal
    assert accepted is not None, [one.text for one in examination.findings if one.severity is Severity.ERROR]
    assert proposal is not None
    assert not [one for one in examination.findings if one.severity is Severity.ERROR]
    assert examination.sampled == examination.facts.records == 120
    slices, lines = PROPOSED[kind]
    assert lines in accepted.text
    assert (proposal.slices.text, proposal.order.columns) == (slices, ("received_at", "click_id"))
    assert accepted.range_ms == (1_704_067_200_000, 1_704_326_400_000)
    assert pipeline_of(accepted.text).name == "clicks_windows", "its tables are not among the files of the log"


def test_a_directory_has_no_findings_about_commits(tmp_path: Path) -> None:
    tables.OTHERS["Parquet by date"](tmp_path / "clicks")
    examination = examined(tmp_path / "clicks")
    subjects = {one.subject for one in examination.findings}
    assert not subjects & {"row tracking", "removed records", "append only", "history", "log retention"}
    assert "the directory has 120 records in 3 files" in found(examination, "records").text
    assert found(examination, "order").mend == "name columns in log.order"


def test_a_directory_without_a_time_of_arrival_has_no_slices(tmp_path: Path) -> None:
    """A column of dates is better than nothing. Without one, the grammar tells what is allowed."""
    rows = pa.Table.from_pylist(tables.clicks(Random(7))[0]).drop_columns("received_at")
    for name, own in (("date", rows), ("nothing", rows.drop_columns("dt"))):
        (tmp_path / name).mkdir()
        pq.write_table(own, tmp_path / name / "a.parquet")
    proposal = examined(tmp_path / "date").proposal
    assert proposal is not None
    assert proposal.slices.text == "by: dt"
    assert (
        "a directory of Parquet files has no commits; name partition"
        in found(examined(tmp_path / "nothing"), "refused").text
    )


def test_removed_and_rewritten_files_of_an_iceberg_table_are_found(tmp_path: Path) -> None:
    tables.OTHERS["Iceberg by date"](tmp_path / "clicks")
    table = open_again(tmp_path / "clicks")
    assert found(examined(tmp_path / "clicks"), "removed records").text == "none in the 3 commits that were read"
    table.delete("dt = '2024-01-01'")
    examination = examined(tmp_path / "clicks")
    assert "commit 4 (delete) removed or changed records" in found(examination, "removed records").text
    assert "hindcast accept-rewrite" in found(examination, "removed records").mend
    assert "'history.expire.max-snapshot-age-ms' = '2592000000'" in found(examination, "log retention").mend
    assert "of the snapshots" in found(examination, "order").text


def test_a_column_without_a_usable_name_is_renamed_only_where_the_format_can_do_it(tmp_path: Path) -> None:
    """Defect: the mapping of columns was named, which files of Parquet do not have. An Iceberg log refuses a rename."""
    tables.OTHERS["Parquet by date"](tmp_path)
    for file in tmp_path.rglob("*.parquet"):
        rows = pq.ParquetFile(file).read()
        pq.write_table(rows.rename_columns([name.replace("amount", "am\tount") for name in rows.column_names]), file)
    assert "append the records, in their order, to a new table" in found(examined(tmp_path), "names").mend


@pytest.mark.slow
def test_null_slices_of_both_are_found(tmp_path: Path) -> None:
    for kind, mend in (("Parquet by date", "remove the files without one"), ("Iceberg by date", "DELETE … WHERE dt")):
        place = tmp_path / kind
        tables.OTHERS[kind](place)
        lost = pa.Table.from_pylist([tables.clicks(Random(8))[0][0]])
        if kind.startswith("Parquet"):
            (place / "dt=__HIVE_DEFAULT_PARTITION__").mkdir()
            pq.write_table(lost.drop_columns("dt"), place / "dt=__HIVE_DEFAULT_PARTITION__" / "a.parquet")
        else:
            nothing = pa.nulls(1, pa.date32())
            open_again(place).append(lost.set_column(lost.schema.get_field_index("dt"), "dt", nothing))
        assert "1 record without dt" in found(examined(place), "null slices").text
        assert mend in found(examined(place, Wishes(slice_by=("dt",))), "refused").text


def test_the_format_is_that_of_the_metadata(tmp_path: Path) -> None:
    for kind, log_format in (("Parquet by date", "parquet"), ("Iceberg by date", "iceberg")):
        tables.OTHERS[kind](tmp_path / kind)
        assert found_format(str(tmp_path / kind)) == log_format
    tables.by_date(tmp_path / "delta")
    assert found_format(str(tmp_path / "delta")) == "delta"
    assert found_format("hdfs://host/log") == "delta"
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nothing"):
        assert found_format(str(tmp_path / name)) == "delta"
    with pytest.raises(LogError, match="with `format: iceberg`, an Iceberg table"):
        examined(tmp_path / "empty")
