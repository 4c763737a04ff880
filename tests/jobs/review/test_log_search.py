"""A record of the log is found by its id, and the search tells why another one is not."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.review.log_search import LogRecord, records_of
from tests.support.log_shop import SCHEMA, LogShop, records
from windowlib.errors import LogError


def found(shop: LogShop, number: int) -> list[LogRecord]:
    work = shop.work
    return records_of(work.lake, work.pipeline, str(number), view=work.ledger.view(), only=None)


@pytest.mark.parametrize(("day", "words"), [(None, "because its 'day' is null"), ("unknown", "the value 'unknown'")])
def test_a_record_without_a_slice_is_told_and_the_others_are_found(tmp_path: Path, day: str | None, words: str) -> None:
    shop = LogShop(tmp_path, "record_id: seq")
    rows = [row | {"day": str(row["day"])} for row in records(random.Random(1), 0, 6)]
    rows[0]["day"] = day
    schema = SCHEMA.set(SCHEMA.get_field_index("day"), pa.field("day", pa.string()))
    write_deltalake(str(shop.log), pa.Table.from_pylist(rows, schema), partition_by=["day"])
    with pytest.raises(LogError, match=words):
        found(shop, 0)
    assert [found(shop, row["seq"])[0].slice_id for row in rows[1:]] == [row["day"] for row in rows[1:]]
