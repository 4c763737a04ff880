"""What an adoption changes for readers over the border between the former spec and the new one.

Slices before the border keep the panes of the former spec. Readers do not see the panes that the new spec fires there,
in the warm-up, and the runs with the former spec after the border are replaced.
"""

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
class Specs:
    """The former and the new spec, and whether they have other windows or fire them at other times."""

    before: Pipeline
    after: Pipeline
    changes_firing: bool


def lost_and_repeated(lake: Lake, view: LedgerView, request_id: str, *, specs: Specs) -> tuple[int, int]:
    """Return how many windows readers would lose for good, and how many repeat records that they see before the border.

    A spec that fires a window earlier fires it before the border, in the warm-up, and the replaced runs had its pane.
    Windows that the new chain fires later are not lost.
    """
    sides, runs = request_sides(view, request_id), view.requests[request_id].runs
    changes = window_changes(lake, specs.after.name, sides)
    if not changes.rows.num_rows:  # without windows on both sides, there are no columns of theirs
        return 0, 0
    is_gone = pc.equal(changes.rows[OPERATION], DELETE)
    last_ms = view.run(runs[max(runs)]).result.watermark_ms
    ends = changes.rows.filter(is_gone)[_END].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    lost = sum(end is None or end <= last_ms for end in ends)
    shown = replace(changes, rows=changes.rows.filter(pc.invert(is_gone)))
    if not specs.changes_firing or not shown.rows.num_rows:
        return lost, 0
    seen = {slice_id: run.result.run_id for slice_id, run in sides.after.runs.items()}
    return lost, _repeated(lake, replace(view, published=seen), shown, specs=specs, first=min(runs))


def _repeated(lake: Lake, seen: LedgerView, shown: WindowChanges, *, specs: Specs, first: str) -> int:
    """Return how many of the changed windows repeat records of windows that readers see in the slices before `first`.

    A pane with the bounds of another one replaces it, unless they are discarding. Sliding windows share records.
    """
    keys = [name for name in specs.after.log.key_columns if name in specs.before.log.key_columns]
    chosen = RowFilter(time=_END, from_=pc.min(shown.rows[_START]))
    before = read_published(lake, specs.after.name, seen, chosen=chosen, columns=[*keys, *BOUNDS, "slice_id"])
    windows = [spec.windows for spec in (specs.before, specs.after) if spec.windows is not None]
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
