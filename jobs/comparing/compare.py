"""Compares two views of a pipeline exactly, in bounded memory. docs/reference/comparing.md describes the result.

Only the rows of slices whose digests differ are read, and the rows of the same windows in other slices, because the
last pane of a window may be in another slice.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.comparing.column_changes import ColumnChanges
from jobs.comparing.comparison_keys import Shape, Specs, shape_of, specs_of
from jobs.comparing.differences import Change, Differences, Sample, TableDifference
from jobs.comparing.matching import COUNTS_SQL, PAIRS_SQL, ROW_COUNTS_SQL, Matched, match_rows
from jobs.comparing.partitions import Divided, Limits, Parts
from jobs.comparing.views import Sides
from jobs.lake.arrow_sql import ArrowSql
from jobs.lake.lake import Lake
from jobs.lake.store import table_columns
from jobs.reading.plain_values import plain, rows_of
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, digest_of
from jobs.reading.stored_tables import keys_by_run
from jobs.spark.private_dir import private_directory
from windowlib.records import tables
from windowlib.records.row_ids import NO_ROWS

if TYPE_CHECKING:
    from jobs.ledger.view import StagedRun

_Ranked = tuple[float, str, Sample]


class TableCounter:
    """Adds up the differences of one table over its parts."""

    def __init__(self, shape: Shape, parts: Parts, *, samples: int) -> None:
        """Prepare; `samples` is the number of samples of each kind of change."""
        self._shape, self._sql, self._most = shape, parts.sql, samples
        self._limits, self._directory = parts.limits, parts.directory
        self._counts: Counter[str] = Counter()
        self._columns: dict[str, ColumnChanges] = {}
        self._samples: dict[Change, list[_Ranked]] = {change: [] for change in Change}

    def add(self, part: Matched) -> None:
        pairs = self._sql.query({"seen": part.seen}, PAIRS_SQL)
        self._count(part, pairs)
        before, after = pairs["before_row"], pairs["after_row"]
        self._sample_alone(part, pairs.filter(after.is_null())["before_row"], Change.ONLY_BEFORE)
        self._sample_alone(part, pairs.filter(before.is_null())["after_row"], Change.ONLY_AFTER)
        matched = pairs.filter(pc.and_(before.is_valid(), after.is_valid()))
        for start in range(0, matched.num_rows, self._limits.pair_rows):
            self._add_pairs(part, matched.slice(start, self._limits.pair_rows))

    def result(self) -> TableDifference:
        columns = [changes.result() for changes in self._columns.values()]
        columns.sort(key=lambda changes: (not changes.is_value, -changes.count))
        return TableDifference(
            table=self._shape.table,
            unit=self._shape.unit,
            keys=self._shape.keys,
            only_before=self._counts["only_before"],
            only_after=self._counts["only_after"],
            changed=self._counts["changed"],
            same_values=self._counts["same_values"],
            equal=self._counts["equal"],
            columns=tuple(changes for changes in columns if changes.count),
            samples=tuple(ranked[2] for change in Change for ranked in self._samples[change]),
            only_before_columns=self._shape.only_before,
            only_after_columns=self._shape.only_after,
        )

    def _count(self, part: Matched, pairs: pa.Table) -> None:
        if self._shape.unit.is_of_windows:
            self._counts.update(self._sql.query({"seen": part.seen}, COUNTS_SQL).to_pylist()[0])
            return
        self._counts.update(self._sql.query({"seen": part.seen}, ROW_COUNTS_SQL).to_pylist()[0])
        only_before, only_after = pairs["after_row"].null_count, pairs["before_row"].null_count
        changed = int(pc.sum(pairs["is_change"]).as_py() or 0) - only_before - only_after
        self._counts.update(only_before=only_before, only_after=only_after, changed=changed)

    def _add_pairs(self, part: Matched, pairs: pa.Table) -> None:
        rows = [part.rows.take(pairs[name]) for name in ("before_row", "after_row")]
        differs: dict[str, Any] = {}
        scores = np.zeros(pairs.num_rows)
        for name in (*self._shape.values, *self._shape.circumstances):
            sides = [_whole(side[name]) for side in rows]
            changes = self._changes(name, sides[0].type)
            differs[name], scores_of_column = changes.add(sides[0], sides[1])
            if changes.is_value:
                scores = np.maximum(scores, scores_of_column)
        is_change = np.asarray(_whole(pairs["is_change"]).to_numpy(zero_copy_only=False), np.bool_)
        best = np.flatnonzero(is_change)
        best = best[np.argsort(-scores[best], kind="stable")[: self._most]]
        taken = [rows_of(side.take(pa.array(best))) for side in rows]
        self._keep(
            Change.CHANGED,
            (
                (
                    -float(scores[at]),
                    self._sample(
                        Change.CHANGED, old, new, differs=tuple(name for name in differs if differs[name][at])
                    ),
                )
                for at, old, new in zip(best.tolist(), *taken, strict=True)
            ),
        )

    def _changes(self, name: str, kind: pa.DataType) -> ColumnChanges:
        if name not in self._columns:
            files = self._directory / f"column-{len(self._columns)}"
            self._columns[name] = ColumnChanges(
                name, kind, is_value=name in self._shape.values, files=files, kept_numbers=self._limits.kept_numbers
            )
        return self._columns[name]

    def _sample_alone(self, part: Matched, rows: pa.ChunkedArray, change: Change) -> None:
        taken = rows_of(part.rows.take(rows.slice(0, self._most)))
        is_before = change is Change.ONLY_BEFORE
        samples = (self._sample(change, row, None) if is_before else self._sample(change, None, row) for row in taken)
        self._keep(change, ((0.0, sample) for sample in samples))

    def _sample(
        self, change: Change, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *,
        differs: tuple[str, ...] = (),
    ) -> Sample:  # fmt: skip
        shown = dict.fromkeys((*self._shape.values, *self._shape.circumstances, "slice_id"))
        row = before or after or {}
        sides = [None if side is None else {name: plain(side[name]) for name in shown} for side in (before, after)]
        match = {name: plain(row[name]) for name in self._shape.match}
        return Sample(change=change, match=match, before=sides[0], after=sides[1], differs=differs)

    def _keep(self, change: Change, scored: Iterable[tuple[float, Sample]]) -> None:
        ranked = [(score, repr(sample.match), sample) for score, sample in scored]
        self._samples[change] = sorted((*self._samples[change], *ranked), key=lambda entry: entry[:2])[: self._most]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    assert not isinstance(whole, pa.ChunkedArray), "the pairs of one block fit one array"
    return whole


SAMPLES = 20


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

    Raises StoreError: a file cannot be read, or the rows differ from those that were written (law L9).
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
    named = {name for run in sides.differing for name in run.result.digests}
    side_outputs = sorted(name for name in named if name.startswith(tables.SIDE_OUTPUTS))
    for table in (tables.WINDOW_OUTPUTS, *tables.RECORD_TABLES, *side_outputs):
        columns = table_columns(stored.lake.table(stored.pipeline, table))
        for keys, divided in _divided(sides, table).items():
            if not any(digest_of(run, table) != NO_ROWS for run in (*divided.before, *divided.after)):
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
    groups: defaultdict[tuple[str, ...], tuple[list[StagedRun], ...]] = defaultdict(lambda: ([], [], []))
    runs = (*sides.before.runs.values(), *sides.after.runs.values())
    keys_of = {} if table in tables.RECORD_TABLES else keys_by_run(sides.view, runs)
    for slice_id in sorted({*sides.before.runs, *sides.after.runs}):
        old, new = sides.before.runs.get(slice_id), sides.after.runs.get(slice_id)
        keys = [None if run is None else keys_of.get(run.result.run_id, ()) for run in (old, new)]
        if old and new and keys[0] == keys[1] and digest_of(old, table) == digest_of(new, table):
            groups[keys[0] or ()][2].append(old)
            continue
        if old is not None:
            groups[keys[0] or ()][0].append(old)
        if new is not None:
            groups[keys[1] or ()][1].append(new)
    return {
        name: Divided(before=tuple(before), after=tuple(after), both=tuple(both))
        for name, (before, after, both) in groups.items()
        if before or after
    }


def _notes(differences: list[TableDifference]) -> tuple[str, ...]:
    keys = [table.keys for table in differences if table.table == tables.WINDOW_OUTPUTS]
    if len(keys) < 2:  # noqa: PLR2004
        return ()
    spelled = " and ".join(f"({', '.join(columns)})" for columns in keys)
    return (f"the specs have different key columns, {spelled}: windows with different key columns are not matched",)
