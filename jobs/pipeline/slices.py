"""The slices of a pipeline: contiguous half-open intervals of arrival time, named by their start.

Daily slices are days of the pipeline's time zone, so a day may have 23 or 25 hours. Shorter slices are cut in UTC. A
slice's id is its start as ISO text, as short as the period allows. So the ids of one pipeline sort like its slices.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from jobs.durations import UNIT_MS, format_duration
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import shortened
from jobs.runs import Slice
from windowlib.errors import RangeError, RequestError

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive, so that arithmetic on it ignores time zones
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
_UTC = ZoneInfo("UTC")
_MS = timedelta(milliseconds=1)
_DAY_MS = UNIT_MS["d"]
_FIRST_DAY, _LAST_DAY = (day.toordinal() - _EPOCH.toordinal() for day in (date.min, date.max))

_KNOWN_MIDNIGHTS = 20_000
"""So many instants of midnight are kept: 4 µs each to compute, and planning needs those of a range several times."""
_KNOWN_OFFSETS = 1_000
"""So many offsets of zones from UTC are kept."""

MAX_SLICES = 200_000
LATE_DAYS: Final = 90
"""A cron schedule starts runs for so many days after the end of the log."""
HALF_OPEN = "ranges are half-open: [from, to) includes `from` and excludes `to`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceGrid:
    """All slices that a pipeline can have. `first_ms` and `last_ms` are the starts of the first and the last slice."""

    every_ms: int
    zone: ZoneInfo
    first_ms: int | None
    last_ms: int | None

    @property
    def is_daily(self) -> bool:
        """Whether each slice is a day of the time zone."""
        return self.every_ms == UNIT_MS["d"]


def slice_grid(pipeline: Pipeline) -> SliceGrid:
    """Return the grid that a pipeline's `log.slice` describes."""
    grammar = pipeline.log.slice
    grid = SliceGrid(every_ms=grammar.every_ms, zone=grammar.zone, first_ms=None, last_ms=None)
    if grammar.first is None and grammar.last is None:
        return grid
    return SliceGrid(
        every_ms=grid.every_ms,
        zone=grid.zone,
        first_ms=None if grammar.first is None else slice_at(grid, _instant_ms(grid, grammar.first)).start_ms,
        last_ms=None if grammar.last is None else slice_at(grid, _instant_ms(grid, grammar.last)).start_ms,
    )


def slice_at(grid: SliceGrid, at_ms: int) -> Slice:
    """Return the slice that contains an instant, also outside of first..last.

    Raises RangeError: the instant is outside the years 1 to 9999.
    """
    if not grid.is_daily:
        return _short_slice(grid, at_ms - at_ms % grid.every_ms)
    day = (at_ms + _offset_ms(grid.zone, at_ms)) // _DAY_MS
    # A zone may repeat hours around midnight or skip a date, so the neighbouring dates are candidates, too.
    for candidate in (day, day - 1, day + 1):
        own_day = _day(grid.zone, candidate) if _FIRST_DAY <= candidate <= _LAST_DAY else None
        if own_day is not None and own_day.start_ms <= at_ms < own_day.end_ms:
            return own_day
    raise _beyond(at_ms)


def local_midnight_ms(grid: SliceGrid, at_ms: int) -> int:
    """Return the start of the day of an instant, in the time zone of the slices."""
    return slice_at(replace(grid, every_ms=_DAY_MS), at_ms).start_ms


def next_slice(grid: SliceGrid, slice_: Slice) -> Slice | None:
    """Return the slice after this one; None after the last slice."""
    is_last = slice_.end_ms >= last_edge_ms(grid) or (grid.last_ms is not None and slice_.start_ms >= grid.last_ms)
    return None if is_last else slice_at(grid, slice_.end_ms)


def next_from_first(grid: SliceGrid, slice_: Slice) -> Slice | None:
    """Return the slice after this one; the first one of the pipeline file if this one is earlier."""
    after = next_slice(grid, slice_)
    if after is None or grid.first_ms is None or after.start_ms >= grid.first_ms:
        return after
    return slice_at(grid, grid.first_ms)


def previous_slice(grid: SliceGrid, slice_: Slice) -> Slice | None:
    """Return the slice before this one; None before the first slice."""
    edges_ms = (first_edge_ms(grid), grid.first_ms)
    is_first = any(edge_ms is not None and slice_.start_ms <= edge_ms for edge_ms in edges_ms)
    return None if is_first else slice_at(grid, slice_.start_ms - 1)


def first_edge_ms(grid: SliceGrid) -> int:
    """Return the start of the first slice of the year 1. There are no slices before it."""
    return _midnight_ms(grid.zone, _FIRST_DAY) if grid.is_daily else _FIRST_DAY * _DAY_MS


def last_edge_ms(grid: SliceGrid) -> int:
    """Return the end of the last slice of the year 9999. There are no slices after it."""
    return _midnight_ms(grid.zone, _LAST_DAY + 1) if grid.is_daily else (_LAST_DAY + 1) * _DAY_MS


def slices_between(pipeline: Pipeline, from_ms: int, to_ms: int) -> tuple[Slice, ...]:
    """Return the slices of `[from_ms, to_ms)` in order, clipped to first..last. Both bounds must be edges of slices.

    Raises RangeError: the range is empty or reversed, or a bound is inside a slice; the message has the slice's edges.
    """
    _check_bounds(pipeline, from_ms, to_ms)
    return _walk(slice_grid(pipeline), from_ms, to_ms)


def _check_count(pipeline: Pipeline, from_ms: int, to_ms: int, *, most: int) -> None:
    every_ms = pipeline.log.slice.every_ms
    count = (to_ms - from_ms) // every_ms
    if count > most:
        grid = slice_grid(pipeline)
        raise RangeError(
            f"the range [{show_ms(grid, from_ms)}, {show_ms(grid, to_ms)}) has {count:,} slices of "
            f"{format_duration(every_ms)}; one request may have at most {most:,}; choose a shorter range"
        )


def slices_ending_in(pipeline: Pipeline, after_ms: int, until_ms: int) -> tuple[Slice, ...]:
    """Return the slices that end in `(after_ms, until_ms]`, clipped to first..last: those of one Airflow interval."""
    grid = slice_grid(pipeline)
    if until_ms <= after_ms:
        return ()
    start = slice_at(grid, after_ms).start_ms
    return tuple(slice_ for slice_ in _walk(grid, start, until_ms) if after_ms < slice_.end_ms <= until_ms)


def check_range(
    pipeline: Pipeline, from_ms: int, to_ms: int, *, now_ms: int, most: int = MAX_SLICES
) -> tuple[Slice, ...]:
    """Return the slices of a range that a person requested, after more checks than `slices_between` makes.

    The range is half-open, and one request has at most `most` slices.

    Raises:
        RangeError: as for `slices_between`; or the range has more than `most` slices.
        RequestError: slices of the range are outside of first..last, or are not over at `now_ms`.
    """
    _check_bounds(pipeline, from_ms, to_ms)
    grid = slice_grid(pipeline)
    text = f"the range [{show_ms(grid, from_ms)}, {show_ms(grid, to_ms)})"
    first_ms, last_ms = grid.first_ms, grid.last_ms
    if (first_ms is not None and from_ms < first_ms) or (
        last_ms is not None and to_ms > slice_at(grid, last_ms).end_ms
    ):
        first = "the beginning" if first_ms is None else show_ms(grid, first_ms)
        last = "the end of time" if last_ms is None else show_ms(grid, slice_at(grid, last_ms).end_ms)
        raise RequestError(
            f"{text} is not inside [{first}, {last}), the slices of pipeline {pipeline.name} (`log.slice` has first: "
            f"{pipeline.log.slice.first}, last: {pipeline.log.slice.last}; the last slice is included); {HALF_OPEN}"
        )
    if to_ms > now_ms:
        over_ms, last_id = slice_at(grid, now_ms).start_ms, slice_at(grid, to_ms - 1).slice_id
        way_on = f"choose a range that ends at {show_ms(grid, over_ms)} or before ({HALF_OPEN})"
        if first_ms is not None and first_ms >= over_ms:
            way_on = "no slice from `log.slice.first` on is over"
        raise RequestError(
            f"{text} is not over yet: the time is {show_instant(now_ms)}, and slice {last_id} ends at "
            f"{show_instant(to_ms)}; {way_on}"
        )
    _check_count(pipeline, from_ms, to_ms, most=most)
    return _walk(grid, from_ms, to_ms)


def parse_bound(pipeline: Pipeline, text: str) -> int:
    """Return the epoch ms of an ISO date or time. Without an offset, it is in the pipeline's time zone.

    Raises RangeError: the text is not a date or time.
    """
    return _instant_ms(slice_grid(pipeline), text)


def read_in_zone(pipeline: Pipeline, text: str) -> str:
    """Return how `parse_bound` reads a time without an offset in another zone than UTC; empty for any other time."""
    grid = slice_grid(pipeline)
    at_ms = _instant_ms(grid, text)
    if at_ms == _instant_ms(replace(grid, zone=ZoneInfo("UTC")), text):
        return ""
    return f"{text} in {grid.zone} is {show_instant(at_ms)}. For a time in UTC, as `show` prints it, add Z"


def slice_of_id(pipeline: Pipeline, slice_id: str, *, known: Mapping[str, Slice] | None = None) -> Slice:
    """Return the slice with an id such as `2013-02-08`. Any other text of the same start is accepted, too.

    `known` are the slices of the ledger by their ids, which come first: an earlier `log.slice` may have cut them.
    Raises RangeError: no slice of the pipeline starts at that time.
    """
    if known is not None and slice_id in known:
        return known[slice_id]
    grid = slice_grid(pipeline)
    slice_ = slice_at(grid, _instant_ms(grid, slice_id))
    if slice_.start_ms != _instant_ms(grid, slice_id):
        raise RangeError(
            f"no slice of pipeline {pipeline.name} starts at {slice_id}; the slice that contains it is "
            f"{slice_.slice_id}"
        )
    return slice_


def show_ms(grid: SliceGrid, at_ms: int) -> str:
    """Return an instant as the id of the slice that starts there, else as a time in the pipeline's zone."""
    if at_ms == last_edge_ms(grid):
        return "the end of the year 9999"
    inside = slice_at(grid, at_ms)
    if inside.start_ms == at_ms:
        return inside.slice_id
    offset_ms = _offset_ms(grid.zone, at_ms)
    local = (_EPOCH + timedelta(milliseconds=at_ms + offset_ms)).replace(
        tzinfo=timezone(timedelta(milliseconds=offset_ms))
    )
    return local.isoformat(timespec="seconds")


def show_instant(at_ms: int) -> str:
    """Return an instant in UTC for people: `2013-02-08 05:15:00 UTC`, with milliseconds only if they are not 0."""
    if not _FIRST_DAY * _DAY_MS <= at_ms < (_LAST_DAY + 1) * _DAY_MS:
        return f"{at_ms:,} ms since 1970, outside the years 1 to 9999"
    at = _EPOCH + timedelta(milliseconds=at_ms)
    text = at.isoformat(sep=" ", timespec="seconds")  # strftime writes years before 1000 without leading zeros
    return f"{text}.{at_ms % 1000:03d} UTC" if at_ms % 1000 else f"{text} UTC"


def local_ms(at: datetime, zone: ZoneInfo) -> int:
    """Return the epoch ms of a time of the years 1 to 9999. A time without an offset is in `zone`."""
    if zone is _UTC and at.tzinfo is None:
        since = at - _EPOCH  # `replace` would take most of the time
    else:
        since = (at if at.tzinfo else at.replace(tzinfo=zone)) - _EPOCH_UTC
    if since.microseconds:
        return round(since / _MS)
    return (since.days * 86_400 + since.seconds) * 1_000  # a division takes as long as the rest


def _check_bounds(pipeline: Pipeline, from_ms: int, to_ms: int) -> None:
    grid = slice_grid(pipeline)
    if from_ms >= to_ms:
        problem = "empty" if from_ms == to_ms else "reversed"
        raise RangeError(
            f"the range [{show_ms(grid, from_ms)}, {show_ms(grid, to_ms)}) is {problem}; {HALF_OPEN}, so `to` must be "
            "later than `from`"
        )
    for bound_ms, name in ((from_ms, "from"), (to_ms, "to")):
        if bound_ms == last_edge_ms(grid):
            continue
        inside = slice_at(grid, bound_ms)
        if inside.start_ms != bound_ms:
            raise RangeError(
                f"`{name}` {show_ms(grid, bound_ms)} is inside the slice [{show_ms(grid, inside.start_ms)}, "
                f"{show_ms(grid, inside.end_ms)}) of pipeline {pipeline.name}; choose one of its edges ({HALF_OPEN})"
            )


def _walk(grid: SliceGrid, from_ms: int, to_ms: int) -> tuple[Slice, ...]:
    start_ms = from_ms if grid.first_ms is None else max(from_ms, grid.first_ms)
    if start_ms >= to_ms or (grid.last_ms is not None and start_ms > grid.last_ms):
        return ()
    slices = [slice_at(grid, start_ms)]
    while slices[-1].end_ms < to_ms and (grid.last_ms is None or slices[-1].end_ms <= grid.last_ms):
        slices.append(_after(grid, slices[-1]))
    return tuple(slices)


def _after(grid: SliceGrid, slice_: Slice) -> Slice:
    """Return what `slice_at` returns for the end of a slice. The day after a day is found without its neighbours."""
    if grid.is_daily:
        day = date.fromisoformat(slice_.slice_id).toordinal() - _EPOCH.toordinal() + 1
        following = _day(grid.zone, day) if day <= _LAST_DAY else None
        if following is not None and following.start_ms == slice_.end_ms < following.end_ms:
            return following
    return slice_at(grid, slice_.end_ms)


def _instant_ms(grid: SliceGrid, text: str) -> int:
    try:
        return local_ms(datetime.fromisoformat(text.strip()), grid.zone)
    except ValueError as error:
        raise RangeError(
            f"{shortened(text)!r} is not a date or time; write 2013-02-08 or 2013-02-08T05:15 (time zone {grid.zone}; "
            f"{HALF_OPEN})"
        ) from error


def _short_slice(grid: SliceGrid, start_ms: int) -> Slice:
    if not first_edge_ms(grid) <= start_ms < last_edge_ms(grid):
        raise _beyond(start_ms)
    at = _EPOCH + timedelta(milliseconds=start_ms)
    text = at.isoformat(timespec="hours" if grid.every_ms % UNIT_MS["h"] == 0 else "minutes")
    return Slice(slice_id=text, start_ms=start_ms, end_ms=start_ms + grid.every_ms)


@lru_cache(maxsize=_KNOWN_OFFSETS)
def _offset_ms(zone: ZoneInfo, at_ms: int) -> int:
    """The zone's offset from UTC at an instant. Near the years 1 and 9999, that of a day further inside the range."""
    inside_ms = min(max(at_ms, (_FIRST_DAY + 1) * _DAY_MS), (_LAST_DAY - 1) * _DAY_MS)
    at = (_EPOCH + timedelta(milliseconds=inside_ms)).replace(tzinfo=UTC).astimezone(zone)
    return (at.utcoffset() or timedelta()) // _MS


@lru_cache(maxsize=_KNOWN_MIDNIGHTS)
def _midnight_ms(zone: ZoneInfo, day: int) -> int:
    """The first instant of a date, which is given in days since 1970.

    If clocks jump over midnight, it is the instant of the jump (fold 0 uses the earlier offset).
    """
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return day * _DAY_MS - _offset_ms(zone, day * _DAY_MS)
    return local_ms(_EPOCH + timedelta(days=day), zone)


@lru_cache(maxsize=_KNOWN_MIDNIGHTS)
def _day(zone: ZoneInfo, day: int) -> Slice:
    """The slice of a date. A date that a zone skipped (Samoa, 2011-12-30) has length 0 and contains no instant."""
    start_ms, end_ms = _midnight_ms(zone, day), _midnight_ms(zone, day + 1)
    return Slice(slice_id=(_EPOCH.date() + timedelta(days=day)).isoformat(), start_ms=start_ms, end_ms=end_ms)


def _beyond(at_ms: int) -> RangeError:
    return RangeError(f"no slice contains the instant {at_ms} ms since 1970; slices are in the years 1 to 9999")


def schedule_end_ms(pipeline: Pipeline) -> int | None:
    """Return when a cron schedule stops to start runs: LATE_DAYS after the end of the log. None if the log has no end.

    The last slices may be late, held, or due while Airflow is down, so runs are needed after the end of the log.
    """
    grid = slice_grid(pipeline)
    if grid.last_ms is None:
        return None
    end_ms = slice_at(grid, grid.last_ms).end_ms + LATE_DAYS * _DAY_MS
    return end_ms if end_ms < last_edge_ms(grid) else None


def past_end(pipeline: Pipeline, now_ms: int) -> str | None:
    """Return the sentence that the log has ended and the schedule replays nothing later; None if it has not ended."""
    grid = slice_grid(pipeline)
    if pipeline.schedule is None or grid.last_ms is None:
        return None
    last, until_ms = slice_at(grid, grid.last_ms), schedule_end_ms(pipeline)
    if last.end_ms > now_ms:
        return None
    told = f"Its log ends with {last.slice_id} (log.slice.last), so the schedule replays no later slice"
    if until_ms is None or pipeline.schedule.cron is None:
        return told
    if now_ms <= until_ms:
        return f"{told}. It starts runs until {show_ms(grid, until_ms)}, for slices that are late or held"
    backfills = f"use backfills, of Airflow or by backfill_{pipeline.name}"
    return f"{told}. It starts no run after {show_ms(grid, until_ms)}: {backfills}"
