"""Compares the places that know the newest version of a ledger, and lists ledger files that no commit names (law L9).

The table itself cannot show that its newest commits were removed. Three other places can: the head file, the metadata
of the pipeline's table commits, and data files that no commit names.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.lake.damage import refuse_outage
from jobs.ledger.head import RECENT_COMMITS, head_in_commits, read_head
from jobs.ledger.ledger import Ledger
from jobs.ledger.unnamed_files import unnamed_files
from jobs.reading.stored_rows import Finding
from windowlib.errors import StoreError
from windowlib.records import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerVerification:
    """The findings, and the notes: what may be the rest of a killed process, or the trace of a loss."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def verify_ledger(ledger: Ledger, *, recent: int = RECENT_COMMITS) -> LedgerVerification:
    """Check all events of the ledger from the first one on, and compare it with its head file and table commits.

    The ledger may have been read from a snapshot before. The newest `recent` commits of a table are searched.

    Raises:
        LedgerError: the ledger cannot be read, or has lost commits that its head file names.
        StoreError: the object store does not answer.
    """
    ledger.read_whole()
    newest = ledger.newest() if ledger.view().version else None
    head = read_head(ledger.uri)
    findings = [_finding(text) for text in _lost(ledger, recent=recent)]
    notes = [] if newest is None else [str(file) for file in unnamed_files(ledger.uri, ledger.commit_ids())]
    if newest is not None and head is None:
        notes.append(
            f"ledger {ledger.uri} has no head file, so a loss of its newest commits could not be noticed; its next "
            "write makes one"
        )
    elif newest is not None and head is not None and head.version < newest.version:
        notes.append(
            f"ledger {ledger.uri} is at version {newest.version}, and its head file names version {head.version}: a "
            "process ended between the two writes, and the next write of the ledger mends it"
        )
    return LedgerVerification(findings=tuple(findings), notes=tuple(notes))


def _lost(ledger: Ledger, *, recent: int) -> Iterator[str]:
    """Yield a text for a head in a table's commits that the ledger does not have.

    If the head file is lost as well, the view has compared the newest commit. A copy of a lake that was made during a
    replay has tables that are newer than its ledger, and a head file.
    """
    try:
        stored = head_in_commits(ledger.uri, recent=recent)
    except StoreError as error:  # else no other damage is told
        refuse_outage(ledger.uri, error)
        yield f"its newest version cannot be compared with the commits of table {tables.TALLIES}: {error}"
        return
    if stored is not None and not ledger.has(stored) and stored.version <= ledger.view().version:
        yield (
            f"a commit of table {tables.TALLIES} was made when the ledger had version {stored.version} with hash "
            f"{stored.tip[:12]}, which {ledger.uri} does not have: its last commits were lost. Restore the ledger's "
            "directory from a backup"
        )


def _finding(text: str) -> Finding:
    return Finding(table=tables.LEDGER, slice_id=None, attempt_id=None, file=None, what=text)
