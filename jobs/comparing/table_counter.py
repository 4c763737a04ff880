"""Adds up the differences of one table over its parts, and keeps samples."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.comparing.column_changes import ColumnChanges
from jobs.comparing.comparison_keys import Shape
from jobs.comparing.differences import Change, Sample, TableDifference
from jobs.comparing.matching import COUNTS_SQL, PAIRS_SQL, ROW_COUNTS_SQL, Matched
from jobs.comparing.partitions import Parts
from jobs.reading.plain_values import plain, rows_of

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
        matched = pairs.filter(pa.compute.and_(before.is_valid(), after.is_valid()))
        for start in range(0, matched.num_rows, self._limits.pair_rows):
            self._add_pairs(part, matched.slice(start, self._limits.pair_rows))

    def result(self) -> TableDifference:
        """Return the differences of all parts."""
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
        changed = int(pa.compute.sum(pairs["is_change"]).as_py() or 0) - only_before - only_after
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
                (-float(scores[at]), self._sample(Change.CHANGED, old, new, differs=self._differing(differs, at)))
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

    def _differing(self, differs: Mapping[str, Any], row: int) -> tuple[str, ...]:
        return tuple(name for name, where in differs.items() if where[row])

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
