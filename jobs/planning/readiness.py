"""Readiness of slices for the schedule: which slices that are over count as complete, by a pipeline's `log.ready`.

Without a condition in the file, a slice is complete when a later slice has a record, or when it has a record and the
log has a commit of new data that was made at or after the slice's end. Whatever the file says, the clock alone never
completes a slice without a record after which the log has no record either.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from zoneinfo import ZoneInfo

from jobs.durations import UNIT_MS, human_duration
from jobs.lake.log_cut import named_unit
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.ready import ConditionGrammar, MinRecordsGrammar, ReadyGrammar
from jobs.pipeline.slices import SliceGrid, local_ms, show_instant, slice_at, slice_grid
from jobs.plain_text import counted
from jobs.planning.log_state import LogState
from jobs.planning.request_context import RequestContext
from jobs.runs import Slice
from jobs.storage import file_system
from windowlib.errors import RangeError
from windowlib.libraries import pafs

_WEEK_MS = 7 * UNIT_MS["d"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetEvent:
    """An event of an Airflow asset: `key` is its partition key, if it has one."""

    uri: str
    at_ms: int
    key: str | None = None


EventsSince = Callable[[int], Sequence[AssetEvent]]
"""Epoch ms -> the events of the producers from this time on, perhaps with earlier ones, in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSlices:
    """What events of assets tell.

    `keys` are pairs of a URI and a partition key. `ranges` are a URI and the instants between which all slices of a key
    of the form `first..last` are, as our own publications have it. `newest_ms` maps a URI to the time of its newest
    event without a key.
    """

    keys: frozenset[tuple[str, str]]
    ranges: tuple[tuple[str, int, int], ...]
    newest_ms: Mapping[str, int]

    @classmethod
    def of(cls, events: Sequence[AssetEvent], grid: SliceGrid) -> "NamedSlices":
        """Return what some events tell to a pipeline whose log is cut by `grid`."""
        keyed = [(event.uri, *event.key.partition("..")) for event in events if event.key is not None]
        spans = [(uri, _named(first, grid), _named(last, grid)) for uri, first, dots, last in keyed if dots]
        by_time = sorted((event.at_ms, event.uri) for event in events if event.key is None)
        return cls(
            keys=frozenset((uri, key) for uri, key, dots, _ in keyed if not dots),
            ranges=tuple((uri, begin[0], end[1]) for uri, begin, end in spans if begin and end),
            newest_ms={uri: at_ms for at_ms, uri in by_time},
        )

    def has(self, uri: str, slice_: Slice) -> bool:
        """Return whether an event of an asset names a slice."""
        within = (
            begin <= slice_.start_ms and slice_.end_ms <= end for asset, begin, end in self.ranges if asset == uri
        )
        return (uri, slice_.slice_id) in self.keys or any(within)


def _named(text: str, grid: SliceGrid) -> tuple[int, int] | None:
    """Return the edges of a slice by its id: that of `grid`, else a day, hour or minute; None if the text is no id."""
    try:
        at, unit = datetime.fromisoformat(text), named_unit(text)
        zone = grid.zone if unit == "d" else ZoneInfo("UTC")
        first_ms, end_ms = local_ms(at, zone), local_ms(at + timedelta(milliseconds=UNIT_MS[unit]), zone)
        own = slice_at(grid, first_ms)
    except (ValueError, OverflowError, RangeError):
        return None
    return first_ms, own.end_ms if own.slice_id == text else end_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The first slice that is over and not ready.

    `missing` is the condition that it waits for, as a sentence. It waits since its end, and is overdue at `until_ms`;
    None: never. `then` is what the pipeline file says for an overdue slice: `wait` or `hold` (`publish_empty` makes it
    ready). `next_ms` is the next instant at which the clock can change the answer; None: it cannot. `markers` are the
    places of the marker files, and `producers` the URIs of the assets, that it waits for.
    """

    slice: Slice
    missing: str
    since_ms: int
    until_ms: int | None = None
    then: str = "wait"
    records: int = 0
    next_ms: int | None = None
    markers: tuple[str, ...] = ()
    producers: tuple[str, ...] = ()

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the slice has waited until its timeout."""
        return self.until_ms is not None and now_ms >= self.until_ms

    def is_held(self, now_ms: int) -> bool:
        """Return whether the slice is to be replayed for a person to decide (`then: hold`)."""
        return self.then == "hold" and self.is_overdue(now_ms)

    def line(self, now_ms: int) -> str:
        """Return on one line what is waited for, since when, and until when."""
        if self.until_ms is None:
            until = "no timeout"
        else:
            at = f"{show_instant(self.until_ms)} (ready.timeout, then: {self.then})"
            until = f"overdue since {at}" if self.is_overdue(now_ms) else f"until {at}"
        return f"waits for {self.slice.slice_id} since {show_instant(self.since_ms)}: {self.missing}; {until}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPrefix:
    """The slices before the first that is not ready, and this one; None if all are ready.

    `given_up` maps the slices that are only ready because their timeout is over (`then: publish_empty`) to a sentence.
    """

    slices: tuple[Slice, ...]
    waiting: Waiting | None = None
    given_up: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """Whether a condition holds.

    `missing` is the end of the sentence "slice X is complete …"; None if the condition holds. `names_slice`: a marker
    or a producer that holds has named this slice, so that it may be without a record.
    """

    missing: str | None = None
    names_slice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the readiness of slices depends on.

    `records_of` returns the number of records of another slice, and `weekday` the slice of the same weekday so many
    weeks before; None if it is not known. `marker` returns the place of the marker of a slice, and whether it exists.
    `events` is what the events of the assets tell that the conditions name.
    """

    now_ms: int
    log: LogState
    records_of: Callable[[Slice], int | None]
    marker: Callable[[str, Slice], tuple[str, bool]]
    weekday: Callable[[Slice, int], Slice | None]
    events: NamedSlices

    def records(self, slice_: Slice) -> int:
        """Return the number of records of a slice, as far as the log has statistics."""
        return self.log.coordinates[slice_.slice_id].records

    def has_later(self, slice_: Slice) -> bool:
        """Return whether a later slice has a record, of those that have begun."""
        return self.log.last_data is not None and self.log.last_data.start_ms > slice_.start_ms


def ready_prefix(
    work: RequestContext, view: LedgerView, slices: Sequence[Slice], *, log: LogState, events: Sequence[AssetEvent] = ()
) -> ReadyPrefix:
    """Return the slices up to the first that is not ready.

    The slices are over, contiguous, the oldest first. `log` is its state for them. `events` are those of the assets
    that `ready.producer` names; none where nothing can ask Airflow.
    """
    evidence = _evidence(work, view, log=log, events=events)
    return first_not_ready(work.pipeline.log.ready, slices, evidence)


def first_not_ready(ready: ReadyGrammar | None, slices: Sequence[Slice], evidence: Evidence) -> ReadyPrefix:
    """Return the slices up to the first that does not meet the conditions of a pipeline."""
    given_up: dict[str, str] = {}
    for index, slice_ in enumerate(slices):
        missing = missing_of(ready, slice_, evidence)
        if missing is None:
            continue
        waiting = _waiting(ready, slice_, evidence, missing=missing)
        if ready is not None and ready.then == "publish_empty" and waiting.is_overdue(evidence.now_ms):
            given_up[slice_.slice_id] = _given_up(ready, waiting)
            continue
        return ReadyPrefix(slices=tuple(slices[:index]), waiting=waiting, given_up=given_up)
    return ReadyPrefix(slices=tuple(slices), given_up=given_up)


def missing_of(ready: ReadyGrammar | None, slice_: Slice, evidence: Evidence) -> str | None:
    """Return what a slice lacks to be complete, as a sentence; None if it is complete."""
    if evidence.log.missing is not None:
        why = evidence.log.missing.get(slice_.slice_id)
        return None if why is None else f"slice {slice_.slice_id} is not complete: {why}"
    answer = (
        _default(slice_, evidence) if ready is None or not ready.has_condition else _answer(ready, slice_, evidence)
    )
    missing = answer.missing
    if missing is not None and ready is not None and ready.any_of is not None:
        missing = missing.removeprefix("(").removesuffix(")")
    if missing is None and not (evidence.log.has_records(slice_) or evidence.has_later(slice_) or answer.names_slice):
        missing = f"when it or a later slice has a record ({_no_record_since(evidence)})"
    return None if missing is None else f"slice {slice_.slice_id} is complete {missing}"


def describe_unarrived(waiting: Waiting) -> str:
    """Return what is known of an overdue slice: `0 records 12 h after its end`."""
    after = "" if waiting.until_ms is None else f" {human_duration(waiting.until_ms - waiting.since_ms)} after its end"
    return f"{counted(waiting.records, 'record')}{after}"


def _given_up(ready: ReadyGrammar, waiting: Waiting) -> str:
    how = "incomplete" if waiting.records else "empty"
    return f"published {how}, with {describe_unarrived(waiting)} (ready.timeout, then: {ready.then})"


def _waiting(ready: ReadyGrammar | None, slice_: Slice, evidence: Evidence, *, missing: str) -> Waiting:
    leaves = tuple(ready.leaves()) if ready is not None and ready.has_condition else ()
    until_ms = None if ready is None or ready.timeout_ms is None else slice_.end_ms + ready.timeout_ms
    clock = [slice_.end_ms + leaf.after_ms for leaf in leaves if leaf.after_ms is not None]
    timeout = () if until_ms is None else (until_ms,)
    # When a slice with records begins, it is a later slice with a record.
    future = [at_ms for at_ms in (*clock, *timeout, *evidence.log.data_ms) if at_ms > evidence.now_ms]
    places = (evidence.marker(leaf.marker, slice_) for leaf in leaves if leaf.marker is not None)
    return Waiting(
        slice=slice_,
        missing=missing,
        since_ms=slice_.end_ms,
        until_ms=until_ms,
        then="wait" if ready is None else ready.then,
        records=evidence.records(slice_),
        next_ms=min(future, default=None),
        markers=tuple(place for place, exists in places if not exists),
        producers=() if ready is None else ready.producers,
    )


def _answer(condition: ConditionGrammar, slice_: Slice, evidence: Evidence) -> _Answer:
    if condition.all_of is not None:
        return _all([_answer(part, slice_, evidence) for part in condition.all_of])
    if condition.any_of is not None:
        return _any([_answer(part, slice_, evidence) for part in condition.any_of])
    return _leaf(condition, slice_, evidence)


def _all(answers: Sequence[_Answer]) -> _Answer:
    missing = [answer.missing for answer in answers if answer.missing is not None]
    return _Answer(missing=" and ".join(missing) or None, names_slice=any(answer.names_slice for answer in answers))


def _any(answers: Sequence[_Answer]) -> _Answer:
    holding = [answer for answer in answers if answer.missing is None]
    if holding:
        return _Answer(names_slice=any(answer.names_slice for answer in holding))
    return _Answer(missing=f"({' or '.join(str(answer.missing) for answer in answers)})")


def _leaf(condition: ConditionGrammar, slice_: Slice, evidence: Evidence) -> _Answer:
    if condition.after_ms is not None:
        return _after(condition.after_ms, slice_, evidence)
    if condition.min_records is not None:
        return _min_records(condition.min_records, slice_, evidence)
    if condition.marker is not None:
        place, exists = evidence.marker(condition.marker, slice_)
        return _Answer(names_slice=True) if exists else _Answer(missing=f"when {place} exists (ready.marker)")
    if condition.producer is not None:
        return _producer(condition.producer, slice_, evidence)
    if evidence.has_later(slice_):
        return _Answer()
    return _Answer(missing=f"when the log holds records of a later slice ({_no_record_since(evidence)}; newer_commit)")


def _default(slice_: Slice, evidence: Evidence) -> _Answer:
    newest_ms = evidence.log.newest_data_ms
    if evidence.has_later(slice_):
        return _Answer()
    if not evidence.log.has_records(slice_):
        return _Answer(missing=f"when it or a later slice has a record ({_no_record_since(evidence)})")
    if newest_ms is not None and newest_ms >= slice_.end_ms:
        return _Answer()
    newest = "" if newest_ms is None else f" (the newest commit of records is of {show_instant(newest_ms)})"
    return _Answer(missing=f"when a later slice has a record, or the log gets records after its end{newest}")


def _after(after_ms: int, slice_: Slice, evidence: Evidence) -> _Answer:
    at_ms = slice_.end_ms + after_ms
    if evidence.now_ms >= at_ms:
        return _Answer()
    return _Answer(missing=f"{human_duration(after_ms)} after its end, at {show_instant(at_ms)} (ready.after)")


def _min_records(limit: MinRecordsGrammar, slice_: Slice, evidence: Evidence) -> _Answer:
    records = evidence.records(slice_)
    if limit.number is not None:
        least, why = limit.number, "ready.min_records"
    else:
        least, why = _usual_share(limit, slice_, evidence)
    # Files without statistics count 0 records.
    if records >= least or (least == 1 and evidence.log.has_records(slice_)):
        return _Answer()
    return _Answer(missing=f"with {counted(least, 'record')} ({why}), and has {records:,}")


def _usual_share(limit: MinRecordsGrammar, slice_: Slice, evidence: Evidence) -> tuple[int, str]:
    """Return the least number of records by the same weekday's slices before, and how it was found.

    Slices without a record are left out, as a holiday is not usual. Without such a slice, one record is enough.
    """
    assert limit.share is not None
    before = (evidence.weekday(slice_, weeks) for weeks in range(1, limit.weeks + 1))
    counts = [records for earlier in before if earlier is not None and (records := evidence.records_of(earlier))]
    if not counts:
        return 1, "ready.min_records; no slice of the same weekday before has records"
    usual = median(counts)
    least = max(1, math.ceil(limit.share * usual))
    return (
        least,
        f"ready.min_records: {100 * limit.share:g} % of {usual:,g}, the median of {counted(len(counts), 'week')}",
    )


def _producer(uri: str, slice_: Slice, evidence: Evidence) -> _Answer:
    if evidence.events.has(uri, slice_):
        return _Answer(names_slice=True)
    if uri in evidence.events.newest_ms and evidence.events.newest_ms[uri] >= slice_.end_ms:
        return _Answer()
    return _Answer(missing=f"when asset {uri} has an event of the slice, or one after its end (ready.producer)")


def _no_record_since(evidence: Evidence) -> str:
    last = evidence.log.last_data
    return "no slice has a record" if last is None else f"no record since {last.slice_id}"


def _evidence(work: RequestContext, view: LedgerView, *, log: LogState, events: Sequence[AssetEvent]) -> Evidence:
    grid = slice_grid(work.pipeline)

    def records_of(slice_: Slice) -> int | None:
        if slice_.slice_id in log.coordinates:
            return log.coordinates[slice_.slice_id].records
        run = view.runs.get(view.published.get(slice_.slice_id, ""))
        return None if run is None else run.result.counts.read

    def weekday(slice_: Slice, weeks: int) -> Slice | None:
        # The middle of the slice stays in the slice of the same weekday when clocks change in between.
        at_ms = (slice_.start_ms + slice_.end_ms) // 2 - weeks * _WEEK_MS
        return slice_at(grid, at_ms) if grid.first_ms is None or at_ms >= grid.first_ms else None

    def marker(text: str, slice_: Slice) -> tuple[str, bool]:
        name = text.replace("{slice_id}", slice_.slice_id)
        return name, marker_exists(work.lake.below(name))

    return Evidence(
        now_ms=work.ledger.now_ms(),
        log=log,
        records_of=records_of,
        marker=marker,
        weekday=weekday,
        events=NamedSlices.of(events, grid),
    )


def marker_exists(place: str) -> bool:
    """Return whether a marker file exists. `place` is a path or a URI."""
    if "://" not in place:
        return Path(place).exists()
    system, name = file_system(place)
    return bool(system.get_file_info(name).type != pafs.FileType.NotFound)
