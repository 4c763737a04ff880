"""How much a publication changes windows that readers take as final (docs/reference/comparing.md#settled-windows)."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.comparing.column_changes import amounts
from jobs.comparing.compare import DEFAULT, Comparison, compared_tables, opened_parts
from jobs.comparing.comparison_keys import Shape, Specs, shape_of, specs_of
from jobs.comparing.differences import match_words
from jobs.comparing.matching import AT, GROUP, PAIRS_SQL, STAGE, Matched, match_rows
from jobs.comparing.partitions import ROW, SIDE, Divided
from jobs.comparing.views import Sides
from jobs.lake.arrow_sql import ArrowSql
from jobs.lake.lake import Lake
from jobs.lake.store import table_columns
from jobs.reading.plain_values import plain, rows_of
from jobs.reading.published import BOUNDS, runs_by_keys
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.stored_tables import spec_of
from windowlib.columnar.hashing import row_hashes
from windowlib.columnar.watermark_steps import Bools
from windowlib.columnar.xxhash import Numbers
from windowlib.errors import SpecError
from windowlib.records import tables
from windowlib.records.xxh64 import SEED

NAMED_WINDOWS = 5

_CHANGED_SQL = f"""
    SELECT * FROM (
        SELECT {GROUP}, bool_or({AT} = 0) AS had, bool_or({AT} = 1) AS has, bool_or({STAGE} = 3) AS is_change,
            bool_or({AT} = 1 AND is_seen_slice) AS is_in_seen,
            max(slice_id) FILTER (WHERE {SIDE} < 2) AS slice_id, min({ROW}) AS {ROW}
        FROM seen JOIN narrow USING ({ROW}) WHERE epoch_us(window_end) <= ? GROUP BY {GROUP}
    ) AS windows
    WHERE (had AND (NOT has OR is_change)) OR (has AND NOT had AND is_in_seen)
    ORDER BY {ROW}
"""  # noqa: S608
"""The query for the settled windows that a publication changes.

A window that no reader has seen is a change only if it is in a slice that readers see already.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Which windows are settled: those that end at `until_ms` or before. `columns` are those whose change is summed."""

    until_ms: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledChange:
    """How much a publication changes settled windows.

    - `changed`: windows with another value, windows that would be gone, and windows that would be new in a slice that
      readers see already. `by_slice` has their number by slice, and `windows` names a few of each slice.
    - `seen`: the settled windows that readers see. It is counted only if `changed` is not 0.
    - `columns`: for each column, the sum of the absolute changes and the sum of the absolute values that readers see.
    """

    until_ms: int
    changed: int = 0
    seen: int = 0
    by_slice: Mapping[str, int] = field(default_factory=dict)
    windows: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The changed windows as a part of the settled windows that readers see."""
        return _part(self.changed, self.seen)

    def column_share(self, name: str) -> float:
        """The change of a column as a part of what readers see."""
        return _part(*self.columns.get(name, (0.0, 0.0)))


def settled_change(
    lake: Lake, pipeline: str, sides: Sides, *, settled: Settled, options: Comparison = DEFAULT
) -> SettledChange:
    """Return how much `sides.after` changes the settled windows of `sides.before`, which readers see.

    Raises:
        StoreError: a file cannot be read, or the rows differ from those that were written.
        SpecError: a column of `settled` has no numbers.
    """
    stored = StoredRuns(lake, pipeline, sides.view, options.content_rows)
    changes = _Changes(settled, sides)
    for compared, divided in compared_tables(stored, sides, all_panes=False):
        if compared.table != tables.WINDOW_OUTPUTS:
            continue
        shape = compared.with_columns_before()  # readers lose the values; a new column changes none that they know
        with opened_parts(stored, shape, options.limits) as parts:
            for part in parts.read(divided):
                changes.add(parts.sql, match_rows(parts.sql, part, shape, with_hidden=True), shape)
    if not changes.changed:
        return SettledChange(until_ms=settled.until_ms)
    seen, totals = _seen(stored, sides, settled, options=options)
    return SettledChange(
        until_ms=settled.until_ms,
        changed=changes.changed,
        seen=seen,
        by_slice=dict(sorted(changes.by_slice.items())),
        windows=changes.windows,
        columns={name: (_sum(changes.sums[name]), totals[name]) for name in settled.columns},
    )


class _Changes:
    """Adds up the changed settled windows over all parts."""

    def __init__(self, settled: Settled, sides: Sides) -> None:
        self.changed = 0
        self.by_slice: Counter[str] = Counter()
        self.windows: dict[str, list[str]] = {}
        self.sums: dict[str, list[float]] = defaultdict(list)
        self._settled = settled
        self._seen_slices = pa.array([*sides.before.runs], pa.string())
        slices: dict[frozenset[str], list[str]] = defaultdict(list)
        for slice_id, run in sides.before.runs.items():
            slices[frozenset(spec_of(sides.view, run).output_columns)].append(slice_id)
        self._by_outputs = {outputs: pa.array(own, pa.string()) for outputs, own in slices.items()}

    def add(self, sql: ArrowSql, part: Matched, shape: Shape) -> None:
        narrow = part.rows.select([ROW, SIDE, "slice_id", BOUNDS[1]])
        narrow = narrow.append_column("is_seen_slice", pc.is_in(narrow["slice_id"], self._seen_slices))
        changed = sql.query({"seen": part.seen, "narrow": narrow}, _CHANGED_SQL, (self._settled.until_ms * 1000,))
        shown = part.seen.filter(pc.less_equal(part.seen[AT], 1))
        pairs = sql.query({"seen": shown, "found": changed}, _CHANGED_PAIRS_SQL)
        pairs = pairs.append_column("slice_id", part.rows["slice_id"].take(pairs["before_row"]))
        changed = changed.filter(pc.is_in(changed[GROUP], pairs[GROUP].filter(self._differs(part, pairs, shape))))
        self.changed += changed.num_rows
        self.by_slice.update(changed["slice_id"].to_pylist())
        named = sql.query({"changed": changed}, _NAMED_SQL, (NAMED_WINDOWS,))
        rows = rows_of(part.rows.take(named[ROW]).select(list(shape.match)))
        for slice_id, row in zip(named["slice_id"].to_pylist(), rows, strict=True):
            self.windows[slice_id] = sorted([*self.windows.get(slice_id, ()), match_words(plain(row))])[:NAMED_WINDOWS]
        self._add_sums(part, pairs.filter(pc.is_in(pairs[GROUP], changed[GROUP])))

    def _differs(self, part: Matched, pairs: pa.Table, shape: Shape) -> pa.ChunkedArray:
        """Return which pairs of rows differ in a value that the spec of the row before has."""
        new = [name for name in shape.values if any(self._is_new(name, outputs) for outputs in self._by_outputs)]
        if not new:
            return pairs["is_change"]
        differs = np.zeros(pairs.num_rows, np.bool_)
        for name in shape.values:
            before, after = (
                _hashes(part.rows[name].take(pairs[row]).combine_chunks()) for row in ("before_row", "after_row")
            )
            differs |= (before != after) & ~self._without(name, pairs["slice_id"])
        return pc.and_(pairs["is_change"], pa.chunked_array([pa.array(differs)]))

    def _without(self, name: str, slices: pa.ChunkedArray) -> Bools:
        """Return which slices have a run, of those that readers see, whose spec does not have the output."""
        is_without = np.zeros(len(slices), np.bool_)
        for outputs, own in self._by_outputs.items():
            if self._is_new(name, outputs):
                is_without |= np.asarray(pc.is_in(slices, own))
        return is_without

    @staticmethod
    def _is_new(name: str, outputs: Set[str]) -> bool:
        return name not in outputs and name != "record_count"

    def _add_sums(self, part: Matched, pairs: pa.Table) -> None:
        for name in self._settled.columns:
            before, after = (_numbers(part.rows, name, pairs[row]) for row in ("before_row", "after_row"))
            by = amounts(before, after)[1].astype(np.float64)
            is_same = _hashes(before) == _hashes(after)
            by[is_same | self._without(name, pairs["slice_id"])] = 0.0
            self.sums[name] += by.tolist()


def _seen(stored: StoredRuns, sides: Sides, settled: Settled, *, options: Comparison) -> tuple[int, dict[str, float]]:
    """Return the number of settled windows that readers see, and the sum of the absolute values of each column."""
    count, sums = 0, defaultdict[str, list[float]](list)
    columns = table_columns(stored.lake.table(stored.pipeline, tables.WINDOW_OUTPUTS))
    for group in runs_by_keys(sides.view, sides.before.runs.values()):
        specs = specs_of(sides.view, group.runs)
        shape = shape_of(
            tables.WINDOW_OUTPUTS, Specs(keys=group.keys, before=specs, after=specs), columns, all_panes=False
        )
        with opened_parts(stored, shape, options.limits) as parts:
            for part in parts.read(Divided(before=(), after=(), both=group.runs), everything=True):
                seen = match_rows(parts.sql, part, shape, everything=True).seen
                visible = parts.sql.query(
                    {"seen": seen, "narrow": part.select([ROW, BOUNDS[1]])}, _SEEN_SQL, (settled.until_ms * 1000,)
                )
                count += len(pc.unique(visible[GROUP]))
                for name in settled.columns:
                    numbers = _numbers(part, name, visible[ROW]).cast(pa.float64(), safe=False)
                    sums[name].append(_sum(np.abs(numbers.to_numpy(zero_copy_only=False)).tolist()))
    return count, {name: _sum(sums[name]) for name in settled.columns}


_CHANGED_PAIRS_SQL = f"SELECT * FROM ({PAIRS_SQL}) AS pairs SEMI JOIN found USING ({GROUP})"  # noqa: S608
"""The query for the pairs of rows in these windows."""

_NAMED_SQL = f"""
    SELECT slice_id, {ROW} FROM changed QUALIFY row_number() OVER (PARTITION BY slice_id ORDER BY {ROW}) <= ?
"""  # noqa: S608
"""The query for the first of these windows in each slice."""

_SEEN_SQL = f"""
    SELECT {GROUP}, {ROW} FROM seen JOIN narrow USING ({ROW}) WHERE {AT} = 0 AND epoch_us(window_end) <= ?
"""  # noqa: S608
"""The query for the rows of settled windows that readers see."""


def _numbers(rows: pa.Table, name: str, places: pa.ChunkedArray) -> pa.Array:
    """Return a column at some rows; 0 for a null, for a null place, and if the spec has no such column."""
    if name not in rows.column_names:
        return pa.array(np.zeros(len(places)))
    kind = rows.schema.field(name).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise SpecError(
            f"publish.settled.change_at_most.columns: column {name!r} is {kind}; allowed: columns of numbers"
        )
    return rows[name].take(places).combine_chunks().fill_null(pa.scalar(0, kind))


def _hashes(column: pa.Array) -> Numbers:
    return row_hashes(pa.RecordBatch.from_arrays([column], names=["value"]), SEED)


def _sum(sizes: list[float]) -> float:
    """Return the exact sum, rounded once; infinity if it is too large for a double."""
    try:
        return math.fsum(sizes)
    except OverflowError:
        return math.inf


def _part(change: float, whole: float) -> float:
    """Return change / whole; 0 without a change, infinity for a change of 0, or if one of them is not finite."""
    if not change:
        return 0.0
    return change / whole if whole and math.isfinite(change) and math.isfinite(whole) else math.inf
