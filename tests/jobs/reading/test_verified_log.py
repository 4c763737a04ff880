"""What `verify` finds in a log that no replay can see."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.reading.verified_log import LogVerification, verify_log
from jobs.reading.verify import Span
from tests.support.delta_logs import commits_of
from tests.support.log_shop import SCHEMA, LogShop, Row, records
from windowlib.errors import LogError


def verified(shop: LogShop, span: Span) -> LogVerification:
    return verify_log(shop.work.lake, shop.work.pipeline, shop.work.ledger.view(), span=span)


def test_a_file_whose_statistics_name_another_day_is_found(tmp_path: Path) -> None:
    """Defect: no replay opens such a file, and nothing told that its records are missing."""
    shop, chance = LogShop(tmp_path), random.Random(1)
    for day in range(3):
        shop.put(records(chance, 100 * day, 5, day), by=None)
    commit = commits_of(shop.log)[1]
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    [add] = [action["add"] for action in actions if "add" in action]
    add["stats"] = add["stats"].replace("2026-03-02", "2026-05-02")
    right = commit.read_text()
    commit.write_text("\n".join(map(json.dumps, actions)))
    outcome = shop.run()
    assert [run.result.counts.read for run in outcome.runs] == [5, 0, 5]
    [finding] = verified(shop, Span()).findings
    assert finding.file == add["path"]
    assert "is from 2026-05-02 00:00:00 UTC to 2026-05-02 00:00:00 UTC, and its footer from 2026-03-02" in finding.what
    assert sum(len(verified(shop, Span(shares=3, chosen=frozenset({share}))).findings) for share in range(3)) == 1
    assert not verified(shop, Span(slice_id="2026-03-01")).findings
    commit.write_text(right)
    assert "is not the file that an earlier run has read" in verified(shop, Span()).findings[0].what


@pytest.mark.parametrize("kind", ["partition", "column", "text"])
def test_a_record_without_a_slice_is_no_damage(tmp_path: Path, kind: str) -> None:
    """Defect: `maintain` advised a backup each day, and did not clean the lake."""
    shop, own = LogShop(tmp_path), SCHEMA.set(SCHEMA.get_field_index("day"), pa.field("day", pa.string()))
    schema = own if kind == "text" else SCHEMA

    def append(rows: list[Row]) -> None:
        table = pa.Table.from_pylist([row | {"day": row["day"] and str(row["day"])} for row in rows], own)
        by = None if kind == "column" else ["day"]
        write_deltalake(str(shop.log), table.cast(schema), mode="append", partition_by=by)

    for day in range(3):
        append(records(random.Random(day), 10 * day, 5, day))
    assert shop.run().is_published
    before = verified(shop, Span())
    [first, second] = records(random.Random(9), 100, 2, 1)
    append([first | {"day": "unknown" if kind == "text" else None}, second])
    after = verified(shop, Span())
    assert (before.findings, after.findings) == ((), ())
    assert after.files + after.unknown == before.files + before.unknown + 1
    with pytest.raises(LogError, match="unknown" if kind == "text" else "is null"):
        shop.run()
