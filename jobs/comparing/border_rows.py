"""Counts what readers never see, and what they see twice, where the slices of one spec end and those of another begin.

Both chains have read the records before the border. The former one shows the panes that it has fired there, and the new
one the panes that it fires after it. So a record is lost if it waits in a window of the former chain, and the new chain
has fired its windows. A record is repeated if the former chain has shown it, and it waits in the new one.

The stored state of a window has the number of its records and of those in its panes, and not the records. So the
numbers of both chains are compared for each *group*: the windows of one key that overlap. Sliding windows share
records. If the new spec has each sliding window of the former one, windows with equal bounds are compared. Otherwise a
group has windows that follow each other. If the size is a multiple of the slide, it has each record once. If not, no
choice of windows has: the group has each waiting record at least once, and each open one at most once, so that no loss
is missed. If only one spec places records by processing time, bounds mean nothing: all windows of a key are one group.
Nothing is lost of a group that begins after the last window of the new grid that has fired. Repeats between
two sliding grids, and in a window that overlaps one that has fired, can be missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from jobs.lake.arrow_sql import query
from jobs.pipeline.models.triggers import TriggerGrammar
from jobs.pipeline.models.windows import Sliding, WindowsGrammar
from jobs.reading.published import BOUNDS, quote_duckdb

STATE_COLUMNS: Final = (
    "window_start_ms", "window_end_ms", "edge_count", "edge_xor", "fired_count", "fired_xor", "is_complete",
    "is_orphan",
)  # fmt: skip
PANE_COLUMNS: Final = (*BOUNDS, "slice_id", "pane_index", "record_count")
_AT_THE_END: Final = frozenset({"event_time", "processing_time", "default"})
_END_MS: Final = 1 << 60
"""The end of a window without an end."""
_ENDS: Final = f"coalesce({{}}, -{_END_MS}) AS s, coalesce({{}}, {_END_MS}) AS e"
_KEY: Final = "a.key IS NOT DISTINCT FROM b.key"
_SAME: Final = f"{_KEY} AND a.s = b.s AND a.e = b.e"
_OVERLAPPING: Final = f"{_KEY} AND a.s < b.e AND b.s < a.e"

_EARLIEST: Final = "min(s) OVER (PARTITION BY key)"
_AFTER_SHOWN: Final = f"coalesce((SELECT max(e) - {{rest}} FROM shown AS b WHERE {_KEY}), {_EARLIEST})"  # noqa: S608

_IS_HIDDEN: Final = "({hides_unseen} OR EXISTS (FROM hidden AS b WHERE {touching}))"
_MAY_BE_LOST: Final = f"""{_IS_HIDDEN} AND waiting > 0 AND (waiting < open OR (waiting = open AND ids <> 0))
    AND EXISTS (FROM kept AS b WHERE {{touching}})"""
"""If windows fire before their end, a group may have lost records beside as many that are repeated."""

_CHAINS: Final = """
shown AS (
    SELECT {panes}, count(*) AS panes, arg_max(record_count, (slice_id, pane_index)) AS newest
    FROM shown_rows GROUP BY ALL),
hidden AS (SELECT DISTINCT {panes} FROM hidden_rows),
later AS (SELECT DISTINCT {panes} FROM later_rows),
waiting AS (
    SELECT {state}, edge_count - fired_count AS records, xor(edge_xor, fired_xor) AS ids FROM former_rows
    WHERE edge_count > fired_count AND NOT coalesce(is_orphan, false)),
fired AS (
    SELECT *, EXISTS (FROM later AS b WHERE {key} AND b.s <= a.s AND a.e <= b.e) AS fires_later
    FROM (SELECT {state}, edge_count, edge_xor, fired_count, fired_xor, is_complete FROM new_rows) AS a),
kept AS (SELECT * FROM shown AS a WHERE NOT EXISTS (FROM fired AS b WHERE {same})),
open AS (
    SELECT *, {fires_at_end} OR {fires_left} OR fires_later AS is_sure,
        fired_count = 0 OR fires_later OR ({fires_at_end} AND NOT is_complete)
            OR ({shows_left_again} AND edge_count > fired_count) AS is_whole,
        CASE WHEN is_whole THEN edge_count ELSE edge_count - fired_count END AS records,
        CASE WHEN is_whole THEN edge_xor ELSE xor(edge_xor, fired_xor) END AS ids
    FROM fired WHERE records > 0)"""
"""What waits in the former chain, and what the new one has open. A window that fires again shows all its records.

`hidden` has the panes that the new chain has fired before the border, and `later` those after it. `is_sure`: the window
fires after the border. `kept` has the shown panes that no open window replaces.
"""

_GROUPS: Final = """
{name}_rows AS (
    SELECT key, {bounds}, records AS waiting, 0 AS open, ids FROM ({waiting})
    UNION ALL SELECT key, {bounds}, 0, records, ids FROM ({open})),
{name}_places AS (
    SELECT *, {is_apart} OR coalesce(s >= max(e) OVER (
        PARTITION BY key ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS is_first
    FROM {name}_rows),
{name}_groups AS (
    SELECT key, min(s) AS s, max(e) AS e, sum(waiting) AS waiting, sum(open) AS open, count_if(waiting > 0) AS windows,
        bit_xor(ids) AS ids, min(s) FILTER (waiting > 0) AS waiting_from
    FROM (SELECT *, count_if(is_first) OVER (PARTITION BY key ORDER BY s, e) AS number FROM {name}_places)
    GROUP BY key, number)"""

_COUNTS: Final = """
SELECT
    (SELECT sum(least(windows, greatest(waiting - open, 1))) FROM lost_groups AS a WHERE {is_lost}) AS lost,
    (SELECT sum(least(windows, surplus)) FROM (
        SELECT open - waiting - (SELECT coalesce(sum({replaced}), 0) FROM ({unfired}) AS a JOIN shown AS b ON {same}
            WHERE a.key IS NOT DISTINCT FROM g.key AND a.s >= g.s AND a.e <= g.e) AS surplus,
            (SELECT count(*) FROM shown AS b WHERE {touching}) AS windows
        FROM repeated_groups AS g) WHERE surplus > 0) AS repeated"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderRows:
    """The stored rows of both chains around a border, with the key columns `keys` that both specs have.

    - `former` and `new`: the rows of `window_state` at the border, with `STATE_COLUMNS`.
    - `shown`: the panes of the former chain that readers see, with `PANE_COLUMNS`.
    - `hidden`: the results that the new chain has fired before the border, and `later`: those after it.
    - `has_all_hidden`: the new chain began without a warm-up, which fires no pane of the windows before it.
    - `has_same_keys`: no spec has another key column. A pane replaces one of the same key and bounds.
    - `has_same_clock`: both specs place records by event time, or both by processing time.
    - `watermark_ms`: the greatest watermark of the new chain at the border; None if it is not known.
    """

    specs: tuple[WindowsGrammar, WindowsGrammar]
    keys: Sequence[str]
    has_same_keys: bool
    has_same_clock: bool
    former: pa.Table
    new: pa.Table
    shown: pa.Table
    hidden: pa.Table
    has_all_hidden: bool
    later: pa.Table
    watermark_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderCount:
    """How many windows of the former chain have records that readers never see, and how many those they see twice."""

    lost: int
    repeated: int


def border_count(rows: BorderRows) -> BorderCount:
    """Return how many windows of the former chain have records that readers never see, and that they see twice.

    A repeated window is counted if a window of the new chain certainly shows records of it; of two specs with sliding
    windows, if that has the same bounds.
    """
    relations = {f"{name}_rows": getattr(rows, name) for name in ("former", "new", "shown", "hidden", "later")}
    counts = query(relations, _sql(rows)).to_pylist()[0]
    return BorderCount(lost=int(counts["lost"] or 0), repeated=int(counts["repeated"] or 0))


def _sql(rows: BorderRows) -> str:
    former, new = rows.specs
    columns = ["''", *(f"CAST({quote_duckdb(name)} AS VARCHAR)" for name in rows.keys)]
    key = f"[{', '.join(columns)}] AS key"
    is_apart = rows.has_same_clock and former.sliding is not None and new.sliding is not None
    is_same = is_apart and _has_each(new.sliding, former.sliding)
    purges = new.trigger is not None and new.trigger.purging is not None
    repeats_panes = new.accumulation != "discarding" and not purges
    chains = _CHAINS.format(
        key=_KEY,
        same=_SAME,
        panes=f"{key}, {_ENDS.format('epoch_ms(window_start)', 'epoch_ms(window_end)')}",
        state=f"{key}, {_ENDS.format('window_start_ms', 'window_end_ms')}",
        fires_at_end=fires_at_end(new),
        fires_left=new.leftovers == "fire",
        shows_left_again=new.leftovers == "fire" and repeats_panes,
    )
    bounds = "s, e" if rows.has_same_clock else _ENDS.format("NULL", "NULL")
    waiting, unfired, sure = "FROM waiting", "FROM open", "FROM open WHERE is_sure"
    lost = _GROUPS.format(
        name="lost", bounds=bounds, is_apart=is_same, open=unfired if is_same else _at_most_once(unfired, new.sliding),
        waiting=waiting if is_same else _at_least_once(waiting, former.sliding, after_shown=not fires_early(former)),
    )  # fmt: skip
    unfired = sure if is_apart else _at_most_once(sure, new.sliding, after_fired=True)
    repeated = _GROUPS.format(
        name="repeated", bounds=bounds, is_apart=is_apart, open=unfired,
        waiting=waiting if is_apart else _at_least_once(waiting, former.sliding),
    )  # fmt: skip
    is_lost = f"(waiting > open AND {'true' if fires_at_end(new) else _IS_HIDDEN})"
    if may_hide(rows.specs, has_same_clock=rows.has_same_clock):
        is_lost += f" OR ({_MAY_BE_LOST})"
    all_shown_ms = None if rows.watermark_ms is None else _all_shown_from(new, rows.watermark_ms)
    if all_shown_ms is not None:
        is_lost = f"({is_lost}) AND waiting_from < {all_shown_ms}"
    replaced = "newest" if former.accumulation == "discarding" else "CASE panes WHEN 1 THEN records ELSE newest END"
    replaces = rows.has_same_keys and repeats_panes
    counts = _COUNTS.format(
        is_lost=is_lost.format(touching=_SAME if is_same else _OVERLAPPING, hides_unseen=not rows.has_all_hidden),
        replaced=replaced if replaces else "0",
        same=_SAME,
        unfired=unfired,
        touching=(_SAME if is_apart else _OVERLAPPING).replace("a.", "g."),
    )
    return f"WITH {chains}, {lost}, {repeated} {counts}"


def _all_shown_from(new: WindowsGrammar, watermark_ms: int) -> int | None:
    """Return the start of the first window that ends after a watermark: all later records are shown after it.

    None: the windows have no fixed grid, or may fire or leave records out before their end.
    """
    grid = new.sliding or (new.tumbling if new.tumbling is not None and new.tumbling.stagger.by == "aligned" else None)
    if grid is None or new.time != "event" or new.evictor is not None or not fires_at_end(new) or fires_early(new):
        return None
    trigger = _firing(new)
    if trigger is not None and trigger.kind == "processing_time":
        return None
    slide_ms = grid.slide_ms if isinstance(grid, Sliding) else grid.size_ms
    return grid.offset_ms + ((watermark_ms + 1 - grid.size_ms - grid.offset_ms) // slide_ms + 1) * slide_ms


def _has_each(new: Sliding | None, former: Sliding | None) -> bool:
    """Return whether each of the former sliding windows is one of the new ones, too."""
    if new is None or former is None or new.size_ms != former.size_ms:
        return False
    return former.slide_ms % new.slide_ms == 0 and (former.offset_ms - new.offset_ms) % new.slide_ms == 0


def _at_least_once(rows: str, sliding: Sliding | None, *, after_shown: bool = False) -> str:
    """Return the query of rows whose windows have each record; with `after_shown`, each one that is not shown."""
    if sliding is None:
        return rows
    start = _AFTER_SHOWN.format(rest=sliding.size_ms % sliding.slide_ms) if after_shown else _EARLIEST
    return _each(rows, start=start, step_ms=max(sliding.size_ms // sliding.slide_ms, 1) * sliding.slide_ms)


def _at_most_once(rows: str, sliding: Sliding | None, *, after_fired: bool = False) -> str:
    """Return the query of rows whose windows do not overlap; with `after_fired`, of records in no window that fired."""
    if sliding is None:
        return rows
    step_ms = -(-sliding.size_ms // sliding.slide_ms) * sliding.slide_ms
    start = f"{_EARLIEST} + {step_ms - sliding.slide_ms}" if after_fired else _EARLIEST
    return _each(rows, start=start, step_ms=step_ms)


def _each(rows: str, *, start: str, step_ms: int) -> str:
    placed = f"SELECT *, {start} AS origin FROM ({rows}) AS a"  # noqa: S608
    is_chosen = f"s >= origin AND (s - origin) % {step_ms} = 0"
    return f"SELECT * EXCLUDE origin FROM ({placed}) WHERE {is_chosen}"  # noqa: S608


def fires_at_end(windows: WindowsGrammar) -> bool:
    """Return whether each window certainly fires at its end."""
    trigger = _firing(windows)
    return trigger is None or trigger.kind in _AT_THE_END | {"continuous", "after_watermark"}


def may_hide(specs: Sequence[WindowsGrammar], *, has_same_clock: bool) -> bool:
    """Return whether records that only the new chain has fired may wait beside as many that readers see."""
    return not has_same_clock or any(map(fires_early, specs))


def fires_early(windows: WindowsGrammar) -> bool:
    """Return whether windows may fire before their end, or have none."""
    if windows.is_unbounded or windows.storm is not None:
        return True
    trigger = _firing(windows)
    if trigger is None or trigger.kind in _AT_THE_END:
        return False
    return trigger.after_watermark is None or trigger.after_watermark.early is not None


def _firing(windows: WindowsGrammar) -> TriggerGrammar | None:
    """Return the trigger that decides when windows fire: the one inside `purging`."""
    trigger = windows.trigger
    while trigger is not None and trigger.purging is not None:
        trigger = trigger.purging
    return trigger
