"""Commands over a ledger of which one event was replaced by a hostile one, with right hashes.

Each command does what it did before, or refuses the ledger with one paragraph.
"""

import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from jobs.ledger.chain import GENESIS, linked
from jobs.ledger.events import EventKind
from jobs.ledger.history import REMEMBERED
from jobs.ledger.table import LedgerTable
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FAILS, append_day
from tests.support.fuzzing import seeds
from tests.support.hostile_files import VALUES, bounded, mutated

RANGE: Final = ("--from", "2024-01-01", "--to", "2024-01-06")
COMMANDS: Final = (
    ("status",), ("status", "sales"), ("status", "sales", "--json"), ("show", "sales"), ("plan", "sales", *RANGE),
    ("plan", "sales", *RANGE, "--json"), ("report", "sales"), ("verify", "sales"), ("metrics",), ("diff", "sales"),
    ("explain", "sales", "2024-01-01/a/1"), ("changes", "sales", "--since", "0"), ("adopt", "sales", "--dry-run"),
    ("export", "sales", "--format", "csv", "--to", "rows.csv"), ("suite", "propose", "sales"), ("clean", "sales"),
)  # fmt: skip
"""The commands that do not write the ledger."""
NUMBERS: Final = (None, 0, -1, -(2**63), 2**63 - 1, 86_400_000)
TEXTS: Final = (None, "", "r", "2024-01-01", "\0\x1b[2J", "x" * 5_000, "{}", "pass")
FIXED: Final = frozenset({"commit_id", "seq", "ordinal", "commit_events", "hash", "previous"})
OF_NUMBERS: Final = frozenset({"records_read", "assigned", "late", "unassigned", "invalid", "panes", "seconds"})
Outcome = tuple[int, str, str]
Row = dict[str, Any]


@pytest.fixture
def lake(shell: Shell) -> Shell:
    """A lake with a published request, one that a failed check holds, a comment, a waiver and a cancelled request."""
    shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-03", "--reason", "first")
    append_day(shell.root, "2024-01-03", {"a": FAILS})
    shell("run", "sales", "--from", "2024-01-03", "--to", "2024-01-05", "--reason", "second")
    shell("waive", "sales", "2024-01-03", "--run", shell.failed_run("2024-01-03"), "--reason", "real")
    append_day(shell.root, "2024-01-01", {"a": 7})
    shell("verify", "sales")
    shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-02", "--as-candidate", "--reason", "third")
    shell("rollback", "sales", "--reason", "wrong", "--publication", "5")
    return shell


def replaced(rng: Random, rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Return the rows of a ledger with a hostile event in place of one, an intact chain, and what was changed."""
    number = rng.randrange(len(rows))
    row = dict(rows[number])
    name: str
    value: object
    match rng.randrange(6):
        case 0:
            name, value = "event", rng.choice([*(kind.value for kind in EventKind), "unknown"])
        case 1:
            name = rng.choice([name for name in row if name not in {*FIXED, "event", "details"}])
            value = rng.choice(NUMBERS if name.endswith("_ms") or name in OF_NUMBERS else TEXTS)
            value = 0 if value is None and name == "at_ms" else value
        case 2:
            name, value = "details", json.dumps(rng.choice(VALUES), ensure_ascii=True)
        case _:
            name, value = "details", mutated(rng, json.loads(row["details"])).decode("utf-8", errors="replace")
    what = f"event {row['ordinal']} of version {row['seq']} ({row['event']}): {name} = {value!r:.3000}"
    changed: list[Row] = [*rows[:number], {**row, name: value}, *rows[number + 1 :]]
    chained: list[Row] = []
    for seq in dict.fromkeys(row["seq"] for row in changed):
        own = [{key: item for key, item in row.items() if key != "hash"} for row in changed if row["seq"] == seq]
        chained += linked(own, chained[-1]["hash"] if chained else GENESIS)
    return chained, what


def outcomes(shell: Shell) -> dict[tuple[str, ...], Outcome]:
    """Run all commands; return the exit codes and what they printed."""
    found: dict[tuple[str, ...], Outcome] = {}
    for command in COMMANDS:
        REMEMBERED.forget_all()
        with bounded():
            status = shell(*command)
        found[command] = status, shell.out, shell.err
    return found


def problem(outcome: Outcome, intact: Outcome) -> str | None:
    """Return what is wrong with the outcome of a command over a hostile ledger, or None."""
    status, out, err = outcome
    if outcome == intact:
        return None
    if status not in {0, 1, 2}:
        return f"exit code {status}"
    for text in (out, err):
        if "Traceback" in text or "bug in Hindcast" in text or "report this" in text:
            return f"called a bug: {text[-1_500:]}"
        if "\x1b" in text or "\0" in text:
            return f"control characters: {text[:1_000]!r}"
    if "ledger is damaged" in out + err or "wrong content in" in out + err or "cannot be read" in out + err:
        is_placed = "/sales/ledger" in out + err and re.search(r"event \d+ of version \d+ \(", out + err)
        return None if is_placed else f"no ledger and event: {out}{err}"
    return None if status == 0 or err or out else "no message"


def test_a_hostile_event_is_refused_or_harmless(lake: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake.root)
    uri = str(lake.root / "sales" / "ledger")
    table = LedgerTable(uri)
    table.refresh()
    rows = [dict(row) for row in table.read(after=0)]
    hostile: list[Row] = rows

    def read(_table: LedgerTable, *, after: int) -> list[Mapping[str, Any]]:
        return [row for row in hostile if row["seq"] > after]

    monkeypatch.setattr(LedgerTable, "read", read)
    monkeypatch.setattr(LedgerTable, "head", lambda _table: None)
    monkeypatch.setattr(LedgerTable, "heads_elsewhere", lambda _table: ())
    intact = outcomes(lake)
    for seed in seeds(6):
        hostile, what = replaced(Random(seed), rows)
        for command, outcome in outcomes(lake).items():
            found = problem(outcome, intact[command])
            assert found is None, f"{' '.join(command)}: {found}\n{what}"
