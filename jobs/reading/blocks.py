"""The published rows of a table in blocks, so that the memory does not grow with the table."""

from collections.abc import Iterator
from dataclasses import replace

from jobs.lake.filtered_files import time_cuts
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.ledger.view import LedgerView
from jobs.reading.published import BOUNDS, HIDDEN, published_runs, read_published
from jobs.reading.selection import Selection
from jobs.reading.stored_rows import StoredRuns, run_attempt
from jobs.reading.stored_tables import reader_columns
from windowlib.columnar.arrow import arrow_type
from windowlib.libraries import pa
from windowlib.records.tables import WINDOW_OUTPUTS

BLOCK_ROWS = 250_000


def published_schema(lake: Lake, pipeline: str, wanted: Selection, *, view: LedgerView) -> "pa.Schema":
    """Return the columns that `published_blocks` returns."""
    hidden = HIDDEN if wanted.table == WINDOW_OUTPUTS else ()
    stored = reader_columns(lake, pipeline, wanted.table, view=view)
    names = wanted.columns or [name for name in stored if name not in hidden]
    return pa.schema([pa.field(name, arrow_type(stored[name])) for name in names])


def published_blocks(
    lake: Lake, pipeline: str, wanted: Selection, *, view: LedgerView, rows: int = BLOCK_ROWS
) -> "Iterator[pa.Table]":
    """Yield the published rows that a reader asks for in blocks of about `rows` rows, windows in their order.

    All panes of a window start at one instant. So the windows are read by ranges of their starts, which the statistics
    of the files tell. A block has more rows if a file has. The rows are compared with the ledger as
    `StoredRuns.filtered` tells, and those of a table with few rows, or of another table, as `StoredRuns.read` tells.

    Raises:
        RequestError: as `Selection.checked` raises.
        StoreError: a file cannot be read, or the rows differ from those that were written. Blocks may have been
            returned before, so a caller shows nothing before the last one.
    """
    chosen = wanted.checked(lake, pipeline, view)
    schema = published_schema(lake, pipeline, wanted, view=view)
    runs = published_runs(view)
    if wanted.table != WINDOW_OUTPUTS:
        batches = StoredRuns(lake, pipeline, view).batches(wanted.table, runs, schema.names)
        yield from (pa.Table.from_batches([batch]).cast(schema) for batch in batches)
        return
    uri = lake.table(pipeline, WINDOW_OUTPUTS)
    cuts = time_cuts(uri, map(run_attempt, runs), BOUNDS[0], rows=rows)
    for part in ranges(chosen, cuts) if cuts else [chosen]:
        block = read_published(lake, pipeline, view, chosen=part, columns=schema.names)
        if block.num_rows:
            yield block.cast(schema)


def ranges(chosen: RowFilter | None, cuts: "list[pa.Scalar]") -> Iterator[RowFilter]:
    """Yield filters that choose each row of `chosen` once, in the ranges between some ascending times."""
    whole = chosen or RowFilter(time=BOUNDS[0])
    low, high = (None if bound is None else bound.as_py() for bound in (whole.from_, whole.to))
    inner = [cut for cut in cuts if (low is None or cut.as_py() > low) and (high is None or cut.as_py() < high)]
    for start, end in zip([whole.from_, *inner], [*inner, whole.to], strict=True):
        is_last = end is whole.to and whole.from_ is None and whole.to is None
        yield replace(whole, from_=start, to=end, or_null=is_last and start is not None)
