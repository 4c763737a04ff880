"""Step 3 of a replay, write: commit the rows of every table under the attempt.

Readers do not see them, because the ledger does not name the attempt yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.lake.durable_commits import commits_awaited_together
from jobs.lake.store import ensure_table
from jobs.replay.chunk.driver_rows import append_driver_rows
from jobs.replay.computed import Computed
from windowlib.records import tables
from windowlib.records.tables import Table


@dataclass(frozen=True, slots=True)
class Written:
    """A chunk whose rows are committed, and not audited yet."""

    computed: Computed


def write(computed: Computed) -> Written:
    """Create the tables that are missing, and append the rows: one commit per table for all slices of the chunk.

    Raises:
        SpecError: a table holds columns that the pipeline's rows do not fit.
        AuditError: a shuffle file is damaged; the attempt is void.
    """
    pinned, tallies = computed.pinned, computed.tallies
    with commits_awaited_together():
        for table in pinned.tables.stored:
            ensure_table(pinned.uri(table.name), table)
    with commits_awaited_together():
        computed.run.rows.write(computed.runs)
        _append(computed, tables.watermarks(), dict(enumerate(computed.watermarks)))
        _append(computed, tables.tallies(), {run.slice_no: tallies.rows(run.slice_no) for run in computed.runs})
    return Written(computed)


def _append(computed: Computed, table: Table, rows: Mapping[int, Sequence[Mapping[str, object]]]) -> None:
    placed = [{**row, **run.columns()} for run in computed.runs for row in rows[run.slice_no]]
    append_driver_rows(computed.pinned.uri(table.name), table, placed, metadata=computed.pinned.order.commit_metadata())
