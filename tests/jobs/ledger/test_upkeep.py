"""The table of a ledger, and the other tables, stay small however long a schedule runs."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.lake.store import ensure_table
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.history import REMEMBERED
from jobs.ledger.ledger import Ledger, LedgerLimits
from jobs.ledger.table import LedgerTable
from jobs.ledger.unnamed_files import unnamed_files
from windowlib.records import tables

NOTE = LedgerEvent(kind=EventKind.NOTE)
WRITES = 60


def set_properties(place: Path, **properties: str) -> None:
    DeltaTable(place).alter.set_table_properties({f"delta.{name}": value for name, value in properties.items()})


def property_of(place: Path, name: str) -> str | None:
    return DeltaTable(place).metadata().configuration.get(f"delta.{name}")


@pytest.mark.slow
@pytest.mark.parametrize("keep_merged_ms", [0, 86_400_000])
def test_a_ledger_keeps_few_files_and_all_its_events(tmp_path: Path, keep_merged_ms: int) -> None:
    place = tmp_path / "ledger"
    ledger = Ledger(str(place), now_ms=lambda: 1, limits=LedgerLimits(compact_every=10))
    ledger._store = LedgerTable(str(place), keep_merged_ms=keep_merged_ms)
    ledger.write(lambda _view: [NOTE])
    set_properties(place, logRetentionDuration="interval 0 seconds", checkpointInterval="10")
    behind = LedgerTable(str(place))
    behind.refresh()
    for _ in range(WRITES):
        ledger.write(lambda _view: [NOTE])
    commits, data = list(place.glob("_delta_log/*.json")), list(place.glob("*.parquet"))
    assert len(commits) <= 20
    assert len(data) <= 20 if keep_merged_ms == 0 else len(data) > WRITES
    REMEMBERED.forget_all()
    fresh = Ledger(str(place), now_ms=lambda: 1)
    fresh.view()
    fresh.read_whole()
    assert len(fresh.commit_ids()) == WRITES + 1
    assert unnamed_files(str(place), fresh.commit_ids()) == ()
    assert behind.refresh() > WRITES, "a process that has opened the ledger before reads on"
    assert len(behind.read(after=1)) == WRITES


def test_properties_of_earlier_versions_are_renewed_and_those_of_a_person_stay(tmp_path: Path) -> None:
    place = tmp_path / "ledger"
    Ledger(str(place), now_ms=lambda: 1).write(lambda _view: [NOTE])
    new = property_of(place, "logRetentionDuration")
    for stored, expected in (("interval 36500 days", new), ("interval 2 days", "interval 2 days")):
        set_properties(place, logRetentionDuration=stored)
        Ledger(str(place), now_ms=lambda: 1).write(lambda _view: [NOTE])
        assert property_of(place, "logRetentionDuration") == expected
    table, outputs = tables.tallies(), tmp_path / "tallies"
    ensure_table(str(outputs), table)
    new = property_of(outputs, "logRetentionDuration")
    for stored, expected in (("interval 365 days", new), ("interval 400 days", "interval 400 days")):
        set_properties(outputs, logRetentionDuration=stored)
        ensure_table(str(outputs), table)
        assert property_of(outputs, "logRetentionDuration") == expected
