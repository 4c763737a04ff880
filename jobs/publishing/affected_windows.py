"""The windows that have a pane in some runs, and their rows in other places."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.lake.arrow_sql import query
from jobs.lake.plain_table import PlainTable
from jobs.lake.row_filter import RowFilter
from jobs.ledger.view import StagedRun
from jobs.reading.published import BOUNDS, quote_duckdb, read_published
from jobs.reading.stored_rows import StoredRuns
from windowlib.libraries import pa, pc
from windowlib.records.tables import WINDOW_OUTPUTS

_START = BOUNDS[0]


@dataclass(frozen=True, slots=True)
class AffectedWindows:
    """Windows, as different rows of the key columns and the bounds. `match` are the names of these columns."""

    match: tuple[str, ...]
    windows: "pa.Table"

    @classmethod
    def of(cls, stored: StoredRuns, runs: Sequence[StagedRun], keys: Sequence[str]) -> "AffectedWindows":
        """Return the windows with a pane of some runs.

        Raises StoreError: a file cannot be read, or the rows differ from those that were written.
        """
        match = (*keys, *BOUNDS)
        parts = [
            pa.Table.from_batches([batch]).select(match).group_by([*match]).aggregate([])
            for batch in stored.batches(WINDOW_OUTPUTS, runs, match)
        ]
        return cls(match, pa.concat_tables(parts).group_by([*match]).aggregate([]) if parts else pa.table({}))

    def shown(self, stored: StoredRuns) -> "pa.Table":
        """Return the rows of these windows that readers see.

        Raises StoreError: a file cannot be read, or the rows differ from those that were written.
        """
        parts = [read_published(stored.lake, stored.pipeline, stored.view, chosen=chosen) for chosen in self._around()]
        return self._joined(parts, "SEMI")

    def of_plain(self, table: PlainTable) -> "pa.Table":
        """Return the rows of these windows in a current table: the columns of `match`, and `slice_id`."""
        columns = (*self.match, "slice_id")
        return self._joined([chosen.read(table.dataset(chosen=chosen), columns) for chosen in self._around()], "SEMI")

    def others(self, rows: "pa.Table") -> "pa.Table":
        """Return the rows of all other windows."""
        return self._joined([rows], "ANTI") if self.windows.num_rows else rows

    def _joined(self, parts: "Sequence[pa.Table]", how: str) -> "pa.Table":
        filled = [part for part in parts if part.num_rows]
        if not filled:
            return pa.table({"slice_id": pa.array([], pa.string())})
        rows = pa.concat_tables(filled, promote_options="permissive")
        same = " AND ".join(
            f"shown.{name} IS NOT DISTINCT FROM windows.{name}" for name in map(quote_duckdb, self.match)
        )
        sql = f"SELECT shown.* FROM shown {how} JOIN windows ON {same}"  # noqa: S608  (identifiers are quoted)
        return query({"shown": rows, "windows": self.windows}, sql)

    def _around(self) -> Iterator[RowFilter]:
        """Yield filters that choose these windows and others between them, each once. A global window has no start."""
        if not self.windows.num_rows:
            return
        starts = self.windows[_START]
        if starts.null_count:
            yield RowFilter(values={_START: pa.nulls(1, starts.type)})
        ends = pc.min_max(starts)
        if ends["min"].is_valid:
            after = pa.scalar(ends["max"].value + 1, starts.type)
            yield RowFilter(time=_START, from_=ends["min"], to=after)
