"""Which records form one session: arrival, watermark and intervals in, sessions and late records out, by column.

An *element* is a record or an open session of the state. It has a key, an interval [start, end], and the watermark that
it met. A session is *open* until the watermark reaches its end - 1 + lateness. A record joins the open sessions of its
key that its interval overlaps or touches. Without any, it opens a session of its own, or is late if that session is
already closed. `open_from` = watermark met - lateness + 2 is the least end of a session that is open when the element
arrives.

Definitions: an element is *early* if end >= open_from, so its own session is open when it arrives. All other elements
are *behind*; they are late unless they join an open session.

The computation rests on three facts. They hold for records with different gaps too.

1. Sort the early elements of a key by end. The elements of each session are then neighbours. When a session closes at
   the instant c, all its elements have ends <= c, all early elements that arrive later have greater ends, and any other
   open session is to the right of it.
2. The element i is the last of its session in that order, exactly if no later element m has start_m <= end_i and
   open_from_m <= end_i. Such an element touches i and arrives while the session of i is open. If one element of a
   session has a greater end than i, then one of them touches i. So a session ends after i exactly if the minimum of
   max(start_m, open_from_m) over all m > i of the key is greater than end_i.
3. An element that is behind never changes which early elements are together: a session that it can join is open at its
   arrival, so the session's end is greater, and no later early element ends before the element that is behind. It
   can join only the session of the first early element in the order with end >= open_from, and joins it if an element
   of that session which arrived before starts at or before its end. It may extend the session to the left, and an
   element that is behind and arrives later may touch that extension.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.grouping import PairCodes, sorted_rows

_OPEN_AT: Final = 2
"""A session [start, end) is open at the watermark w if end - 1 > w, which is end >= w + 2."""
_NEVER: Final = np.int64(MAX_TIME_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Records and open sessions in the order of their arrival. All columns have one value per element.

    `key_code` is a dense number >= 0. `open_from_ms` is MIN_TIME_MS for an open session of the state.
    """

    key_code: Int64s
    start_ms: Int64s
    end_ms: Int64s
    open_from_ms: Int64s

    def __len__(self) -> int:
        return len(self.key_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Sessions as groups of elements, sorted by (key, end).

    `order` has the numbers of the elements that are not late, group by group. Group g is order[starts[g]:starts[g+1]].
    `key_code`, `start_ms` and `end_ms` have one value per group. `late` has the numbers of the late elements,
    ascending.
    """

    order: Int64s
    starts: Int64s
    key_code: Int64s
    start_ms: Int64s
    end_ms: Int64s
    late: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    def sizes(self) -> Int64s:
        """Return the number of elements of each group."""
        return np.diff(self.starts, append=len(self.order))

    def take(self, chosen: Int64s) -> "Groups":
        """Return some of the groups, without late elements."""
        rows, _ = rows_of_groups(self, chosen)
        sizes = self.sizes()[chosen]
        return Groups(
            order=rows,
            starts=np.cumsum(sizes) - sizes,
            key_code=self.key_code[chosen],
            start_ms=self.start_ms[chosen],
            end_ms=self.end_ms[chosen],
            late=self.late[:0],
        )


def open_from_ms(watermark_ms: Int64s, lateness_ms: int) -> Int64s:
    """Return the least end of a session that is open at each watermark, saturated at the bounds of 64 bits.

    A session is closed from the watermark min(end - 1 + lateness, MAX_TIME_MS) on.
    """
    if lateness_ms < _OPEN_AT:
        more = _OPEN_AT - lateness_ms
        least = np.minimum(watermark_ms, MAX_TIME_MS - more) + more
    else:
        less = lateness_ms - _OPEN_AT
        least = np.maximum(watermark_ms, MIN_TIME_MS + less) - less
    if len(watermark_ms) and watermark_ms[-1] > MAX_TIME_MS - _OPEN_AT:
        least[watermark_ms == MAX_TIME_MS] = _NEVER
    return least


def group(elements: Elements) -> Groups:
    """Return the sessions that the elements form.

    Open sessions of the state come first. They do not touch each other.
    """
    is_early = elements.end_ms >= elements.open_from_ms
    if is_early.all():
        return _early_groups(elements, slice(None))[0]
    groups, codes = _early_groups(elements, np.flatnonzero(is_early))
    return _with_behind(groups, elements, behind=np.flatnonzero(~is_early), codes=codes)


def _early_groups(elements: Elements, early: Int64s | slice) -> tuple[Groups, PairCodes]:
    """Return the sessions of the early elements, and the codes of pairs of key and time."""
    key_code, start_ms, end_ms = (column[early] for column in (elements.key_code, elements.start_ms, elements.end_ms))
    nothing = np.zeros(0, dtype=np.int64)
    if not len(key_code):
        empty = Groups(order=nothing, starts=nothing, key_code=nothing, start_ms=nothing, end_ms=nothing, late=nothing)
        return empty, PairCodes(0, 1, None)
    joins_ms = np.maximum(start_ms, elements.open_from_ms[early])
    codes = PairCodes.of(elements.start_ms, end_ms, joins_ms, keys=int(elements.key_code.max()) + 1)
    order, ends = sorted_rows(codes.codes(key_code, end_ms))
    starts, lasts = _cut(ends, codes.codes(key_code, joins_ms).take(order))
    keys_of_groups, ends_ms = codes.pairs(ends[lasts])
    groups = Groups(
        order=order if isinstance(early, slice) else early[order],
        starts=starts,
        key_code=keys_of_groups,
        start_ms=np.minimum.reduceat(start_ms.take(order), starts),
        end_ms=ends_ms,
        late=nothing,
    )
    return groups, codes


def _cut(ends: Int64s, joins: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first and the last element of each session (fact 2). All values are packed with their keys."""
    least_after = np.minimum.accumulate(joins[::-1])[::-1]
    is_last = np.empty(len(ends), dtype=np.bool_)
    np.greater(least_after[1:], ends[:-1], out=is_last[:-1])
    is_last[-1] = True
    lasts = np.flatnonzero(is_last)
    starts = np.empty_like(lasts)
    starts[0] = 0
    starts[1:] = lasts[:-1] + 1
    return starts, lasts


def _with_behind(groups: Groups, elements: Elements, *, behind: Int64s, codes: PairCodes) -> Groups:
    """Return the groups with the elements that are behind: in the session that they join, or late."""
    group_of, joins = _joined(groups, elements, behind=behind, codes=codes)
    late = behind[~joins]
    if not joins.any():
        return _replaced(groups, late=late)
    joined, into = behind[joins], group_of[joins]
    by_group = np.argsort(into, kind="stable")
    joined, into = joined[by_group], into[by_group]
    ends = groups.starts + groups.sizes()
    start_ms = groups.start_ms.copy()
    np.minimum.at(start_ms, into, elements.start_ms[joined])
    counts = np.bincount(into, minlength=len(groups))
    return _replaced(
        groups,
        order=np.insert(groups.order, ends[into], joined),
        starts=groups.starts + np.cumsum(counts) - counts,
        start_ms=start_ms,
        late=late,
    )


def _replaced(groups: Groups, **changed: Int64s) -> Groups:
    columns = {name: getattr(groups, name) for name in Groups.__slots__}
    return Groups(**{**columns, **changed})


def _joined(groups: Groups, elements: Elements, *, behind: Int64s, codes: PairCodes) -> tuple[Int64s, Bools]:
    """Return, for each element that is behind, the only group that it can join, and whether it joins."""
    key_code, open_from, end_ms = (
        column[behind] for column in (elements.key_code, elements.open_from_ms, elements.end_ms)
    )
    ends = codes.codes(groups.key_code, groups.end_ms)
    wanted = codes.codes(key_code, open_from)  # the end of an element that is behind is less
    first_not_before = np.searchsorted(ends, wanted, side="left")
    inside = np.minimum(first_not_before, len(groups) - 1)
    has_group = first_not_before < len(groups)
    if len(groups):
        has_group &= groups.key_code[inside] == key_code
        touches = has_group & (groups.start_ms[inside] <= end_ms)
    else:
        touches = has_group
    joins = np.zeros(len(behind), dtype=np.bool_)
    if touches.any():
        affected = np.unique(inside[touches])
        candidates = np.flatnonzero(has_group & np.isin(inside, affected))
        joins[candidates] = _joins_in_order(
            groups, elements, affected=affected, candidates=behind[candidates], into=inside[candidates]
        )
    return inside, joins


def _joins_in_order(groups: Groups, elements: Elements, *, affected: Int64s, candidates: Int64s, into: Int64s) -> Bools:
    """Return which candidates join their group: an element that arrived before starts at or before their end."""
    rows, owner = rows_of_groups(groups, affected)
    arrivals, group_of = np.concatenate([rows, candidates]), np.concatenate([owner, into])
    order = np.lexsort((arrivals, group_of))
    arrivals = arrivals[order]
    columns = (group_of[order], order < len(rows), elements.start_ms[arrivals], elements.end_ms[arrivals])
    is_joined: list[bool] = []
    own, least_ms = -1, int(_NEVER)
    # An element that joins may extend the session for the next one, so each is decided after those before it.
    for number, is_early, start_ms, end_ms in zip(*(column.tolist() for column in columns), strict=True):
        if number != own:
            own, least_ms = number, int(_NEVER)
        joins = is_early or least_ms <= end_ms
        is_joined.append(joins)
        if joins and start_ms < least_ms:
            least_ms = start_ms
    result = np.empty(len(order), dtype=np.bool_)
    result[order] = is_joined
    return result[len(rows) :]


def rows_of_groups(groups: Groups, chosen: Int64s) -> tuple[Int64s, Int64s]:
    """Return the elements of some groups, and the group of each."""
    sizes = groups.sizes()[chosen]
    owner = np.repeat(chosen, sizes)
    within = np.arange(len(owner), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return groups.order[groups.starts[owner] + within], owner


def least_start_before(group_of: Int64s, start_ms: Int64s) -> Int64s:
    """Return the least start before each element in its group; MAX_TIME_MS for a group's first.

    Equal groups are neighbours. Elements of one group are in the order of arrival.
    """
    if not len(start_ms):
        return start_ms
    times, ranks = np.unique(start_ms, return_inverse=True)
    is_first = np.concatenate([[True], group_of[1:] != group_of[:-1]])
    number = np.cumsum(is_first)
    falling = (number[-1] - number) * (len(times) + 1)
    least = np.minimum.accumulate(falling + ranks) - falling
    before = np.empty_like(start_ms)
    before[1:] = times[least[:-1]]
    before[is_first] = _NEVER
    return before


def state_window_sources(groups: Groups, elements: Elements, chosen: Int64s) -> Int64s:
    """Return, for each chosen group, the element whose state window the session has.

    A record that touches no session becomes a session with its own bounds as its state window. When sessions merge, the
    first of them keeps its state window (windowlib.windows.merging). So it is that of the last element to arrive that
    lies to the left of all elements before it and touches none of them.
    """
    rows, owner = rows_of_groups(groups, chosen)
    order = np.lexsort((rows, owner))
    rows, owner = rows[order], owner[order]
    opens = np.flatnonzero(elements.end_ms[rows] < least_start_before(owner, elements.start_ms[rows]))
    lasts = np.searchsorted(owner[opens], chosen, side="right") - 1
    return rows[opens[lasts]]
