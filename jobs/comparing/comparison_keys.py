"""What is compared in each table: the columns that match rows, those that are compared, and those that order rows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.published import BOUNDS
from jobs.reading.stored_tables import side_columns, spec_of
from windowlib.records import tables
from windowlib.records.column_types import Node

FIRED = (
    "pane_index", "timing", "is_first", "is_last", "mode", "nonspeculative_index", "pane_time_ms", "watermark_ms",
)  # fmt: skip
"""Columns of window_outputs that tell how a pane was fired."""
_RECORD_VALUES: Mapping[str, tuple[str, ...]] = {
    tables.LATE_RECORDS: ("record_hash", "event_time_ms", "missed_windows", "missed_all", "late_by_ms", "reason"),
    tables.UNASSIGNED_RECORDS: ("record_hash", "event_time_ms"),
    tables.INVALID_RECORDS: ("record_hash", "reason"),
    tables.DUPLICATE_RECORDS: ("record_hash",),
}


class Unit(Enum):
    """What is counted in a table. A window or pane has one or more rows; in the other tables each row counts."""

    WINDOW = "window"
    PANE = "pane"
    RECORD = "record"
    ROW = "row"

    @property
    def is_of_windows(self) -> bool:
        """Whether the rows are panes, so that rows of other slices can replace or hide them."""
        return self in {Unit.WINDOW, Unit.PANE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the rows of a table are compared.

    - `keys` are the key columns of the runs' specs.
    - `match` are the columns that two rows must share to be compared.
    - `values` are compared. A difference in one of them is a change.
    - `circumstances` are compared, too, but a difference in them alone is no change: they tell how a row came about.
    - `order` sorts the rows with equal `match`.
    - `only_before`, `only_after` are value columns that only the specs of one view have. They are not compared, except
      after `with_columns_before` and `with_columns_after`: they are null in the rows of the other view then.
    """

    table: str
    unit: Unit
    keys: tuple[str, ...]
    match: tuple[str, ...]
    values: tuple[str, ...]
    circumstances: tuple[str, ...]
    order: tuple[str, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        own = ("kind", "mode", "fired_rank") if self.unit.is_of_windows else ()
        return tuple(dict.fromkeys((*self.match, *self.values, *self.circumstances, "slice_id", *self.order, *own)))

    def with_columns_before(self) -> "Shape":
        """Return the shape that also compares the columns that only the specs of the view before have."""
        return replace(self, values=(*self.values, *self.only_before), only_before=())

    def with_columns_after(self) -> "Shape":
        """Return the shape that also compares the columns that only the specs of the view after have."""
        return replace(self, values=(*self.values, *self.only_after), only_after=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Specs:
    """The specs of the runs with the same key columns, in both views."""

    keys: tuple[str, ...]
    before: tuple[Pipeline, ...]
    after: tuple[Pipeline, ...]


def specs_of(view: LedgerView, runs: Iterable[StagedRun]) -> tuple[Pipeline, ...]:
    """Return the different specs of some runs."""
    return tuple({run.result.spec_fingerprint: spec_of(view, run) for run in runs}.values())


def shape_of(table: str, specs: Specs, stored: Mapping[str, Node], *, all_panes: bool) -> Shape:
    """Return how a table is compared. `stored` are the columns of the stored table."""
    if table == tables.WINDOW_OUTPUTS:
        return _outputs(specs, stored, all_panes=all_panes)
    if table in tables.RECORD_TABLES:
        return Shape(
            table=table,
            unit=Unit.RECORD,
            keys=(),
            match=("record_id",),
            values=tuple(name for name in _RECORD_VALUES[table] if name in stored),
            circumstances=tuple(name for name in ("watermark_ms",) if name in stored),
            order=("slice_id", "rank"),
        )
    return _side_output(table, specs, stored)


def _outputs(specs: Specs, stored: Mapping[str, Node], *, all_panes: bool) -> Shape:
    own = ("pane_index",) if all_panes else ()
    columns = _Columns(specs, stored, lambda spec: spec.output_columns)
    return Shape(
        table=tables.WINDOW_OUTPUTS,
        unit=Unit.PANE if all_panes else Unit.WINDOW,
        keys=specs.keys,
        match=(*specs.keys, *BOUNDS, *own),
        values=(*columns.both, "record_count", *(("kind",) if all_panes else ())),
        circumstances=tuple(name for name in FIRED if name in stored and name not in own),
        order=("slice_id", "pane_index", "fired_rank"),
        only_before=columns.only_before,
        only_after=columns.only_after,
    )


def _side_output(table: str, specs: Specs, stored: Mapping[str, Node]) -> Shape:
    columns = _Columns(specs, stored, lambda spec: side_columns(spec, table.removeprefix(tables.SIDE_OUTPUTS)))
    return Shape(
        table=table,
        unit=Unit.ROW,
        keys=specs.keys,
        match=(*specs.keys, "event_time_ms"),
        values=columns.both,
        circumstances=("watermark_ms",),
        order=("slice_id", "fired_rank"),
        only_before=columns.only_before,
        only_after=columns.only_after,
    )


class _Columns:
    """The stored columns that the specs of both views, or of one of them, name.

    If one view has no run, it is taken to have the columns of the other.
    """

    def __init__(
        self, specs: Specs, stored: Mapping[str, Node], columns_of: Callable[[Pipeline], Iterable[str]]
    ) -> None:
        before, after = (
            dict.fromkeys(name for spec in view for name in columns_of(spec) if name in stored)
            for view in (specs.before or specs.after, specs.after or specs.before)
        )
        self.both = tuple(name for name in before if name in after)
        self.only_before = tuple(name for name in before if name not in after)
        self.only_after = tuple(name for name in after if name not in before)
