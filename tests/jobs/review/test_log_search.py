"""A record of the log is found by its id, and the search tells why another one is not."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.publishing.accepting import accept_rewrites, rewrites_of
from jobs.review.explain import Explanation, explain
from jobs.review.log_search import LogRecord, records_of
from tests.support.log_shop import SCHEMA, LogShop, records
from windowlib.errors import LogError, RequestError


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


@pytest.mark.slow
def test_a_record_that_a_commit_has_removed_since_is_explained(tmp_path: Path) -> None:
    """Defect: readers see it in a window, and `explain` told that the log has no such record."""
    shop = LogShop(tmp_path, "record_id: seq")
    for day in range(3):
        rows = [row | {"k": "ann"} for row in records(random.Random(day), 10 * day, 5, day)]
        shop.put(sorted(rows, key=lambda row: row["at"]))
    assert shop.run().is_published
    work = shop.work

    def explained(number: int) -> Explanation:
        return explain(work.lake, work.pipeline, str(number), view=work.ledger.view())

    def fates() -> dict[int, tuple[str, str | None]]:
        every = {number: explained(number) for number in (10, 11, 12, 13, 14, 20)}
        return {number: (one.fate, one.slice_id) for number, one in every.items()}

    before = fates()
    shop.put(records(random.Random(9), 90, 1, 1))
    DeltaTable(str(shop.log)).delete("day = '2026-03-02'")
    with pytest.raises(RequestError, match="has no record"):
        explained(90)
    assert fates() == before
    assigned = next(number for number, (fate, _) in before.items() if fate == "assigned" and number < 20)
    sentence = explained(assigned).sentence
    assert "In the log, commit 4 (DELETE) has removed or changed the record since." in sentence
    view = work.ledger.view()
    rewrites = rewrites_of(work, view)
    accept_rewrites(work, rewrites, rewrites.rewrites, reason="a test", who="ann")
    assert fates() == before
    assert shop.run().is_published
    with pytest.raises(RequestError, match="has no record"):
        explained(assigned)
