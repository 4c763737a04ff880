"""What an adoption changes for readers over the border between the former spec and the new one.

Slices before the border keep the panes of the former spec, and readers do not see the panes that the new spec fires
there, in the warm-up or before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.comparing.changes import DELETE, OPERATION, WindowChanges, window_changes
from jobs.comparing.views import Sides, request_sides
from jobs.lake.arrow_sql import query
from jobs.lake.checkpoint_rows import live_rows, read_checkpoint
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.windows import ASSIGNERS, WindowsGrammar
from jobs.reading.published import BOUNDS, quote_duckdb, read_published
from windowlib.records.tables import WINDOW_STATE

_START, _END = BOUNDS
_SAME: Final = f"a.{_START} = b.{_START} AND a.{_END} = b.{_END}"
_OVERLAPPING: Final = f"a.{_START} < b.{_END} AND b.{_START} < a.{_END} AND NOT ({_SAME})"
_OF_STATE: Final = ("window_start_ms", "window_end_ms", "edge_count", "fired_count", "is_orphan")


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderChange:
    """How many windows readers never see, and how many repeat records that they see before the border."""

    lost: int
    repeated: int


def border_change(lake: Lake, view: LedgerView, request_id: str, *, specs: Sequence[Pipeline]) -> BorderChange:
    """Return what the publication of an adoption changes over its border. `specs` are the former and the new one.

    A window is lost if it waits in the former chain at the border, and the new chain has fired it before. A pane with
    the bounds of another one replaces it, unless they are discarding. Sliding windows share records.
    """
    windows = [spec.windows for spec in specs if spec.windows is not None]
    if len(windows) < len(specs):
        return BorderChange(lost=0, repeated=0)
    sides, runs = request_sides(view, request_id), view.requests[request_id].runs
    first = view.run(runs[min(runs)])
    changes = window_changes(lake, specs[-1].name, sides)
    repeats = [f"({_SAME})"] if any(grammar.accumulation == "discarding" for grammar in windows) else []
    repeats += [] if any(grammar.sliding is not None for grammar in windows) else [f"({_OVERLAPPING})"]
    new = replace(changes, rows=changes.rows.filter(pc.not_equal(changes.rows[OPERATION], DELETE)))
    repeated = 0
    if new.rows.num_rows and repeats:
        repeated = _repeated(
            lake, view, new, sides=sides, specs=specs, first=min(runs), is_repeated=" OR ".join(repeats)
        )
    return BorderChange(lost=_lost(lake, view, first, windows=windows, pipeline=specs[-1].name), repeated=repeated)


def _lost(lake: Lake, view: LedgerView, first: StagedRun, *, windows: Sequence[WindowsGrammar], pipeline: str) -> int:
    """Return how many windows with unfired records the former chain has open, of which the new one has fired some."""
    start_ms = first.result.slice.start_ms
    last = next((slice_id for slice_id in view.published if view.slices[slice_id].end_ms == start_ms), "")
    before = view.published_chain_run(last)
    if before is None or before.checkpoint_removal is not None or not before.checkpoint.attempts:
        return 0
    parts = read_checkpoint(
        lambda name: lake.table(pipeline, name), before.checkpoint.attempts, WINDOW_STATE, columns=_OF_STATE
    )
    rows = live_rows(parts)
    if not rows.num_rows or "window_end_ms" not in rows.column_names:
        return 0
    is_orphan = rows["is_orphan"].fill_null(False)  # noqa: FBT003 - the value that replaces a null
    waits = pc.and_not(pc.greater(rows["edge_count"], rows["fired_count"]), is_orphan)
    has_fired = pc.less_equal(_fires_at(rows, windows), _watermark_ms(view, first))
    return int(rows.filter(pc.and_(waits, has_fired)).num_rows)


def _fires_at(rows: pa.Table, windows: Sequence[WindowsGrammar]) -> pa.ChunkedArray:
    """Return the watermark at which the new spec has fired the first records of open windows of the former one."""
    former, new = windows
    kinds = [kind for kind in ASSIGNERS if getattr(new, kind) is not None]
    if all(getattr(former, kind) == getattr(new, kind) for kind in kinds):
        return pc.subtract(rows["window_end_ms"], 1)
    sized = new.tumbling or new.sliding
    if sized is not None:
        return pc.add(rows["window_start_ms"], sized.size_ms - 1)
    gaps = [grammar.session.gap.fixed_ms or 0 if grammar.session is not None else 0 for grammar in windows]
    if gaps[1] < gaps[0]:
        return pc.add(rows["window_start_ms"], gaps[1] - 1)
    return pc.add(rows["window_end_ms"], gaps[1] - gaps[0] - 1)


def _watermark_ms(view: LedgerView, first: StagedRun) -> int:
    """Return the watermark at which a chain with a warm-up begins: panes of windows up to it are not published."""
    before = (run.result for run in view.runs.values() if run.result.state_after == first.result.state_before)
    start_ms = first.result.slice.start_ms
    watermarks = (result.watermark_ms for result in before if result.slice.end_ms == start_ms)
    return next((at_ms for at_ms in watermarks if at_ms is not None), start_ms - 1)


def _repeated(
    lake: Lake, view: LedgerView, new: WindowChanges, *, sides: Sides, specs: Sequence[Pipeline], first: str,
    is_repeated: str,
) -> int:  # fmt: skip
    """Return how many windows have records of windows (b) that readers would see in the slices before the first one."""
    published = {slice_id: run.result.run_id for slice_id, run in sides.after.runs.items()}
    keys = [name for name in specs[-1].log.key_columns if name in specs[0].log.key_columns]
    chosen = RowFilter(time=_END, from_=pc.min(new.rows[_START]))
    columns, seen = [*keys, *BOUNDS, "slice_id"], replace(view, published=published)
    shown = read_published(lake, specs[-1].name, seen, chosen=chosen, columns=columns)
    if not shown.num_rows:
        return 0
    same = [f"a.{quote_duckdb(new.match[name])} IS NOT DISTINCT FROM b.{quote_duckdb(name)}" for name in keys]
    where = " AND ".join([*same, f"({is_repeated})", "b.slice_id < ?"])
    sql = f"SELECT count(*) FROM new AS a WHERE EXISTS (SELECT 1 FROM shown AS b WHERE {where})"  # noqa: S608
    return int(query({"new": new.rows, "shown": shown}, sql, [first]).column(0)[0].as_py())
