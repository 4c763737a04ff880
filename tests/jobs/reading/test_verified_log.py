"""What `verify` finds in a log that no replay can see."""

import json
import random
from pathlib import Path

import pytest

from jobs.reading.verified_log import LogVerification, verify_log
from jobs.reading.verify import Span
from tests.support.delta_logs import commits_of
from tests.support.log_shop import LogShop, records
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


def test_a_file_that_no_slice_reads_and_that_is_gone_hides_no_damage(tmp_path: Path) -> None:
    """Defect: the only finding was that file, so the clean-up stopped, and damage of published slices was not told."""
    shop, chance = LogShop(tmp_path, by='day, first: "2026-03-02"'), random.Random(1)
    for day in range(3):
        shop.put(records(chance, 100 * day, 5, day), by=None)
    assert shop.run(1, 3).is_published
    first, second, _ = (
        next(entry["add"]["path"] for line in commit.read_text().splitlines() if "add" in (entry := json.loads(line)))
        for commit in commits_of(shop.log)
    )
    (shop.log / first).unlink()
    assert (verified(shop, Span()).findings, verified(shop, Span()).files) == ((), 2)
    content = (shop.log / second).read_bytes()
    (shop.log / second).write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    assert [finding.file for finding in verified(shop, Span()).findings] == [second]


@pytest.mark.parametrize("by", ["day", None])
def test_a_record_without_a_slice_is_no_damage(tmp_path: Path, by: str | None) -> None:
    """Defect: the maintenance told to restore what is damaged from a backup, and did not clean up."""
    shop, chance = LogShop(tmp_path), random.Random(1)
    for day in range(3):
        shop.put(records(chance, 100 * day, 5, day), by=by)
    assert shop.run().is_published
    shop.put([{**records(chance, 900, 1, 1)[0], "day": None}], by=by)
    with pytest.raises(LogError, match="has 1 record whose slice column 'day' is null"):
        shop.run()
    found = verified(shop, Span())
    assert (found.findings, found.files) == ((), 3)
