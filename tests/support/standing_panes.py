"""What readers see of one window, row by row: the words of the published view as a loop."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

Row = Mapping[str, Any]


def order_of(row: Row) -> tuple[Any, ...]:
    """The order of the rows of one window; rows of one firing are equal in it."""
    return row["slice_id"], row["pane_index"], row["kind"] != "result", row["fired_rank"]


def standing(rows: Iterable[Sequence[Row]]) -> list[Row]:
    """The rows that stand, of the firings of one window in order.

    A firing that repeats the one before it replaces it, a withdrawal takes it away, any other stands beside it.
    """
    stands: list[Sequence[Row]] = []
    for firing in rows:
        is_anew = firing[0]["kind"] == "result" and any(row["mode"] == "discarding" for row in firing)
        if stands and not is_anew:
            stands.pop()
        stands.append([row for row in firing if row["kind"] == "result"])
    return [row for firing in stands for row in firing]


def standing_by_order(rows: Iterable[Row]) -> list[Row]:
    """The same for rows in any order."""
    return standing([list(firing) for _, firing in groupby(sorted(rows, key=order_of), key=order_of)])


def standing_as_emitted(rows: Sequence[Row]) -> list[Row]:
    """The same for rows in the order in which an operator emitted them."""
    firings: list[list[Row]] = []
    for row in rows:
        is_same = firings and all(firings[-1][0][name] == row[name] for name in ("slice_id", "pane_index", "kind"))
        if is_same:
            firings[-1].append(row)
        else:
            firings.append([row])
    return standing(firings)
