"""What an adoption changes for readers over the border between the former spec and the new one.

Slices before the border keep the panes of the former spec. Readers do not see the panes that the new spec fires there,
in the warm-up, and the runs with the former spec after the border are replaced.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.comparing.changes import DELETE, OPERATION, WindowChanges, window_changes
from jobs.comparing.views import request_sides
from jobs.lake.arrow_sql import query
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.published import BOUNDS, quote_duckdb, read_published

_START, _END = BOUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderChange:
    """How many windows readers would lose for good, and how many repeat records that they see before the border."""

    lost: int = 0
    repeated: int = 0


def border_change(lake: Lake, view: LedgerView, request_id: str, *, specs: Sequence[Pipeline]) -> BorderChange:
    """Return what the publication of an adoption changes over its border. `specs` are the former and the new one.

    A spec that fires a window earlier fires it before the border, in the warm-up, and the replaced runs had its pane.
    Windows that the new chain fires later are not lost.
    """
    sides, runs = request_sides(view, request_id), view.requests[request_id].runs
    changes = window_changes(lake, specs[-1].name, sides)
    if not changes.rows.num_rows:  # without windows on both sides, there are no columns of theirs
        return BorderChange()
    is_gone = pc.equal(changes.rows[OPERATION], DELETE)
    last = view.run(runs[max(runs)]).result
    until_ms = last.slice.end_ms if last.watermark_ms is None else last.watermark_ms
    ends = changes.rows.filter(is_gone)[_END].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    lost = sum(end is None or end <= until_ms for end in ends)
    shown = replace(changes, rows=changes.rows.filter(pc.invert(is_gone)))
    if not shown.rows.num_rows:
        return BorderChange(lost=lost)
    seen = {slice_id: run.result.run_id for slice_id, run in sides.after.runs.items()}
    repeated = _repeated(lake, replace(view, published=seen), shown, specs=specs, first=min(runs))
    return BorderChange(lost=lost, repeated=repeated)


def _repeated(lake: Lake, seen: LedgerView, shown: WindowChanges, *, specs: Sequence[Pipeline], first: str) -> int:
    """Return how many of the changed windows repeat records of windows that readers see in the slices before `first`.

    A pane with the bounds of another one replaces it, unless they are discarding. Sliding windows share records.
    """
    keys = [name for name in specs[-1].log.key_columns if name in specs[0].log.key_columns]
    chosen = RowFilter(time=_END, from_=pc.min(shown.rows[_START]))
    before = read_published(lake, specs[-1].name, seen, chosen=chosen, columns=[*keys, *BOUNDS, "slice_id"])
    windows = [spec.windows for spec in specs if spec.windows is not None]
    is_equal = f"a.{_START} = b.{_START} AND a.{_END} = b.{_END}"
    repeats = [f"({is_equal})"] if any(grammar.accumulation == "discarding" for grammar in windows) else []
    if all(grammar.sliding is None for grammar in windows):
        repeats.append(f"(a.{_START} < b.{_END} AND b.{_START} < a.{_END} AND NOT ({is_equal}))")
    if not repeats or not before.num_rows:
        return 0
    same = [f"a.{quote_duckdb(shown.match[name])} IS NOT DISTINCT FROM b.{quote_duckdb(name)}" for name in keys]
    where = " AND ".join([*same, f"({' OR '.join(repeats)})", "b.slice_id < ?"])
    repeating = f"SELECT count(*) FROM shown AS a WHERE EXISTS (SELECT 1 FROM before AS b WHERE {where})"  # noqa: S608
    rows = query({"shown": shown.rows, "before": before}, repeating, [first])
    return int(rows.column(0)[0].as_py())
