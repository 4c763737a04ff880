"""Simple windows computed in SQL from the records of the log, without operator, trigger or state.

Tumbling and sliding windows and sessions that fire once, at their end, under a bounded watermark. What this module
knows is the definition: a record misses a window that the watermark before it had completed.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from jobs.lake.arrow_sql import query
from tests.matrix.one_process import Entry
from tests.matrix.pipelines import OWN_WINDOWS, SIMPLE, Case
from tests.matrix.rows import Row

MINUTE_MS: Final = 60_000
_SIZES: Final = {"tumbling": (10, 10, 0), "offset": (10, 10, -3), "sliding": (15, 5, 0), "gaps": (4, 6, 1)}
"""Size, slide and offset in minutes."""
_BEHIND_MS: Final = {"wide": 3_600_001, "bounded": 300_001, "ascending": 1, "legacy": 120_000}
"""How far the watermark is behind the greatest event time."""
_COLUMNS: Final = {
    "plain": "count(*) AS records, sum(level)::BIGINT AS total",
    "extremes": "count(*) AS records, min(value) AS least, max(level) AS most",
}
_AT_ONCE: Final = """
    timed AS (SELECT *, max(at_ms) OVER (ORDER BY sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                        - {behind} AS mark FROM valid),
    edges AS (SELECT timed.*, first + {size} AS last, first FROM
              (SELECT timed.*, unnest(generate_series(
                 at_ms - (at_ms - {offset}) % {slide} - {size} // {slide} * {slide}, at_ms, {slide})) AS first
               FROM timed) AS timed
              WHERE first <= at_ms AND at_ms < first + {size} AND coalesce(first + {size} - {closed} > mark, true)),
    windows AS (SELECT {keys} first AS window_start, last AS window_end, {columns} FROM edges GROUP BY ALL)"""
_IN_BURSTS: Final = """
    reaching AS (SELECT *, at_ms + {gap} AS reach, max(at_ms + {gap}) OVER (
                   PARTITION BY ({keys} 0) ORDER BY at_ms, sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                 ) AS before FROM valid),
    numbered AS (SELECT *, sum(CASE WHEN at_ms {meets} before THEN 0 ELSE 1 END) OVER (
                   PARTITION BY ({keys} 0) ORDER BY at_ms, sequence) AS burst FROM reaching),
    windows AS (SELECT {keys} min(at_ms) AS window_start, max(reach) AS window_end, {columns} FROM numbered
                GROUP BY {keys} burst)"""


def can_read(case: Case) -> bool:
    """Return whether the pipeline is simple enough. Sessions are, if no record can be late."""
    choice = case.choice
    if case.family not in OWN_WINDOWS or any(choice[name] not in allowed for name, allowed in SIMPLE.items()):
        return False
    if choice["semantics"] == "beam" and choice["accumulation"] == "discarding":
        return False  # a record at the very end of a window makes a second pane
    return not case.forgets_sessions and (choice["watermark"] == "wide" or choice["windows"] in _SIZES)


def windows_of_the_log(case: Case, entries: Sequence[Entry]) -> list[Row]:
    """Return key, bounds and aggregates of the windows that are complete at the log's end."""
    choice, keys = case.choice, "".join(f"{name}, " for name in case.pipeline.log.key_columns)
    # A window is complete, and closed for records, at its last instant; in Beam complete at its end, closed beyond it.
    is_beam = choice["semantics"] == "beam"
    complete, closed = (0, -1) if is_beam else (1, 1)
    parts = {"keys": keys, "columns": _COLUMNS[choice["compute"]], "closed": closed}
    behind_ms = _BEHIND_MS[choice["watermark"]]
    if choice["windows"] in _SIZES:
        size, slide, offset = (minutes * MINUTE_MS for minutes in _SIZES[choice["windows"]])
        text = _AT_ONCE.format(**parts, size=size, slide=slide, offset=offset, behind=behind_ms)
    else:
        gap = 3 * MINUTE_MS if choice["windows"] == "session" else "gap_ms"
        text = _IN_BURSTS.format(**parts, gap=gap, meets="<" if is_beam else "<=")
    sql = (
        f"WITH {text.strip()} SELECT * FROM windows WHERE window_end - {complete} <= "  # noqa: S608 - our own words
        f"(SELECT max(at_ms) - {behind_ms} FROM valid)"
    )
    return list(query({"valid": _valid(entries)}, sql).to_pylist())


def _valid(entries: Sequence[Entry]) -> pa.Table:
    rows = [{**entry.reading._asdict(), "sequence": entry.sequence} for entry in entries if entry.problem is None]
    for row in rows:
        row["value"] = 0.0 if row["value"] == 0 else row["value"]  # -0.0 is a zero like the other
    return pa.Table.from_pylist(rows)
