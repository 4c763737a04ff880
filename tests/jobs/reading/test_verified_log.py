"""What `verify` finds in a log that no replay can see."""

import json
import random
from pathlib import Path

from jobs.reading.verified_log import LogVerification, verify_log
from jobs.reading.verify import Span
from tests.support.delta_logs import commits_of
from tests.support.log_shop import LogShop, records


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
