"""The sessions of a block as open windows: bounds, edges and contents from groups of records and open sessions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.block import RecordBlock
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import sorted_words, starts_of
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.sessions.groups import Elements, Groups, state_window_sources
from windowlib.kernels.windows import Frame
from windowlib.records.row_ids import IdSum


@dataclass(frozen=True, slots=True)
class Grouped:
    """The elements of a block and their groups. The elements are the open sessions, then the records."""

    frame: Frame
    block: RecordBlock
    opened: OpenWindows
    elements: Elements
    groups: Groups


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions as open windows.

    Only the windows at `places` count. `group_of` has the group of each of them. `entered` is the tally of the records
    that entered these sessions in the block. The state windows are not set yet.
    """

    windows: OpenWindows
    places: Int64s
    group_of: Int64s
    entered: IdSum


@dataclass(frozen=True, slots=True)
class _RecordGroups:
    """The groups that have records: `rows` of the block in the order of the groups. `number` is None for all groups."""

    rows: Int64s
    starts: Int64s
    number: Int64s


def sessions_of(grouped: Grouped) -> Iterator[Sessions]:
    """Yield the sessions of records alone, then those with an open session of the state.

    If an open session is with others in a group, no pane has shown any of the group.
    """
    count = len(grouped.opened)
    groups = grouped.groups
    opened_at = np.flatnonzero(groups.order < count) if count else np.zeros(0, dtype=np.int64)
    open_group = np.searchsorted(groups.starts, opened_at, side="right") - 1
    with_records = _record_groups(groups, opened_at, open_group, count=count)
    windows = _windows(grouped, with_records)
    entered = windows.edges.sum()
    number = with_records.number
    if not len(opened_at):
        yield Sessions(windows, np.arange(len(number), dtype=np.int64), number, entered)
        return
    is_mixed = np.isin(number, open_group)
    places = np.flatnonzero(~is_mixed)
    yield Sessions(windows, places, number[places], entered)
    mixed = np.flatnonzero(is_mixed)
    aggregates = grouped.frame.aggregates
    chosen = grouped.opened.take(groups.order[opened_at], aggregates)
    parts = OpenWindows.concat([chosen, windows.take(mixed, aggregates)], aggregates)
    yield _merged(grouped.frame, parts, np.concatenate([open_group, number[mixed]]))


def _record_groups(groups: Groups, opened_at: Int64s, open_group: Int64s, *, count: int) -> _RecordGroups:
    """Return the records of the groups, without the elements at `opened_at`, which are open sessions."""
    if not len(opened_at):
        rows = groups.order - count if count else groups.order
        return _RecordGroups(rows, groups.starts, np.arange(len(groups), dtype=np.int64))
    opened = np.bincount(open_group, minlength=len(groups))
    number = np.flatnonzero(groups.sizes() > opened)
    starts = groups.starts - (np.cumsum(opened) - opened)
    return _RecordGroups(np.delete(groups.order, opened_at) - count, starts[number], number)


def _windows(grouped: Grouped, with_records: _RecordGroups) -> OpenWindows:
    """Return the groups with records as new windows that have only these records."""
    groups, block, frame = grouped.groups, grouped.block, grouped.frame
    rows, starts, number = with_records.rows, with_records.starts, with_records.number
    if not len(number):
        return OpenWindows.none(frame.aggregates)
    if frame.needs_positions:
        rows = _in_log_order(rows, starts)
    edges = EdgeColumns.of_groups(block.record_hash.take(rows), starts)
    bounds = groups.start_ms[number], groups.end_ms[number]
    states = frame.reduced(block, rows, starts)
    return OpenWindows.fresh(groups.key_code[number], bounds, edges=edges, states=states)


def _in_log_order(rows: Int64s, starts: Int64s) -> Int64s:
    """Return the rows sorted inside each group."""
    bits = int(rows.max()).bit_length()
    sizes = np.diff(starts, append=len(rows))
    words = (np.repeat(np.arange(len(starts), dtype=np.int64), sizes) << bits) | rows
    return sorted_words(words) & ((1 << bits) - 1)


def _merged(frame: Frame, parts: OpenWindows, group_of: Int64s) -> Sessions:
    """Return one window per group of parts. The first part of a group is an open session."""
    order = np.argsort(group_of, kind="stable")
    parts, group_of = parts.take(order, frame.aggregates), group_of[order]
    starts = starts_of(group_of)
    first = parts.take(starts, frame.aggregates)
    windows = replace(
        first,
        start_ms=np.minimum.reduceat(parts.start_ms, starts),
        end_ms=np.maximum.reduceat(parts.end_ms, starts),
        edges=parts.edges.grouped(starts),
        states=frame.regrouped(parts.states, starts),
    )
    return Sessions(windows, np.arange(len(starts), dtype=np.int64), group_of[starts], IdSum())


def with_state_windows(grouped: Grouped, opened: OpenWindows, group_of: Int64s) -> OpenWindows:
    """Return open sessions with their state windows. `group_of` has the group of each."""
    if not len(opened):
        return opened
    sources = state_window_sources(grouped.groups, grouped.elements, group_of)
    start_ms, end_ms = grouped.elements.start_ms[sources], grouped.elements.end_ms[sources]
    is_open = sources < len(grouped.opened)
    before = sources[is_open]
    start_ms[is_open] = grouped.opened.state_start_ms[before]
    end_ms[is_open] = grouped.opened.state_end_ms[before]
    return replace(opened, state_start_ms=start_ms, state_end_ms=end_ms)


def marked(frame: Frame, opened: OpenWindows, has_fired: Bools) -> OpenWindows:
    """Return sessions with the marks of a pane at or after the end where it was emitted. Discarding empties them."""
    if not has_fired.any():
        return opened
    shown = has_fired.astype(np.int64)
    after = replace(
        opened,
        pane_index=opened.pane_index + shown,
        nonspeculative_count=opened.nonspeculative_count + shown,
        is_complete=opened.is_complete | has_fired,
    )
    edges, count = opened.edges, len(opened)
    if not frame.discards:
        return replace(after, fired=edges.where(has_fired).plus(opened.fired.where(~has_fired)))
    places = np.arange(count, dtype=np.int64) + shown * count
    states = frame.taken(frame.joined([opened.states, frame.empty(count)]), places)
    return replace(after, edges=edges.where(~has_fired), states=states)
