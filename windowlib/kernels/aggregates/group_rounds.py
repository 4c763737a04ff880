"""A binary function over each group of a column, for many small groups.

A call of `reduceat` costs 15 ns for each group. Here the first elements of all groups are combined with their second
elements, then with their third elements, and so on: 4 ns for each group of two. Which elements meet in which round
follows from the starts of the groups alone, so several columns with the same groups share it.
"""

import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from windowlib.kernels.aggregates.column_aggregate import Int64s

LARGE_GROUP: Final = 4
"""Groups that have at least this many elements on average are reduced by `reduceat`."""
ROUNDS_MAX: Final = 8
"""The elements of a group after this number and the first are reduced by `reduceat`."""


@dataclass(frozen=True, slots=True)
class _Rounds:
    """The rounds of groups that start at `starts`, of `count` elements.

    A round has groups, and an element of each. `rest` has the groups with more elements, `rest_rows` these elements,
    group by group, and `rest_starts` the first of them in each group.
    """

    starts: Int64s
    count: int
    rounds_max: int
    rounds: tuple[tuple[Int64s, Int64s], ...]
    rest: Int64s
    rest_rows: Int64s
    rest_starts: Int64s


class _Recent(threading.local):
    """The rounds of the last call of each thread."""

    rounds: _Rounds | None = None


_RECENT = _Recent()


def reduced_groups(
    function: np.ufunc,
    values: npt.NDArray[Any],
    starts: Int64s,
    *,
    large: int = LARGE_GROUP,
    rounds_max: int = ROUNDS_MAX,
) -> npt.NDArray[Any]:
    """Return `function` over the elements of each group, from left to right, as `function.reduceat(values, starts)`.

    `function` is associative, and its result has the type of its arguments. `starts` has the first element of each
    group. No group is empty, and the first starts at 0. It is not changed later. With at least `large` elements a group
    on average, `reduceat` is used. `rounds_max` changes the speed only.
    """
    if len(values) >= large * len(starts):
        return np.asarray(function.reduceat(values, starts)) if len(starts) else values[:0]
    plan = _rounds_of(starts, len(values), rounds_max)
    out = values.take(starts)  # an index in brackets takes 1.4 times as long
    for groups, rows in plan.rounds:
        out[groups] = function(out.take(groups), values.take(rows))
    if len(plan.rest):
        others = function.reduceat(values.take(plan.rest_rows), plan.rest_starts)
        out[plan.rest] = function(out[plan.rest], others)
    return out


def _rounds_of(starts: Int64s, count: int, rounds_max: int) -> _Rounds:
    """Return the rounds of groups. Those of the last call are kept, because several columns have the same groups."""
    rounds = _RECENT.rounds
    if rounds is None or rounds.starts is not starts or (rounds.count, rounds.rounds_max) != (count, rounds_max):
        rounds = _RECENT.rounds = _new_rounds(starts, count, rounds_max)
    return rounds


def _new_rounds(starts: Int64s, count: int, rounds_max: int) -> _Rounds:
    sizes = np.empty(len(starts), dtype=np.int64)
    np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
    sizes[-1:] = count - starts[-1:]
    rounds: list[tuple[Int64s, Int64s]] = []
    groups = np.flatnonzero(sizes > 1)
    while len(groups) and len(rounds) < rounds_max:
        rounds.append((groups, starts.take(groups) + (len(rounds) + 1)))
        groups = groups[sizes.take(groups) > len(rounds) + 1]
    left = sizes[groups] - (len(rounds) + 1)
    ends = np.cumsum(left)
    rest_starts = ends - left
    rows = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    rows += np.repeat(starts[groups] + (len(rounds) + 1) - rest_starts, left)
    return _Rounds(starts, count, rounds_max, tuple(rounds), groups, rows, rest_starts)
