"""Checks the checkpoint before a chunk, before the chunk starts from it (law L9).

The driver compares the sums of the stored ids with the ledger. This finds rows that were lost or doubled. The tasks
compute the id of every row that they restore from its content (`windowlib.columnar.restored`). If a table has few rows,
the driver does that as well, before the tasks start.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.lake.store import read_attempts, read_each_attempt
from jobs.lake.table_files import Attempt
from jobs.reading.id_sums import removed_ids
from jobs.reading.stored_rows import CONTENT_ROWS, Finding, Stored, file_of
from jobs.replay.chunk.tallies import Sums, state_fingerprint
from jobs.runs import CheckpointRef
from windowlib.columnar.restored import BEFORE, DAMAGED, RESTORED
from windowlib.errors import CheckpointError, StoreError
from windowlib.libraries import pa
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

REMEDY = (
    "Nothing was written. `hindcast verify PIPELINE` names the slice that stored it, and `hindcast mend` makes its "
    "rows again. Or begin anew with --fresh"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The stored rows of a checkpoint: their ids by table, and how many changed since the last full checkpoint."""

    ids: Mapping[str, IdSum] = field(default_factory=dict)
    changes: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointCheck:
    """Compares the rows of a checkpoint with the ledger.

    `before` is the checkpoint as the ledger describes it. `uri_of` returns the path of a table. `stored` are the tables
    of the pipeline. The driver computes ids from content if a table has at most `content_rows` rows.
    """

    before: CheckpointRef
    uri_of: Callable[[str], str]
    stored: Sequence[Table]
    content_rows: int = CONTENT_ROWS

    def check(self) -> StoredState:
        """Check the stored rows.

        Raises CheckpointError: rows were lost, doubled or changed, or a file cannot be read.
        """
        named = {table.name: table for table in self.stored if table.name in tables.CHECKPOINT_TABLES}
        removed, changes = self._removed(), 0
        sums = {}
        for name, table in named.items():
            parts = self.check_table(table)
            changes += sum(ids.count for attempt, ids in parts.items() if attempt != self.before.attempts[0])
            sums[name] = IdSum.together(parts.values())
            gone = removed.get(name, IdSum())
            sums[name].remove(gone)
            changes += gone.count
        everything = {name: sums.get(name, IdSum()) for name in tables.CHECKPOINT_TABLES}
        if state_fingerprint(everything) != self.before.fingerprint:
            counts = ", ".join(f"{name} {ids.count:,}" for name, ids in everything.items())
            raise self._error(
                f"its rows ({counts}) do not add up to the state {self.before.fingerprint[:12]} of the ledger: rows "
                "were lost, doubled or changed"
            )
        return StoredState(ids=sums, changes=changes if self.before.earlier else 0)

    def check_restored(self, counted: Sums, sums: Mapping[str, IdSum]) -> None:
        """Check what the tasks report about the rows that they restored.

        Raises CheckpointError: a task found damage, or the tasks restored other rows than `check` found.
        """
        damaged = [term for number, equation, term in counted if (number, equation) == (BEFORE, DAMAGED)]
        if damaged:
            raise self._error(min(damaged))
        for name, ids in sums.items():
            if name == tables.WATERMARKS:  # the driver restores them
                continue
            restored = counted.get((BEFORE, RESTORED, name), IdSum())
            if restored.as_row() != ids.as_row():
                raise self._error(
                    f"the tasks restored {restored.count:,} rows of {name}, and {ids.count:,} are stored, or their "
                    f"content has changed since{self._named(name)}"
                )

    def check_table(self, table: Table) -> Mapping[Attempt, IdSum]:
        """Check the rows of one table; return the sum of their ids for each part of the checkpoint.

        Raises CheckpointError: rows were lost, doubled or changed, or a file cannot be read.
        """
        attempts = self._attempts(table.name)
        try:
            parts = read_each_attempt(self.uri_of(table.name), attempts, (tables.ROW_ID,))
            sums = {attempt: _sum_of(rows) for attempt, rows in zip(attempts, parts, strict=True)}
            first = next(self._findings(table, sums, rows=sum(rows.num_rows for rows in parts)), None)
        except StoreError as error:
            raise self._error(str(error)) from error
        if first is not None:
            raise self._error(str(first))
        return {attempt: ids or IdSum() for attempt, ids in sums.items()}

    def _removed(self) -> Mapping[str, IdSum]:
        """Check the removals; return the sum of the removed ids by table."""
        if not self.before.earlier:
            return {}
        self.check_table(tables.state_removals())
        columns = ("table_name", "removed_id")
        rows = read_attempts(self.uri_of(tables.STATE_REMOVALS), self._attempts(tables.STATE_REMOVALS), columns)
        return removed_ids(rows) if rows.num_rows else {}

    def _findings(self, table: Table, sums: Mapping[Attempt, IdSum | None], *, rows: int) -> Iterator[Finding]:
        """Yield what is wrong with the rows of a table, which have these sums of ids."""
        attempts, uri = [*sums], self.uri_of(table.name)
        # The ledger has the digest of the whole state, which only a full checkpoint has under one attempt.
        digest = None if self.before.earlier else self.before.digests.get(table.name)
        run_ids = {(part.slice_id, part.attempt_id): part.run_id for part in self.before.parts}
        stored = Stored(uri=uri, table=table, run_ids=run_ids, digests=dict.fromkeys(attempts, digest))
        if 0 < rows <= self.content_rows:
            yield from stored.findings(read_attempts(uri, attempts), with_content=True)
            return
        yield from stored.sum_findings(sums)

    def _attempts(self, table: str) -> tuple[Attempt, ...]:
        match table:
            case tables.WATERMARKS:
                return self.before.attempts[-1:]
            case tables.STATE_REMOVALS:
                return self.before.attempts[1:]
            case _:
                return self.before.attempts

    def _named(self, table: str) -> str:
        file = file_of(self.uri_of(table), self.before.attempts[-1])
        return f" (file {file})" if file else ""

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint of slice {self.before.slice_id} (attempt {self.before.attempt_id}) is damaged: {what}. "
            f"{REMEDY}"
        )


def _sum_of(rows: "pa.Table") -> IdSum | None:
    """Return the sum of the ids of some rows; None if a row has no id."""
    if not rows.num_rows:
        return IdSum()
    if tables.ROW_ID not in rows.column_names or rows[tables.ROW_ID].null_count:
        return None
    return IdSum.of_array(rows[tables.ROW_ID].to_numpy())
