"""Moves a current table from the publication that it shows to the newest one.

A row of window_outputs is in the partition of the slice of its pane. A slice that changed can hide or show a pane of
another slice. So the affected windows are those with a pane in the old or in the new run of a changed slice. The
partitions of the changed slices, and those with a row of an affected window, are replaced: rows of other windows are
copied, and rows of affected windows are read from the published runs.
"""

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from jobs.lake import plain_table
from jobs.lake.damage import reading
from jobs.lake.delta_tables import pause_s
from jobs.lake.durable_commits import sync_newest
from jobs.lake.plain_table import PlainTable, Replacement, create_plain, open_plain, write_rows
from jobs.ledger.publications import PublicationId, newest_id
from jobs.ledger.view import LedgerView
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext
from jobs.publishing.affected_windows import AffectedWindows
from jobs.reading.blocks import published_blocks, published_schema
from jobs.reading.published import runs_by_keys
from jobs.reading.selection import Selection, readable_tables
from jobs.reading.stored_rows import StoredRuns
from windowlib.errors import LedgerError, StoreError
from windowlib.records.tables import WINDOW_OUTPUTS

log = logging.getLogger(__name__)

MAX_TRIES: Final = 20
"""How many times a move is tried. A try fails if another process has moved the table first."""
WHOLE_FROM: Final = 0.5
"""If more than this part of the slices has changed, the whole table is written anew, block by block."""


def move_table(work: RequestContext, table: str, *, uri: str) -> None:
    """Move the current table of a table to the newest publication or rollback.

    Raises StoreError: a table cannot be read or written, or published rows differ from those that were written.
    """
    name = work.pipeline.name
    for attempt in range(MAX_TRIES):
        plain = open_plain(uri)
        view = work.ledger.view()  # is read after the table, so it has the publication that the table shows
        schema = published_schema(work.lake, name, Selection(table=table), view=view)
        if plain is None:
            create_plain(uri, schema)
            continue
        newest = newest_id(view.publications)
        if plain.shows == newest:
            sync_newest(uri)
            return
        projection = _Projection(work=work, table=table, view=view, plain=plain, schema=schema)
        slices, rows = projection.part() or (None, projection.whole())
        notes = {"pipeline": name, "table": table, "ledger_version": str(newest.seq)}
        notes = {f"hindcast.{key}": value for key, value in notes.items()}
        new = Replacement(schema=schema, slices=slices, shows=newest, notes=notes)
        if plain_table.replace_slices(plain, _written(uri, rows), new):
            what = "the whole table" if slices is None else counted(len(slices), "slice")
            log.info("current table %s of %s shows %s: replaced %s", table, name, newest, what)
            return
        time.sleep(pause_s(attempt))
    raise StoreError(f"table {uri}: other processes moved it first {MAX_TRIES} times in a row")


def _written(uri: str, rows: Iterable[pa.Table]) -> Iterator[Any]:
    return (action for block in rows if block.num_rows for action in write_rows(uri, block))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Projection:
    """A current table, and the view of the ledger that it is to show."""

    work: RequestContext
    table: str
    view: LedgerView
    plain: PlainTable
    schema: pa.Schema

    def whole(self) -> Iterator[pa.Table]:
        """Yield all rows that readers see."""
        return published_rows_of(self.work, self.table, self.view)

    def part(self) -> tuple[Collection[str], list[pa.Table]] | None:
        """Return the partitions to replace, and their new rows; None if the whole table is to be written.

        It is written as a whole if it shows nothing, or a publication that the ledger has not; if most slices have
        changed; if specs with different key columns are published, so that a row does not tell its window; and if the
        rows of runs that readers saw before, or of the table, are removed or damaged.
        """
        shows = PublicationId(*self.plain.shows)
        if shows not in (past.id for past in self.view.publications):
            return None
        before, after = self.view.published_at(shows.seq), self.view.published
        changed = {slice_id for slice_id in {*before, *after} if before.get(slice_id) != after.get(slice_id)}
        try:
            keys = {
                group.keys for view in (replace(self.view, published=before), self.view) for group in runs_by_keys(view)
            }
            if len(changed) > WHOLE_FROM * len({*before, *after}) or len(keys) > 1:
                return None
            return self._part(changed, before, keys=next(iter(keys), ()))
        except (LedgerError, StoreError) as error:
            log.info("current table %s is written as a whole, because a part cannot be: %s", self.table, error)
            return None

    def _part(
        self, changed: set[str], before: dict[str, str], *, keys: tuple[str, ...]
    ) -> tuple[Collection[str], list[pa.Table]]:
        stored = StoredRuns(self.work.lake, self.work.pipeline.name, self.view)
        old, new = (
            [self.view.run(run_id) for slice_id, run_id in runs.items() if slice_id in changed]
            for runs in (before, self.view.published)
        )
        if self.table != WINDOW_OUTPUTS:
            return changed, [fit(stored.read(self.table, new), self.schema)]
        affected = AffectedWindows.of(stored, [*old, *new], keys)
        rows = affected.shown(stored)
        with reading(self.plain.uri):
            slices = changed.union(affected.of_plain(self.plain)["slice_id"].to_pylist())
            others = affected.others(self.plain.dataset(slices).to_table())
        return slices, [fit(others, self.schema), fit(rows, self.schema)]


def fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema. Columns that they lack are null, and others are left out."""
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema)


def published_rows_of(work: RequestContext, table: str, view: LedgerView) -> Iterator[pa.Table]:
    """Yield the rows of a table that readers see, in blocks; none if no published run has written the table.

    Raises StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    if table in readable_tables(view):
        yield from published_blocks(work.lake, work.pipeline.name, Selection(table=table), view=view)
