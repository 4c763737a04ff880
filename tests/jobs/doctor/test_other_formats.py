"""`examine` over logs that are no Delta table: the proposed file gives the runs of the same records in a Delta table."""

import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import IdentityTransform

from jobs.doctor.column_roles import Wishes
from jobs.doctor.examination import Examination
from jobs.doctor.finding import Severity
from jobs.lake.lake import Lake
from jobs.lake.log_places import found_format
from jobs.planning.log_pin import pin_input
from tests.jobs.doctor import tables
from tests.jobs.doctor.test_examination import examined, found
from tests.support.iceberg_logs import change_metadata, iceberg_table
from tests.zoo.parquet_forms import write_hive  # noqa: F401


def _days() -> list[pa.Table]:
    return [pa.Table.from_pylist(rows) for rows in tables.clicks(Random(7))]


def _hive(place: Path) -> None:
    for number, rows in enumerate(_days()):
        directory = place / f"dt={rows['dt'][0].as_py()}"
        directory.mkdir(parents=True)
        pq.write_table(rows.drop_columns("dt"), directory / f"part-{number}.parquet")


def _hive_by_parts(place: Path) -> None:
    for number, rows in enumerate(_days()):
        day: date = rows["dt"][0].as_py()
        directory = place / f"year={day.year}" / f"month={day.month:02}" / f"day={day.day}"
        directory.mkdir(parents=True)
        pq.write_table(rows.drop_columns("dt"), directory / f"part-{number}.parquet")


def _flat(place: Path) -> None:
    place.mkdir()
    for number, rows in enumerate(_days()):
        pq.write_table(rows.drop_columns("dt"), place / f"part-{number}.parquet")


def _iceberg(place: Path) -> None:
    table = iceberg_table(place, _days()[0].schema, partitions={"dt": IdentityTransform()})
    for rows in _days():
        table.append(rows)


def _iceberg_flat(place: Path) -> None:
    table = iceberg_table(place, _days()[0].drop_columns("dt").schema)
    for rows in _days():
        table.append(rows.drop_columns("dt"))


KINDS: list[tuple[Callable[[Path], None], str, str, str]] = [
    (_hive, "parquet", "by: dt", "  format: parquet\n  partitions: {dt: date}"),
    (_hive_by_parts, "parquet", "by: [year, month, day]", "partitions: {year: bigint, day: bigint}"),
    (_flat, "parquet", "by: received_at", "  format: parquet\n"),
    (_iceberg, "iceberg", "by: dt", "  format: iceberg\n"),
    (_iceberg_flat, "iceberg", "by: received_at", "  format: iceberg\n"),
]


@pytest.mark.parametrize(("write", "log_format", "slices", "lines"), KINDS)
def test_a_file_is_proposed_that_runs(
    tmp_path: Path, write: Callable[[Path], None], log_format: str, slices: str, lines: str
) -> None:
    place = tmp_path / "clicks"
    write(place)
    assert found_format(str(place)) == log_format
    examination = examined(place)
    accepted, proposal = examination.accepted, examination.proposal
    assert accepted is not None, [one.text for one in examination.findings if one.severity is Severity.ERROR]
    assert proposal is not None
    assert not [one for one in examination.findings if one.severity is Severity.ERROR]
    assert examination.sampled == examination.facts.records == 120
    assert lines in accepted.text
    assert (proposal.slices.text, proposal.order.columns) == (slices, ("received_at", "click_id"))
    assert accepted.range_ms == (1_704_067_200_000, 1_704_326_400_000)
    assert pin_input(accepted.pipeline, Lake(root=str(tmp_path)), ()).version == examination.facts.log.version
