"""The differences between two views of a pipeline, as plain values, as JSON, and as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from jobs.comparing.comparison_keys import Unit
from jobs.plain_text import agreeing, counted, shortened
from jobs.reading.plain_values import plain
from jobs.reading.published import BOUNDS

MAX_SLICES = 8
_FOUR_DIGITS = 999.5
"""Numbers from this one on are rounded to four digits or more."""


class Change(Enum):
    """How a row or window differs between the two views."""

    CHANGED = "changed"
    ONLY_BEFORE = "only before"
    ONLY_AFTER = "only after"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDifference:
    """How often, and by how much, a column differs between matched rows.

    - `is_value`: a difference is a change. If False, the column tells how a row came about, such as its watermark.
    - `mismatch`: both rows have a value, and the values differ. All NaN are equal, and 0.0 is equal to -0.0.
    - `missing`: only the row before has a value. `extra`: only the row after has one.
    - `largest`, `median`: of the absolute differences of mismatches, None for a type without amounts. Differences with
      a NaN or infinity are left out. `unit` is `ms` for times and `days` for dates.
    - `largest_relative`, `median_relative`: of |after - before| / |before|, for values before that are not 0.
    """

    column: str
    type: str
    is_value: bool
    mismatch: int
    missing: int
    extra: int
    largest: int | float | None = None
    median: int | float | None = None
    largest_relative: float | None = None
    median_relative: float | None = None
    unit: str | None = None

    @property
    def count(self) -> int:
        """The number of pairs of rows in which the column differs."""
        return self.mismatch + self.missing + self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A row of both views side by side. `before` or `after` is None if only the other view has the row.

    `differs` are the columns that differ. The mappings have plain values: numbers, texts, lists, times as ISO text.
    """

    change: Change
    match: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDifference:
    """The differences in one table.

    The counts are of `unit`: windows, panes, records or rows. `same_values` have equal values and other circumstances,
    such as another watermark. `equal` are those that were read and do not differ. Windows without a row in a slice that
    differs are in no count: they are equal, and are not read.

    `keys` are the key columns. `columns` has the columns that differ, the most frequent difference first. Of `samples`,
    the largest relative changes come first. `only_before_columns` and `only_after_columns` are not compared.
    """

    table: str
    unit: Unit
    keys: tuple[str, ...]
    only_before: int = 0
    only_after: int = 0
    changed: int = 0
    same_values: int = 0
    equal: int = 0
    only_before_columns: tuple[str, ...] = ()
    only_after_columns: tuple[str, ...] = ()
    columns: tuple[ColumnDifference, ...] = ()
    samples: tuple[Sample, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not (self.only_before or self.only_after or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The differences between two views of a pipeline.

    - `before` and `after` name the views. `request_id` is set if `after` is the result of a request.
    - `slices` are the slices whose runs differ.
    - `tables`: window_outputs first, a table once for each set of key columns; only tables that were read.
    - `rows` were read. `with_content`: the ids of all were computed again from their content. If False, at least
      the sums of the stored ids were compared with the ledger.
    - `notes` are sentences on what the counts do not show.
    """

    pipeline: str
    ledger_version: int
    before: str
    after: str
    request_id: str | None
    slices: tuple[str, ...]
    tables: tuple[TableDifference, ...]
    rows: int
    with_content: bool
    notes: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether no value of any table differs."""
        return all(table.is_equal for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "ledger_version": self.ledger_version,
            "before": self.before,
            "after": self.after,
            "request_id": self.request_id,
            "equal": self.is_equal,
            "slices": list(self.slices),
            "rows_read": self.rows,
            "compared_with_ledger": "content" if self.with_content else "sums",
            "notes": list(self.notes),
            "tables": _json(self.tables),
        }

    def lines(self, *, samples: int | None = 0) -> tuple[str, ...]:
        """Return the differences as lines of text, for logs and terminals.

        `samples`: the greatest number of rows side by side of each table; None: all that were kept.
        """
        return tuple(_lines(self, samples))


def _json(value: object) -> Any:  # noqa: ANN401 -- any JSON value
    """Return a value as JSON data; `is_value` of a column is `value` there."""
    if is_dataclass(value):
        named = {part.name: getattr(value, part.name) for part in fields(value)}
        return {"value" if name == "is_value" else name: _json(item) for name, item in named.items()}
    if isinstance(value, Enum):
        return value.value
    return [_json(item) for item in value] if isinstance(value, tuple) else plain(value)


def _lines(differences: Differences, samples: int | None) -> Iterator[str]:
    yield f"{differences.after} compared with {differences.before}: {_slices(differences.slices)}"
    if not differences.tables:
        yield "no difference: no row had to be read"
    for table in differences.tables:
        yield _counts(table)
        for column in table.columns:
            if column.is_value:
                yield "  " + column_sentence(column)
        for name, where in (
            *((name, "before") for name in table.only_before_columns),
            *((name, "after") for name in table.only_after_columns),
        ):
            yield f"  column {name} is only in the spec {where}; it is not compared"
        for sample in table.samples[:samples]:
            yield "  " + sample_sentence(sample)
    yield from differences.notes


def _slices(slices: Sequence[str]) -> str:
    if not slices:
        return "no slice differs"
    if len(slices) <= MAX_SLICES:
        return (
            f"{counted(len(slices), 'slice', 'differ')}: {', '.join(slices)}"
            if len(slices) > 1
            else f"slice {slices[0]} differs"
        )
    return f"{counted(len(slices), 'slice', 'differ')}: {slices[0]} … {slices[-1]}"


def _counts(table: TableDifference) -> str:
    unit = table.unit.value
    what = f"{table.table} (keys {', '.join(table.keys)})" if table.unit.is_of_windows and table.keys else table.table
    same = f", {table.same_values:,} with the same values fired otherwise" if table.same_values else ""
    return (
        f"{what}: {counted(table.changed, unit)} changed, {table.only_after:,} only after, {table.only_before:,} only "
        f"before, {table.equal:,} equal{same}"
    )


def column_sentence(column: ColumnDifference) -> str:
    """Return the differences of a column in words."""
    parts = [
        f"{count:,} {what}"
        for count, what in (
            (column.mismatch, agreeing(column.mismatch, "differ")),
            (column.missing, "missing"),
            (column.extra, "extra"),
        )
        if count
    ]
    unit = f" {column.unit}" if column.unit else ""
    if column.largest is not None:
        parts.append(f"by up to {number(column.largest)}{unit}, median {number(column.median)}{unit}")
    if column.largest_relative is not None:
        parts.append(f"relative up to {percent(column.largest_relative)}, median {percent(column.median_relative)}")
    return f"column {column.column}: {'; '.join(parts)}"


def sample_sentence(sample: Sample) -> str:
    """Return a sample row in words: the key and window, then each column that differs."""
    place = match_words(sample.match)
    if sample.before is None or sample.after is None:
        row = sample.after if sample.before is None else sample.before
        values = ", ".join(f"{name} {_shown(value)}" for name, value in (row or {}).items() if name not in sample.match)
        return f"{sample.change.value}: {place}: {values}"
    values = ", ".join(
        f"{name} {_shown(sample.before.get(name))} -> {_shown(sample.after.get(name))}" for name in sample.differs
    )
    return f"{sample.change.value}: {place}: {values}"


def match_words(match: Mapping[str, Any]) -> str:
    """Return the key and window of a row in words."""
    keys = ", ".join(f"{name} {_shown(value)}" for name, value in match.items() if name not in BOUNDS)
    if BOUNDS[0] not in match:
        return keys
    start, end = (match[name] for name in BOUNDS)
    window = "a window without bounds" if start is None and end is None else f"[{start}, {end})"
    return f"{keys} {window}".strip()


def number(value: float | None) -> str:
    """Return a number for people: integers with all digits, others with six digits or, up to 10^15, whole."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,d}"
    is_whole = 999_999.5 <= abs(value) < 1e15  # noqa: PLR2004
    return f"{value:,.0f}" if is_whole else f"{value:,.6g}"


def percent(share: float | None) -> str:
    """Return a share for people, with three digits; from 1,000 % on, without an exponent."""
    if share is None:
        return "-"
    return f"{100 * share:,.3g} %" if 100 * share < _FOUR_DIGITS else f"{100 * share:,.0f} %"


def _shown(value: object) -> str:
    return shortened("null" if value is None else str(value), 80)
