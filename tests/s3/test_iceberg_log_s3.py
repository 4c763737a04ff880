"""An Iceberg table in the store has the runs of the same records in an Iceberg table on a disk."""

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.lake.log_match import Match
from tests.s3.test_parquet_log_s3 import StoreShop
from tests.support.iceberg_logs import BY_DAY, IcebergShop, iceberg_table
from tests.support.log_shop import SCHEMA, records

pytestmark = pytest.mark.s3

FORM = "format: iceberg"


def test_an_iceberg_log_in_the_store_is_that_of_the_disk(lake: str, tmp_path: Path) -> None:
    client = {
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    disk, shop = IcebergShop(tmp_path / "disk"), StoreShop(tmp_path / "store", FORM, uri=f"{lake}/log")
    table = iceberg_table(f"{lake}/log", partitions=BY_DAY, client=client)
    rows = records(random.Random(1), 0, 30)
    for part in (rows[:20], rows[20:]):
        disk.append(part)
        table.append(pa.Table.from_pylist(part, schema=SCHEMA))
    assert disk.run().is_published
    assert shop.run().is_published
    assert shop.published() == disk.published()
    assert shop.changed() == {}
    table.append(pa.Table.from_pylist(records(random.Random(2), 99, 1, 1), schema=SCHEMA))
    assert shop.changed() == {"2026-03-02": Match.CHANGED}
