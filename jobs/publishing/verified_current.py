"""Compares the current tables with what the ledger lets readers see (law L9)."""

from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.lake.damage import reading, refuse_outage
from jobs.lake.plain_table import PlainTable, open_plain
from jobs.ledger.publications import PublicationId
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext
from jobs.publishing.current_tables import MADE_AGAIN, Current, current_tables, damaged
from jobs.publishing.table_move import fit, published_rows_of
from jobs.reading.blocks import published_schema
from jobs.reading.selection import Selection
from jobs.reading.stored_rows import Finding
from windowlib.columnar.hashing import row_hashes
from windowlib.errors import StoreError
from windowlib.libraries import pa
from windowlib.records.row_ids import IdSum
from windowlib.records.xxh64 import SEED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def verify_current_tables(work: RequestContext, *, moving: bool = False) -> "Iterator[Finding]":
    """Yield what is wrong with the current tables: one that is behind, and one with other rows than readers see.

    `moving`: a publication may be at work, so one that is behind is left out.

    All rows are compared by a digest, in any order. `attempt_id` is left out: after `hindcast mend`, readers see an
    equal row of another attempt.
    Raises StoreError: the object store does not answer.
    """
    for current in current_tables(work):
        if moving and current.is_behind and not current.problem:
            continue
        what = str(current) if current.is_behind else _difference(work, current)
        if what is not None:
            yield Finding(table=f"current_{current.table}", what=what)


def _difference(work: RequestContext, current: Current) -> str | None:
    plain = open_plain(current.uri)
    if plain is None:
        return None  # nothing was published
    view = work.ledger.view()  # a publication may have moved the table since, or may be about to move it
    shows = PublicationId(*plain.shows)
    view = replace(view, published=view.published_at(shows.seq))
    try:
        schema = published_schema(work.lake, work.pipeline.name, Selection(table=current.table), view=view)
        expected = _sum(published_rows_of(work, current.table, view), schema)
    except StoreError as error:
        refuse_outage(current.uri, error)
        return f"cannot be compared with what readers see: {error}"
    try:
        stored = _sum(_blocks(plain), schema)
    except StoreError as error:
        return damaged(current.uri, error)
    if stored == expected:
        return None
    rows = [counted(side.count, "row") for side in (stored, expected)]
    return f"has other rows ({rows[0]}) than readers see at {shows} ({rows[1]}). {MADE_AGAIN}"


def _blocks(plain: PlainTable) -> "Iterator[pa.Table]":
    with reading(plain.uri):
        yield from (pa.Table.from_batches([batch]) for batch in plain.dataset().to_batches())


def _sum(blocks: "Iterable[pa.Table]", schema: "pa.Schema") -> IdSum:
    """Return the number of rows and the sum of their hashes, which do not depend on the order of rows and columns."""
    rows = (fit(block, schema).drop_columns(["attempt_id"]) for block in blocks)
    return IdSum.together(IdSum.of_array(row_hashes(part, SEED)) for part in rows)
