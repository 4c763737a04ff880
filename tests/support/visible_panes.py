"""A model of the published view in plain Python: the rows of one window that readers see."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

Row = Mapping[str, Any]


def order_of(row: Row) -> tuple[Any, ...]:
    """Return the sort key of a window's rows; rows of one firing have equal keys."""
    return row["slice_id"], row["pane_index"], row["kind"] != "result", row["fired_rank"]


def visible(firings: Iterable[Sequence[Row]]) -> list[Row]:
    """Return the rows that readers see, from the firings of one window in order.

    A firing that repeats the one before it replaces it. A withdrawal removes it. Any other firing is added.
    """
    shown: list[Sequence[Row]] = []
    for firing in firings:
        is_added = firing[0]["kind"] == "result" and any(row["mode"] == "discarding" for row in firing)
        if shown and not is_added:
            shown.pop()
        shown.append([row for row in firing if row["kind"] == "result"])
    return [row for firing in shown for row in firing]


def visible_by_order(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that readers see, from rows in any order."""
    return visible([list(firing) for _, firing in groupby(sorted(rows, key=order_of), key=order_of)])


def visible_as_emitted(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that readers see, from rows in the order in which an operator emitted them."""
    firings: list[list[Row]] = []
    for row in rows:
        is_same = firings and all(firings[-1][0][name] == row[name] for name in ("slice_id", "pane_index", "kind"))
        if is_same:
            firings[-1].append(row)
        else:
            firings.append([row])
    return visible(firings)
