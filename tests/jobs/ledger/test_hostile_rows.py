"""Ledgers whose hashes are right and whose content is wrong, as a script of a person would write them."""

import json
from pathlib import Path
from random import Random
from typing import Any

from jobs.ledger.chain import GENESIS, linked
from jobs.ledger.events import EventKind, LedgerEvent, event_rows, judged_event
from jobs.ledger.history import EventHistory
from jobs.ledger.snapshot import read_snapshot, write_snapshot
from jobs.reading.published import published_runs
from tests.jobs.ledger.test_ledger_view import a_result, about, requested, staged
from tests.support.fuzzing import seeds
from tests.support.hostile_files import VALUES, bounded, mutated
from windowlib.errors import HindcastError

NUMBERS = (None, 0, -1, -(2**63), 2**63 - 1, 86_400_000)
TEXTS = (None, "", "r", "run1", "run2", "a1", "2024-01-01", "\0", "x" * 5_000, "{}")
FIXED = frozenset({"event", "commit_id", "details", "seq", "ordinal", "commit_events", "hash", "previous"})


def a_ledger() -> list[LedgerEvent]:
    result, other = a_result(1), a_result(2)
    return [
        requested(),
        LedgerEvent(kind=EventKind.STARTED, request_id="r", attempt_id="a1", details={"slices": ["1970-01-01"]}),
        *staged(result),
        *staged(other),
        judged_event("r", "b", {"run1": result.checks}),
        about(EventKind.WAIVED, result, who="ann", reason="real"),
        LedgerEvent(kind=EventKind.COMPLETED, request_id="r", details={"repairs": {"run1": "run2"}}),
        about(EventKind.PUBLISHED, result, request_id="r"),
        about(EventKind.CONDEMNED, other),
        LedgerEvent(kind=EventKind.CLOSED, request_id="r", reason="done", details={"by": "ann"}),
    ]


def hostile_rows(chance: Random) -> list[dict[str, Any]]:
    """Return the rows of a ledger with one to three wrong events, one event a commit, and an intact chain."""
    commits = [event_rows([event], commit_id=str(index))[0] for index, event in enumerate(a_ledger())]
    for _ in range(chance.choice((1, 1, 2, 3))):
        row = chance.choice(commits)
        match chance.randrange(5):
            case 0:
                row["event"] = chance.choice([*(kind.value for kind in EventKind), "unknown"])
            case 1:
                name = chance.choice([name for name in row if name not in FIXED])
                row[name] = chance.choice(NUMBERS if isinstance(row[name], int) or name.endswith("_ms") else TEXTS)
                row["at_ms"] = row["at_ms"] or 0
            case 2:
                commits.insert(chance.randrange(len(commits)), dict(row))
            case 3:
                row["details"] = json.dumps(chance.choice(VALUES), ensure_ascii=True)
            case _:
                row["details"] = mutated(chance, _plain(row["details"])).decode("utf-8", errors="replace")
    previous, rows = GENESIS, []
    for number, row in enumerate(commits, start=1):
        rows += linked([{**row, "seq": number, "ordinal": 0, "commit_events": 1}], previous)
        previous = rows[-1]["hash"]
    return rows


def _plain(details: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(details)
    except (ValueError, RecursionError):  # an earlier change
        return {}


def read(rows: list[dict[str, Any]], uri: str) -> None:
    history = EventHistory(table_id="t")
    history.take_in(rows, {}, uri=uri)
    write_snapshot(uri, history)
    read_snapshot(uri)
    view = history.project.view(history.known)
    for run in view.runs.values():
        assert len(run.result.checks) >= 0
    assert published_runs(view) is not None


def test_wrong_content_with_right_hashes_is_read_or_refused(tmp_path: Path) -> None:
    for seed in seeds(60):
        rows = hostile_rows(Random(seed))
        try:
            with bounded():
                read(rows, str(tmp_path))
        except HindcastError as error:
            assert "ledger" in str(error)  # noqa: PT017 - most of the ledgers can be read
