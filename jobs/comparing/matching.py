"""Matches the rows of both views within one part, and counts the differences.

The rows of a window that readers see are matched in three stages, each in their order: rows that are equal in all
columns, then rows with equal values, then all that are left. A row that is left over is only in one view.
"""

from dataclasses import dataclass

from jobs.comparing.comparison_keys import Shape, Unit
from jobs.comparing.partitions import ALONE, CIRCUMSTANCES, ROW, SIDE, VALUES
from jobs.lake.arrow_sql import ArrowSql
from jobs.reading.published import BOUNDS, PublishedView, published_sql, quote_duckdb
from windowlib.libraries import pa

GROUP = "__group"
AT, STAGE, PAIR, PLACE = "__at", "__stage", "__pair", "__place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """One part after matching.

    - `rows` are the rows of the part.
    - `seen` has one row for each row of a view: `__at` 0 (before) or 1 (after), `__group` (the number of the window, or
      of the rows with equal `match`), `__row`, `__stage` 1 to 3. The two rows of a pair have equal `__group`,
      `__stage`, `__pair` and `__place`.
    """

    rows: "pa.Table"
    seen: "pa.Table"


def match_rows(
    sql: ArrowSql, rows: "pa.Table", shape: Shape, *, everything: bool = False, with_hidden: bool = False
) -> Matched:
    """Match the rows of one part: of the windows with a row that can differ, or of all windows.

    With `with_hidden`, `seen` also has the rows of differing slices, shown or not, with `__at` 2 and stage 0.
    """
    match = [*shape.match, *((ALONE,) if ALONE in rows.column_names else ())]
    own = ("kind", "mode", "fired_rank") if shape.unit.is_of_windows else ()
    names = dict.fromkeys((*match, *own, "slice_id", *shape.order, *(BOUNDS if own else ()), SIDE, ROW))
    narrow = rows.select([*names, VALUES, CIRCUMSTANCES])
    return Matched(
        rows=rows,
        seen=sql.query(
            {"narrow": narrow},
            _matching_sql(shape, match, everything=everything) + (_HIDDEN_SQL if with_hidden else ""),
        ),
    )


def _matching_sql(shape: Shape, match: list[str], *, everything: bool) -> str:
    quoted = ", ".join(map(quote_duckdb, match))
    same = " AND ".join(f"narrow.{name} IS NOT DISTINCT FROM groups.{name}" for name in map(quote_duckdb, match))
    chosen = "" if everything else f"WHERE {SIDE} < 2"
    shown = " UNION ALL ".join(_shown_sql(shape, side) for side in (0, 1))
    return f"""
        WITH groups AS MATERIALIZED (
            SELECT {quoted}, row_number() OVER () AS {GROUP} FROM (SELECT DISTINCT {quoted} FROM narrow {chosen})
        ),
        placed AS MATERIALIZED (SELECT narrow.*, groups.{GROUP} FROM narrow JOIN groups ON {same}),
        before_rows AS (SELECT * FROM placed WHERE {SIDE} IN (0, 2)),
        after_rows AS (SELECT * FROM placed WHERE {SIDE} IN (1, 2)),
        shown AS MATERIALIZED ({shown}),
        first AS ({_staged_sql(shape, "shown", (GROUP, VALUES, CIRCUMSTANCES))}),
        second AS ({_staged_sql(shape, "(SELECT * FROM first WHERE NOT is_matched)", (GROUP, VALUES))}),
        third AS ({_staged_sql(shape, "(SELECT * FROM second WHERE NOT is_matched)", (GROUP,))})
        SELECT {AT}, {GROUP}, {ROW}, 1 AS {STAGE}, {VALUES} AS {PAIR}, {PLACE} FROM first WHERE is_matched
        UNION ALL SELECT {AT}, {GROUP}, {ROW}, 2, {VALUES}, {PLACE} FROM second WHERE is_matched
        UNION ALL SELECT {AT}, {GROUP}, {ROW}, 3, 0, {PLACE} FROM third
    """  # noqa: S608  (identifiers are quoted; there are no values)


_HIDDEN_SQL = f"UNION ALL SELECT 2, {GROUP}, {ROW}, 0, 0, 0 FROM placed WHERE {SIDE} < 2"  # noqa: S608


def _shown_sql(shape: Shape, side: int) -> str:
    """Return the query of the rows that one view shows."""
    columns = [GROUP, ROW, VALUES, CIRCUMSTANCES, *shape.order]
    view = PublishedView(keys=[GROUP], columns=columns, all_panes=shape.unit is not Unit.WINDOW)
    shown = published_sql(view, relation=("before_rows", "after_rows")[side], quote=quote_duckdb)
    return f"SELECT {side} AS {AT}, * FROM ({shown})"  # noqa: S608


def _staged_sql(shape: Shape, relation: str, by: tuple[str, ...]) -> str:
    """Return the query that matches the rows of both views that are equal `by` some columns, in their order."""
    group, order = ", ".join(by), ", ".join((*map(quote_duckdb, shape.order), VALUES, CIRCUMSTANCES, ROW))
    kept = ", ".join((AT, GROUP, ROW, VALUES, CIRCUMSTANCES, *map(quote_duckdb, shape.order)))
    return f"""
        SELECT *, {PLACE} <= least(
            count(*) FILTER (WHERE {AT} = 0) OVER (PARTITION BY {group}),
            count(*) FILTER (WHERE {AT} = 1) OVER (PARTITION BY {group})
        ) AS is_matched
        FROM (
            SELECT {kept}, row_number() OVER (PARTITION BY {AT}, {group} ORDER BY {order}) AS {PLACE}
            FROM {relation} AS unmatched
        ) AS numbered
    """  # noqa: S608


PAIRS_SQL = f"""
    SELECT {GROUP}, one.{ROW} AS before_row, two.{ROW} AS after_row, coalesce(one.{STAGE}, two.{STAGE}) = 3 AS is_change
    FROM (SELECT * FROM seen WHERE {AT} = 0 AND {STAGE} > 1) AS one
    FULL JOIN (SELECT * FROM seen WHERE {AT} = 1 AND {STAGE} > 1) AS two
    USING ({GROUP}, {STAGE}, {PAIR}, {PLACE})
    ORDER BY before_row, after_row
"""  # noqa: S608
"""The query over `Matched.seen` for the pairs of rows that are not equal. A row of one view only has no other row."""

GROUPS_SQL = f"""
    SELECT {GROUP}, bool_or({AT} = 0) AS has_before, bool_or({AT} = 1) AS has_after,
        bool_or({STAGE} = 3) AS is_change, bool_or({STAGE} = 2) AS is_otherwise
    FROM seen GROUP BY {GROUP}
"""  # noqa: S608
"""The query over `Matched.seen` for the windows: in which views it is, and whether its rows differ."""

COUNTS_SQL = f"""
    SELECT count(*) FILTER (WHERE NOT has_after) AS only_before,
        count(*) FILTER (WHERE NOT has_before) AS only_after,
        count(*) FILTER (WHERE has_before AND has_after AND is_change) AS changed,
        count(*) FILTER (WHERE has_before AND has_after AND is_otherwise AND NOT is_change) AS same_values,
        count(*) FILTER (WHERE has_before AND has_after AND NOT is_otherwise AND NOT is_change) AS equal
    FROM ({GROUPS_SQL}) AS groups
"""  # noqa: S608
"""The query over `Matched.seen` for the numbers of windows."""

ROW_COUNTS_SQL = f"""
    SELECT count(*) FILTER (WHERE {AT} = 0 AND {STAGE} = 1) AS equal,
        count(*) FILTER (WHERE {AT} = 0 AND {STAGE} = 2) AS same_values FROM seen
"""  # noqa: S608
"""The query over `Matched.seen` for the numbers of rows without a change."""
