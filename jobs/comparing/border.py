"""What an adoption changes for readers over the border between the former spec and the new one.

Slices before the border keep the panes of the former spec. Readers do not see the panes that the new spec fires there,
in the warm-up, and the runs with the former spec after the border are replaced.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.comparing.changes import BEFORE, DELETE, OPERATION, WindowChanges, window_changes
from jobs.comparing.views import Sides, request_sides
from jobs.lake.arrow_sql import query
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.windows import ASSIGNERS
from jobs.reading.published import BOUNDS, quote_duckdb, read_published

_START, _END = BOUNDS
_SAME: Final = f"a.{_START} = b.{_START} AND a.{_END} = b.{_END}"
_OVERLAPPING: Final = f"a.{_START} < b.{_END} AND b.{_START} < a.{_END}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderChange:
    """How many windows readers would lose for good, and how many repeat records that they see before the border."""

    lost: int
    repeated: int


def border_change(lake: Lake, view: LedgerView, request_id: str, *, specs: Sequence[Pipeline]) -> BorderChange:
    """Return what the publication of an adoption changes over its border. `specs` are the former and the new one.

    A spec that fires a window earlier fires it before the border, in the warm-up, and the replaced runs had its pane.
    Windows that the new chain fires later are not lost, and neither are those whose records other windows have.
    A pane with the bounds of another one replaces it, unless they are discarding. Sliding windows share records.
    """
    sides, runs = request_sides(view, request_id), view.requests[request_id].runs
    changes = window_changes(lake, specs[-1].name, sides)
    if not changes.rows.num_rows:  # without windows on both sides, there are no columns of theirs
        return BorderChange(lost=0, repeated=0)
    windows = [spec.windows for spec in specs if spec.windows is not None]
    slides = any(grammar.sliding is not None for grammar in windows)
    is_resized = len({str([getattr(grammar, kind) for kind in ASSIGNERS]) for grammar in windows}) > 1
    is_gone = pc.equal(changes.rows[OPERATION], DELETE)
    ends = changes.rows[_START if is_resized else _END].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    may_have_fired = pc.less_equal(ends, _watermark_ms(view, view.run(runs[min(runs)])) + (not is_resized))
    gone = changes.rows.filter(pc.and_(is_gone, may_have_fired.fill_null(True)))  # noqa: FBT003 - the value for a null
    new = changes.rows.filter(pc.invert(is_gone))
    shown = _Shown.of(lake, view, changes, sides=sides, specs=specs)
    repeats = [f"({_SAME})"] if any(grammar.accumulation == "discarding" for grammar in windows) else []
    repeats += [] if slides else [f"({_OVERLAPPING} AND NOT ({_SAME}))"]
    return BorderChange(
        lost=shown.lacking(gone) if is_resized and not slides else gone.num_rows,
        repeated=shown.before(min(runs)).repeated(new, f"({' OR '.join(repeats or ['false'])})"),
    )


def _watermark_ms(view: LedgerView, first: StagedRun) -> int:
    """Return the watermark at which a chain with a warm-up begins: panes of windows up to it are not published."""
    before = (run.result for run in view.runs.values() if run.result.state_after == first.result.state_before)
    start_ms = first.result.slice.start_ms
    watermarks = (result.watermark_ms for result in before if result.slice.end_ms == start_ms)
    return next((at_ms for at_ms in watermarks if at_ms is not None), start_ms - 1)


@dataclass(frozen=True, slots=True)
class _Shown:
    """The windows that readers would see at the time of changed ones, and the condition that two have equal keys."""

    rows: pa.Table
    has_equal_keys: str

    @classmethod
    def of(
        cls, lake: Lake, view: LedgerView, changes: WindowChanges, *, sides: Sides, specs: Sequence[Pipeline]
    ) -> "_Shown":
        published = {slice_id: run.result.run_id for slice_id, run in sides.after.runs.items()}
        keys = [name for name in specs[-1].log.key_columns if name in specs[0].log.key_columns]
        chosen = RowFilter(time=_END, from_=pc.min(changes.rows[_START]))
        columns = [*keys, *BOUNDS, "slice_id", "record_count"]
        rows = read_published(lake, specs[-1].name, replace(view, published=published), chosen=chosen, columns=columns)
        pairs = [(changes.match[name], name) for name in keys]
        same = [f"a.{quote_duckdb(own)} IS NOT DISTINCT FROM b.{quote_duckdb(name)}" for own, name in pairs]
        return cls(rows, " AND ".join(same) or "true")

    def before(self, slice_id: str) -> "_Shown":
        """Return those of the slices before a slice."""
        return replace(self, rows=self.rows.filter(pc.less(self.rows["slice_id"], slice_id)))

    def repeated(self, windows: pa.Table, is_repeated: str) -> int:
        """Return how many of some windows (a) have records of these (b)."""
        pairs = f"SELECT 1 FROM shown AS b WHERE {self.has_equal_keys} AND {is_repeated}"  # noqa: S608
        return self._count(windows, f"EXISTS ({pairs})")

    def lacking(self, windows: pa.Table) -> int:
        """Return how many of some windows had more records than all of these at their time have."""
        pairs = f"SELECT sum(b.record_count) FROM shown AS b WHERE {self.has_equal_keys} AND {_OVERLAPPING}"  # noqa: S608
        return self._count(windows, f"a.{BEFORE}record_count > coalesce(({pairs}), 0)")

    def _count(self, windows: pa.Table, condition: str) -> int:
        if not windows.num_rows:
            return 0
        sql = f"SELECT count(*) FROM windows AS a WHERE {condition}"  # noqa: S608 - identifiers are quoted
        counted = query({"windows": windows, "shown": self.rows}, sql)
        return int(counted.column(0)[0].as_py())
