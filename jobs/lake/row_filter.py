"""Chooses rows of a table by values of columns and a range of times, and skips files and row groups without such rows.

The bounds in the statistics of Delta's log skip files, and those in the footers of Parquet files skip row groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windowlib.libraries import pa, pads, pc

MOST_COMPARED = 100
"""More allowed values are compared with the bounds of files by their least and greatest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """The rows with an allowed value in each column of `values`, and with `from_` <= `time` < `to`.

    `values` maps a column to the allowed values, of its type; a null allows nulls. `from_` and `to` are scalars of the
    type of the column `time`; None is no bound. A null is in no range that has a bound, unless `or_null`, which is for
    a range without `to`.
    """

    values: Mapping[str, "pa.Array"] = field(default_factory=dict)
    time: str = "window_start"
    from_: "pa.Scalar | None" = None
    to: "pa.Scalar | None" = None
    or_null: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.values, self.time)

    @property
    def expression(self) -> "pc.Expression | None":
        """The filter for a dataset of Arrow; None if it chooses every row."""
        terms = [pc.field(name).isin(allowed) for name, allowed in self.values.items()]
        time = pc.field(self.time)
        if self.from_ is not None:
            terms.append((time >= self.from_) | time.is_null() if self.or_null else time >= self.from_)
        terms += [time < self.to] if self.to is not None else []
        whole = None
        for term in terms:
            whole = term if whole is None else whole & term
        return whole

    def read(self, dataset: "pads.Dataset", columns: Sequence[str] | None = None) -> "pa.Table":
        """Return the chosen rows of a dataset; all columns when `columns` is None."""
        names = None if columns is None else [*dict.fromkeys(columns)]
        try:
            return dataset.to_table(columns=names, filter=self.expression)
        except pa.ArrowNotImplementedError:
            # DataFusion writes texts as views, and Arrow cannot compare their statistics with the filter.
            whole = dataset.to_table(columns=None if names is None else [*dict.fromkeys((*names, *self.columns))])
            rows = self.of(whole)
            return rows if names is None else rows.select(names)

    def of(self, rows: "pa.Table") -> "pa.Table":
        """Return the chosen ones of some rows."""
        return rows if self.expression is None else rows.filter(self.expression)

    def may_match(self, files: "pa.Table") -> "pa.Array":
        """Return for each file whether it may have a chosen row.

        `files` are rows of `DeltaTable.get_add_actions(flatten=True)`. A file without statistics may have one.
        """
        whole = pa.array([True]).take(pa.array([0] * files.num_rows, pa.int64()))
        for name, allowed in self.values.items():
            if not (allowed.null_count or pa.types.is_floating(allowed.type)):  # bounds of doubles miss NaN
                whole = pc.and_(whole, _may_have(files, name, allowed))
        for name, bound, compare in (("max", self.from_, pc.greater_equal), ("min", self.to, pc.less)):
            column = f"{name}.{self.time}"
            if bound is not None and column in files.column_names:
                kept = compare(files[column].combine_chunks().cast(bound.type), bound)
                if self.or_null:
                    kept = pc.or_kleene(kept, pc.greater(files[f"null_count.{self.time}"].combine_chunks(), 0))
                whole = pc.and_(whole, kept.fill_null(True))  # noqa: FBT003 - the value that replaces a null
        return whole


def _may_have(files: "pa.Table", name: str, allowed: "pa.Array") -> "pa.Array":
    """Return for each file whether one of the allowed values is between its bounds of a column."""
    if f"min.{name}" not in files.column_names or f"max.{name}" not in files.column_names:
        return pa.array([True] * files.num_rows, pa.bool_())
    low, high = (files[f"{end}.{name}"].combine_chunks().cast(allowed.type) for end in ("min", "max"))
    whole = pa.array([False] * files.num_rows, pa.bool_())
    ends = pc.min_max(allowed)
    spans = [(value, value) for value in allowed] if len(allowed) <= MOST_COMPARED else [(ends["min"], ends["max"])]
    for first, last in spans:
        is_inside = pc.and_kleene(pc.less_equal(low, last), pc.greater_equal(high, first))
        whole = pc.or_(whole, is_inside.fill_null(True))  # noqa: FBT003 - the value that replaces a null
    return whole
