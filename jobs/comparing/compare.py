"""Compares two views of a pipeline exactly, in bounded memory. docs/reference/comparing.md describes the result.

Only the rows of slices whose digests differ are read, and the rows of the same windows in other slices, because the
last pane of a window may be in another slice.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jobs.comparing.comparison_keys import Shape, Specs, shape_of, specs_of
from jobs.comparing.differences import Differences, TableDifference
from jobs.comparing.matching import match_rows
from jobs.comparing.partitions import Divided, Limits, Parts
from jobs.comparing.table_counter import TableCounter
from jobs.comparing.views import Sides
from jobs.lake.arrow_sql import ArrowSql
from jobs.lake.lake import Lake
from jobs.lake.store import table_columns
from jobs.ledger.view import LedgerView, StagedRun
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, digest_of
from jobs.reading.stored_tables import spec_of
from jobs.spark.private_dir import private_directory
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

SAMPLES = 20
_NO_ROWS = IdSum().digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Options of a comparison.

    `all_panes`: compare every pane, not only those that readers see by default. `samples`: how many rows side by side,
    of each table and each kind of change. `content_rows`: see `read_published`.
    """

    all_panes: bool = False
    samples: int = SAMPLES
    content_rows: int | None = CONTENT_ROWS
    limits: Limits = field(default_factory=Limits)


DEFAULT = Comparison()


def compare(lake: Lake, pipeline: str, sides: Sides, *, options: Comparison = DEFAULT) -> Differences:
    """Return the differences between two views of a pipeline: windows, late, unassigned, invalid records, side outputs.

    Raises:
        StoreError: a file cannot be read, or the rows differ from those that were written (law L9).
    """
    differences: list[TableDifference] = []
    rows, with_content = 0, True
    stored = StoredRuns(lake, pipeline, sides.view, options.content_rows)
    for shape, divided in compared_tables(stored, sides, all_panes=options.all_panes):
        with opened_parts(stored, shape, options.limits) as parts:
            counter = TableCounter(shape, parts, samples=options.samples)
            for part in parts.read(divided):
                counter.add(match_rows(parts.sql, part, shape))
            differences.append(counter.result())
            rows += parts.rows
            with_content = with_content and parts.with_content
    return Differences(
        pipeline=pipeline,
        ledger_version=sides.view.version,
        before=sides.before.name,
        after=sides.after.name,
        request_id=sides.request_id,
        slices=sides.slices,
        tables=tuple(differences),
        rows=rows,
        with_content=with_content,
        notes=_notes(differences),
    )


def compared_tables(stored: StoredRuns, sides: Sides, *, all_panes: bool) -> Iterator[tuple[Shape, Divided]]:
    """Yield the tables in which runs of the two views can differ, by the digests in the ledger; outputs first.

    A table comes once for each set of key columns of the runs' specs.
    """
    runs = [run for side in (sides.before, sides.after) for name in sides.slices if (run := side.runs.get(name))]
    named = {name for run in runs for name in run.result.digests}
    side_outputs = sorted(name for name in named if name.startswith(tables.SIDE_OUTPUTS))
    for table in (tables.WINDOW_OUTPUTS, *tables.RECORD_TABLES, *side_outputs):
        columns = table_columns(stored.lake.table(stored.pipeline, table))
        for keys, divided in _divided(sides, table).items():
            if not any(digest_of(run, table) != _NO_ROWS for run in (*divided.before, *divided.after)):
                continue
            specs = Specs(
                keys=keys,
                before=specs_of(sides.view, (*divided.before, *divided.both)),
                after=specs_of(sides.view, (*divided.after, *divided.both)),
            )
            yield shape_of(table, specs, columns, all_panes=all_panes), divided


@contextmanager
def opened_parts(stored: StoredRuns, shape: Shape, limits: Limits) -> Iterator[Parts]:
    """Open a reader of the parts of a table. Its temporary files are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="compare-", dir=private_directory()) as name:
        directory = Path(name)
        with ArrowSql(memory_mb=limits.memory_mb, spill=str(directory / "duckdb")) as sql:
            yield Parts(stored, shape, limits=limits, directory=directory, sql=sql)


def _divided(sides: Sides, table: str) -> dict[tuple[str, ...], Divided]:
    """Return the runs of both views by the key columns of their specs.

    A slice whose runs have the same digest has equal rows in both views. Records have no key columns.
    """
    before: dict[tuple[str, ...], list[StagedRun]] = {}
    after: dict[tuple[str, ...], list[StagedRun]] = {}
    both: dict[tuple[str, ...], list[StagedRun]] = {}
    for slice_id in sorted({*sides.before.runs, *sides.after.runs}):
        old, new = sides.before.runs.get(slice_id), sides.after.runs.get(slice_id)
        keys = [None if run is None else _keys(sides.view, run, table) for run in (old, new)]
        if old and new and keys[0] == keys[1] and digest_of(old, table) == digest_of(new, table):
            both.setdefault(keys[0] or (), []).append(old)
            continue
        if old is not None:
            before.setdefault(keys[0] or (), []).append(old)
        if new is not None:
            after.setdefault(keys[1] or (), []).append(new)
    return {
        name: Divided(
            before=tuple(before.get(name, ())), after=tuple(after.get(name, ())), both=tuple(both.get(name, ()))
        )
        for name in {**before, **after}
    }


def _keys(view: LedgerView, run: StagedRun, table: str) -> tuple[str, ...]:
    return () if table in tables.RECORD_TABLES else spec_of(view, run).log.key_columns


def _notes(differences: list[TableDifference]) -> tuple[str, ...]:
    keys = [table.keys for table in differences if table.table == tables.WINDOW_OUTPUTS]
    if len(keys) < 2:  # noqa: PLR2004
        return ()
    spelled = " and ".join(f"({', '.join(columns)})" for columns in keys)
    return (f"the specs have different key columns, {spelled}: windows with different key columns are not matched",)
