"""Compares the places that know the newest version of a ledger, and lists ledger files that no commit names (law L9).

The table itself cannot show that its newest commits were removed. Three other places can: the head file, the metadata
of the pipeline's table commits, and data files that no commit names.
"""

from dataclasses import dataclass
from typing import Final

from jobs.lake.damage import refuse_outage
from jobs.ledger.head import Head, heads_in_commits, read_head
from jobs.ledger.ledger import Ledger
from jobs.ledger.unnamed_files import unnamed_files
from jobs.reading.stored_rows import Finding
from windowlib.errors import StoreError
from windowlib.records import tables

_GOES_ON: Final = "If the commits are lost for good, `hindcast recover PIPELINE --reason …` goes on without them"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerVerification:
    """The findings, and the notes: what may be the rest of a killed process, or the trace of a loss."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def verify_ledger(ledger: Ledger) -> LedgerVerification:
    """Check all events of the ledger from the first one on, and compare it with its head file and table commits.

    The ledger may have been read from a snapshot before. The newest commits of a table are searched.

    Raises:
        LedgerError: the ledger cannot be read, or has lost commits that its head file names.
        StoreError: the object store does not answer.
    """
    findings: list[Finding] = []
    stored: tuple[Head, ...] = ()
    try:
        stored = heads_in_commits(ledger.uri)  # before the ledger, which then has all that it names
    except StoreError as error:  # else no other damage is told
        refuse_outage(ledger.uri, error)
        what = f"cannot be compared with the commits of table {tables.TALLIES}: {error}"
        findings.append(Finding(table=tables.LEDGER, what=what))
    ledger.read_whole()
    newest = ledger.newest() if ledger.view().version else None
    head = read_head(ledger.uri)
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
    if newest is not None and (lost := ledger.lost_head(stored)) is not None:
        if lost.version <= newest.version or lost != stored[0]:  # other events are in the place of the lost ones
            findings.append(Finding(table=tables.LEDGER, what=_lost(ledger, lost)))
        else:
            notes.append(_is_older(ledger, newest, lost))
    return LedgerVerification(findings=tuple(findings), notes=tuple(notes))


def _lost(ledger: Ledger, stored: Head) -> str:
    """Return the finding of a head in a table's commits in whose place the ledger has another event.

    If the head file is lost as well, the view has compared the newest commit.
    """
    return (
        f"a commit of table {tables.TALLIES} was made when the ledger had version {stored.version} with hash "
        f"{stored.tip[:12]}, which {ledger.uri} does not have: its last commits were lost. Restore the ledger's "
        f"directory from a backup. {_GOES_ON}"
    )


def _is_older(ledger: Ledger, newest: Head, stored: Head) -> str:
    """Return the note that tables are newer than their ledger, which has a head file: it is an older copy."""
    return (
        f"ledger {ledger.uri} is at version {newest.version}, and a commit of table {tables.TALLIES} was made when it "
        f"had version {stored.version}: the ledger was restored from an older copy than the tables, or the lake was "
        "copied while a process wrote to it. What the ledger had recorded since has not happened. If there is a newer "
        f"copy of the ledger's directory, restore that. {_GOES_ON}"
    )
