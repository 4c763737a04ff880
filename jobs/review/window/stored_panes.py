"""The stored rows of `window_outputs` of one key: those of a window, and those that readers see."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.lake.arrow_sql import query
from jobs.lake.lake import Lake
from jobs.lake.store import attempts_dataset
from jobs.ledger.view import StagedRun
from jobs.reading.published import PublishedView, published_sql, quote_duckdb
from jobs.reading.stored_rows import of_attempts, run_attempt
from jobs.review.window.operator_walk import Bounds, bounds_ms
from jobs.review.window.wanted import Key, WantedWindow
from windowlib.columnar.undecodable import readable
from windowlib.records.tables import ROW_CHECK, ROW_ID, WINDOW_OUTPUTS

_RELATION: Final = "panes"


def _at(at_ms: int) -> pa.Scalar:
    """Return an instant as tables store it."""
    return pa.scalar(at_ms * 1_000, pa.timestamp("us", "UTC"))


@dataclass(frozen=True, slots=True)
class StoredPanes:
    """Reads the panes of one key. Row groups that cannot have them by their statistics are not read."""

    lake: Lake
    pipeline: str
    key: Key

    def of_window(self, window: WantedWindow, runs: Iterable[StagedRun]) -> pa.Table:
        """Return the rows of a window in some runs, with all columns, in the order of their firings.

        Raises StoreError: a file cannot be read.
        """
        at = (pc.field("window_start") == _at(window.start_ms)) & (pc.field("window_end") == _at(window.end_ms))
        panes = self._read(runs, at)
        if not panes.num_rows:
            return panes
        # As in the published view, a row that withdraws another one sorts after it.
        is_taken_back = pc.not_equal(panes["kind"], "result").cast(pa.int8())
        order = [(name, "ascending") for name in ("slice_id", "pane_index", "__taken_back", "fired_rank")]
        return panes.append_column("__taken_back", is_taken_back).sort_by(order).drop_columns("__taken_back")

    def starting_at(self, start_ms: int, runs: Iterable[StagedRun]) -> set[Bounds]:
        return self._bounds(runs, pc.field("window_start") == _at(start_ms))

    def around(self, at_ms: int, runs: Iterable[StagedRun]) -> set[Bounds]:
        """Return the windows with panes that contain an instant."""
        at = _at(at_ms)
        return self._bounds(runs, (pc.field("window_start") <= at) & (pc.field("window_end") > at))

    def _bounds(self, runs: Iterable[StagedRun], condition: pc.Expression) -> set[Bounds]:
        panes = self._read(runs, condition, ("window_start", "window_end"))
        if not panes.num_rows:
            return set()
        return {*bounds_ms(*panes.columns)}

    def _read(
        self, runs: Iterable[StagedRun], condition: pc.Expression, columns: tuple[str, ...] | None = None
    ) -> pa.Table:
        uri = self.lake.table(self.pipeline, WINDOW_OUTPUTS)
        with attempts_dataset(uri, [run_attempt(run) for run in runs]) as dataset:
            if dataset is None:
                return pa.table({})
            own = [pc.field(name) == value for name, value in self.key.values.items()]
            named = None if columns is None else [*columns]
            return readable(dataset.to_table(columns=named, filter=reduce(and_, own, condition)))


def seen_by_readers(rows: pa.Table, runs: Mapping[str, StagedRun], keys: Iterable[str]) -> set[tuple[str, int]]:
    """Return (attempt, row id) of the rows of one window that readers see: those of the default view.

    `rows` are those of `StoredPanes.of_window`, and `runs` maps a slice to its published run.
    """
    if not rows.num_rows:
        return set()
    published = of_attempts(rows, {run_attempt(run) for run in runs.values()})
    view = PublishedView(keys=tuple(keys), columns=("attempt_id", ROW_ID))
    panes = query({_RELATION: published}, published_sql(view, relation=_RELATION, quote=quote_duckdb))
    return {*zip(panes["attempt_id"].to_pylist(), panes[ROW_ID].to_pylist(), strict=True)}


def content_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an operator determines of a pane: all columns but those of its run and of its id."""
    ours = {"slice_id", "attempt_id", "run_id", ROW_ID, ROW_CHECK}
    return {name: value for name, value in row.items() if name not in ours and value is not None}
