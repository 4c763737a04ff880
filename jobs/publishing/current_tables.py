"""Plain Delta tables of exactly what readers see (`publish.current_tables`), for readers without Hindcast.

A table is a projection of the ledger. Each commit stores which publication or rollback it shows, and moves the table
from there to the newest one in one step. So a move that a killed process has left out is made up for by the next one,
and a second move to the same publication does nothing.

A row of window_outputs is in the partition of the slice of its pane. A slice that changed can hide or show a pane of
another slice. So the affected windows are those with a pane in the old or in the new run of a changed slice. The
partitions of the changed slices, and those with a row of an affected window, are replaced: rows of other windows are
copied, and rows of affected windows are read from the published runs.
"""

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from jobs.lake.damage import reading
from jobs.lake.delta_tables import pause_s
from jobs.lake.store import table_columns
from jobs.ledger.view import LedgerView
from jobs.planning.request_context import RequestContext
from jobs.reading.published import runs_by_keys
from jobs.reading.selection import Selection, readable_tables
from jobs.reading.stored_rows import StoredRuns
from windowlib.errors import HindcastError, LedgerError, StoreError
from windowlib.records.tables import WINDOW_OUTPUTS

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.lake.plain_table import PlainTable

log = logging.getLogger(__name__)

MAX_TRIES: Final = 20
"""How many times a move is tried. A try fails if another process has moved the table first."""
WHOLE_FROM: Final = 0.5
"""If more than this part of the slices has changed, the whole table is written anew, block by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """A current table. `shows` and `newest` are publications or rollbacks; None: nothing.

    The ledger's view decides what it is to show: `newest`.
    """

    table: str
    uri: str
    shows: int | None
    newest: int | None

    @property
    def is_behind(self) -> bool:
        """Whether it does not show the newest publication or rollback."""
        return self.shows != self.newest

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON data."""
        return {"table": self.table, "uri": self.uri, "shows": self.shows, "behind": self.is_behind}

    def __str__(self) -> str:
        shown = "nothing" if self.shows is None else f"publication {self.shows}"
        if not self.is_behind:
            return f"current table {self.table} shows {shown}, the newest"
        return (
            f"current table {self.table} is behind: it shows {shown}, and readers of the ledger see publication "
            f"{self.newest}. The next run, publication or rollback moves it"
        )


def current_tables(work: RequestContext, view: LedgerView) -> tuple[Current, ...]:
    """Return which publication each current table of the pipeline file shows.

    Raises:
        StoreError: a table cannot be read.
    """
    names = () if work.pipeline.publish is None else work.pipeline.publish.current_tables
    return tuple(_current(work, view, name) for name in names)


def _current(work: RequestContext, view: LedgerView, table: str) -> Current:
    from jobs.lake.plain_table import open_plain

    uri = work.lake.table(work.pipeline.name, f"current_{table}")
    plain = open_plain(uri)
    shows = None if plain is None else plain.shows
    is_written = bool(view.publications and table_columns(work.lake.table(work.pipeline.name, table)))
    return Current(table=table, uri=uri, shows=shows, newest=view.publications[-1].seq if is_written else shows)


def move_current_tables(work: RequestContext) -> None:
    """Move each current table of the pipeline file to the newest publication or rollback of the ledger.

    Raises:
        StoreError: a table could not be moved. The message tells that the ledger has the publication.
    """
    try:
        for table in current_tables(work, work.ledger.view()):
            if table.is_behind:
                _move(work, table)
    except HindcastError as error:
        raise StoreError(
            f"readers of the ledger of pipeline {work.pipeline.name} see its newest publication, but a current table "
            f"was not moved to it: {error}. Run the same command again when the cause is gone"
        ) from error


def _move(work: RequestContext, current: Current) -> None:
    from jobs.lake.plain_table import Replacement, create_plain, open_plain, replace_slices
    from jobs.reading.blocks import published_schema

    name = work.pipeline.name
    for attempt in range(MAX_TRIES):
        schema = published_schema(work.lake, name, Selection(table=current.table))
        plain = open_plain(current.uri)
        if plain is None:
            create_plain(current.uri, schema)
            continue
        view = work.ledger.view()  # is read after the table, so it has the publication that the table shows
        newest = view.publications[-1].seq
        if plain.shows == newest:
            return
        projection = _Projection(work=work, table=current.table, view=view, plain=plain, schema=schema)
        slices, rows = projection.part() or (None, projection.whole())
        notes = {"pipeline": name, "table": current.table, "ledger_version": str(newest)}
        notes = {f"hindcast.{key}": value for key, value in notes.items()}
        new = Replacement(schema=schema, slices=slices, shows=newest, notes=notes)
        if replace_slices(plain, _written(current.uri, rows), new):
            what = "the whole table" if slices is None else f"{len(slices)} slices"
            log.info("current table %s of %s shows publication %d: replaced %s", current.table, name, newest, what)
            return
        time.sleep(pause_s(attempt))
    raise StoreError(f"table {current.uri}: other processes moved it first {MAX_TRIES} times in a row")


def _written(uri: str, rows: "Iterable[pa.Table]") -> Iterator[Any]:
    from jobs.lake.plain_table import write_rows

    return (action for block in rows if block.num_rows for action in write_rows(uri, block))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Projection:
    """A current table, and the view of the ledger that it is to show."""

    work: RequestContext
    table: str
    view: LedgerView
    plain: "PlainTable"
    schema: "pa.Schema"

    def whole(self) -> "Iterator[pa.Table]":
        """Yield all rows that readers see."""
        return published_rows_of(self.work, self.table, self.view)

    def part(self) -> "tuple[Collection[str], list[pa.Table]] | None":
        """Return the partitions to replace, and their new rows; None if the whole table is to be written.

        It is written as a whole if it shows nothing, or a publication that the ledger has lost; if most slices have
        changed; if specs with different key columns are published, so that a row does not tell its window; and if the
        rows of runs that readers saw before, or of the table, are removed or damaged.
        """
        shows = self.plain.shows
        if shows is None or shows > self.view.version:
            return None
        before, after = self.view.published_at(shows), self.view.published
        changed = {slice_id for slice_id in {*before, *after} if before.get(slice_id) != after.get(slice_id)}
        try:
            keys = {group.keys for view in (self._seen(before), self.view) for group in runs_by_keys(view)}
            if len(changed) > WHOLE_FROM * len({*before, *after}) or len(keys) > 1:
                return None
            return self._part(changed, before, keys=next(iter(keys), ()))
        except (LedgerError, StoreError) as error:
            log.info("current table %s is written as a whole, because a part cannot be: %s", self.table, error)
            return None

    def _part(
        self, changed: set[str], before: dict[str, str], *, keys: tuple[str, ...]
    ) -> "tuple[Collection[str], list[pa.Table]]":
        stored = StoredRuns(self.work.lake, self.work.pipeline.name, self.view)
        old, new = (
            [self.view.run(run_id) for slice_id, run_id in runs.items() if slice_id in changed]
            for runs in (before, self.view.published)
        )
        if self.table != WINDOW_OUTPUTS:
            return changed, [fit(stored.read(self.table, new), self.schema)]
        from jobs.publishing.affected_windows import AffectedWindows

        affected = AffectedWindows.of(stored, [*old, *new], keys)
        rows = affected.shown(stored)
        with reading(self.plain.uri):
            slices = changed.union(affected.of_dataset(self.plain.dataset())["slice_id"].to_pylist())
            others = affected.others(self.plain.dataset(slices).to_table())
        return slices, [fit(others, self.schema), fit(rows, self.schema)]

    def _seen(self, published: dict[str, str]) -> LedgerView:
        return replace(self.view, published=published)


def fit(rows: "pa.Table", schema: "pa.Schema") -> "pa.Table":
    """Return rows with the columns of a schema. Columns that they lack are null, and others are left out."""
    import pyarrow as pa

    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema)


def published_rows_of(work: RequestContext, table: str, view: LedgerView) -> "Iterator[pa.Table]":
    """Yield the rows of a table that readers see, in blocks; none if no published run has written the table.

    Raises:
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    from jobs.reading.blocks import published_blocks

    if table in readable_tables(view):
        yield from published_blocks(work.lake, work.pipeline.name, Selection(table=table), view=view)
