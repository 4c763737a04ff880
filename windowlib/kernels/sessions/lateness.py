"""Groups of elements whose sessions fire before the last element has arrived. They exist only with allowed lateness.

Without allowed lateness, a group falls into *runs*, sessions that close when they fire, and late records. With allowed
lateness, each run is still one session until it fires. A session that has fired ends
at most at the watermark + 1, so a record that touches it has at most that event time. All other records of a run enter
as one session. Only the records that may follow a firing are replayed one by one (windowlib.kernels.sessions.rounds).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from windowlib.bounds import MIN_TIME_MS
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.grouping import starts_of
from windowlib.kernels.sessions.contents import Grouped, Sessions, sessions_of
from windowlib.kernels.sessions.groups import Elements, Groups, group, open_from_ms, rows_of_groups
from windowlib.kernels.sessions.rounds import Arrivals, Members
from windowlib.records.row_ids import IdSum


class FiringAgain(NamedTuple):
    """The sessions of some groups, and their records that may follow a firing, and the tally of all their records."""

    members: Members
    arrivals: Arrivals
    entered: IdSum


def open_without_lateness(grouped: Grouped) -> Int64s:
    """Return, per element, the least end of a session that has not fired when the element arrives."""
    before = np.full(len(grouped.opened), MIN_TIME_MS, dtype=np.int64)
    return np.concatenate([before, open_from_ms(grouped.block.watermark_ms, 0)])


def firing_once(grouped: Grouped) -> Bools:
    """Return which groups fire once: no record joins a session after a firing of it, or of a part of it.

    A group fires once if its elements form one session without late records also if no lateness is allowed.
    """
    groups, elements, opened = grouped.groups, grouped.elements, grouped.opened
    if not len(groups):
        return np.ones(0, dtype=np.bool_)
    open_from = open_without_lateness(grouped)
    has_fired = np.concatenate([opened.pane_index > 0, np.zeros(len(grouped.block), dtype=np.bool_)])
    may_follow = open_from > elements.start_ms
    fired = np.logical_or.reduceat(has_fired[groups.order], groups.starts)
    fires_once: Bools = ~fired | (groups.sizes() == 1)
    risky = np.flatnonzero(np.logical_or.reduceat(may_follow[groups.order], groups.starts) & ~fired)
    if len(risky):
        numbers, owner = rows_of_groups(groups, risky)
        numbers, owner, runs = _runs(elements, numbers, owner, open_from=open_from)
        counts = np.bincount(runs.key_code, minlength=len(groups))[risky]
        fires_once[risky] = (counts == 1) & ~np.isin(risky, owner[runs.late])
    return fires_once


def firing_again(grouped: Grouped, numbers: Int64s, owner: Int64s) -> FiringAgain:
    """Return the sessions of some groups, and their records that may follow a firing.

    `numbers` are all elements of the groups, and `owner` is the group of each of them.
    """
    opened, elements, count = grouped.opened, grouped.elements, len(grouped.opened)
    has_fired = np.zeros(len(elements), dtype=np.bool_)
    has_fired[:count] = opened.pane_index > 0
    fired = np.flatnonzero(has_fired[numbers])
    live = np.flatnonzero(~has_fired[numbers])
    open_from = open_without_lateness(grouped)
    before = Members(
        opened.take(numbers[fired], grouped.frame.aggregates), owner[fired], np.full(len(fired), -1, dtype=np.int64)
    )
    numbers, owner, runs = _runs(elements, numbers[live], owner[live], open_from=open_from)
    run_of = np.full(len(numbers), -1, dtype=np.int64)
    run_of[runs.order] = np.repeat(np.arange(len(runs), dtype=np.int64), runs.sizes())
    may_follow = open_from[numbers] > elements.start_ms[numbers]
    together, entered = _before_firing(grouped, runs, numbers, may_follow=may_follow)
    following = np.flatnonzero(may_follow)
    chosen = numbers[following]
    is_behind = elements.end_ms[chosen] < open_from[chosen]
    run_of = np.where(is_behind, -1, run_of[following])
    reach_ms = elements.end_ms[chosen].copy()
    reach_ms[~is_behind] = runs.end_ms[run_of[~is_behind]]
    rows = chosen - count
    entered.merge(IdSum.of_array(grouped.block.record_hash[rows]))
    arrivals = Arrivals(
        rows=rows,
        group_of=owner[following],
        run_of=run_of,
        start_ms=elements.start_ms[chosen],
        end_ms=elements.end_ms[chosen],
        reach_ms=reach_ms,
        watermark_ms=grouped.block.watermark_ms[rows],
    )
    return FiringAgain(Members.concat([before, *together], grouped.frame.aggregates), arrivals, entered)


def _runs(elements: Elements, numbers: Int64s, owner: Int64s, *, open_from: Int64s) -> tuple[Int64s, Int64s, Groups]:
    """Return elements in the order of arrival, their groups, and their runs; a run's key is its group."""
    in_order = np.argsort(numbers, kind="stable")
    numbers, owner = numbers[in_order], owner[in_order]
    runs = group(
        Elements(
            key_code=owner,
            start_ms=elements.start_ms[numbers],
            end_ms=elements.end_ms[numbers],
            open_from_ms=open_from[numbers],
        )
    )
    return numbers, owner, runs


def _before_firing(
    grouped: Grouped, runs: Groups, numbers: Int64s, *, may_follow: Bools
) -> tuple[list[Members], IdSum]:
    """Return the sessions of the elements that precede each firing, one per run, and the tally of their records.

    A session has the end of its whole run, and the start of its elements that precede each firing.
    """
    elements, entered = grouped.elements, IdSum()
    kept = runs.order[~may_follow[runs.order]]
    if not len(kept):
        return [], entered
    number_of = np.empty(len(numbers), dtype=np.int64)
    number_of[runs.order] = np.repeat(np.arange(len(runs), dtype=np.int64), runs.sizes())
    run_of = number_of[kept]
    starts = starts_of(run_of)
    present, order = run_of[starts], numbers[kept]
    groups = Groups(
        order=order,
        starts=starts,
        key_code=elements.key_code[order[starts]],
        start_ms=np.minimum.reduceat(elements.start_ms[order], starts),
        end_ms=runs.end_ms[present],
        late=order[:0],
    )
    members = []
    part = Grouped(grouped.frame, grouped.block, grouped.opened, elements, groups)
    for sessions in sessions_of(part):
        entered.merge(sessions.entered)
        members.append(_members(grouped, sessions, runs=runs, run_of=present[sessions.group_of]))
    return members, entered


def _members(grouped: Grouped, sessions: Sessions, *, runs: Groups, run_of: Int64s) -> Members:
    windows = sessions.windows.take(sessions.places, grouped.frame.aggregates)
    return Members(replace(windows, end_ms=runs.end_ms[run_of]), runs.key_code[run_of], run_of)
