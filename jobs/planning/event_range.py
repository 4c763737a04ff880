"""Which slices a request in event time replays: those whose records can be in windows that touch a range of event time.

The range ends with the slice after which these windows do not change any more. `resolved` is pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from jobs.engine.fingerprints import spec_fingerprint
from jobs.lake.log_version import LogVersion
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import HALF_OPEN, parse_bound, show_instant, show_ms, slice_grid, slices_ending_in
from jobs.plain_text import counted
from jobs.planning.changed_slices import changed_slices
from jobs.planning.event_times import SliceTimes, TimeRules, event_times, log_engine, time_rules
from jobs.planning.request_context import RequestContext
from jobs.reading.log_places import log_place
from jobs.runs import Slice
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.columnar.time_groups import TimeGroups
from windowlib.errors import RangeError, RequestError, SpecError
from windowlib.windows.reach import Reach

SEPARATOR: Final = ".."


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRange:
    """The half-open range `[from_ms, to_ms)` of event time."""

    from_ms: int
    to_ms: int

    @classmethod
    def parse(cls, pipeline: Pipeline, text: str) -> "EventRange":
        """Return the range of a text such as `2013-02-03..2013-02-04T12:00`; each bound as for `parse_bound`.

        Raises RangeError: the text is no such range, or the range is empty or reversed.
        """
        bounds = text.split(SEPARATOR)
        if len(bounds) != len(("from", "to")):
            raise RangeError(
                f"a range of event time is two dates or times with {SEPARATOR} between them, such as "
                f"2013-02-03{SEPARATOR}2013-02-04T12:00; found {text!r}"
            )
        from_ms, to_ms = (parse_bound(pipeline, bound.strip()) for bound in bounds)
        if from_ms >= to_ms:
            raise RangeError(f"the range of event time {text} is empty or reversed; {HALF_OPEN}")
        return cls(from_ms=from_ms, to_ms=to_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The event times of all records that can be in windows that touch a range, both included.

    `final_ms`: when the watermark has reached it, these windows have been deleted.
    """

    first_ms: int
    last_ms: int
    final_ms: int

    @classmethod
    def by(cls, event_range: EventRange, reach: Reach, times: Sequence[SliceTimes]) -> "Touched | None":
        """Return what a range touches; None if no record is in a session that touches it.

        A session may reach from record to record, as far as the event times of the log have no gap.
        """
        size_ms = reach.after_ms - reach.margin_ms
        first_ms, last_ms = event_range.from_ms - size_ms + 1, event_range.to_ms - 1
        if reach.gap_ms is None:
            return cls(first_ms=first_ms, last_ms=last_ms + size_ms - 1, final_ms=last_ms + reach.after_ms)
        if not all(slice_times.is_known for slice_times in times):
            return cls(first_ms=MIN_TIME_MS, last_ms=MAX_TIME_MS, final_ms=MAX_TIME_MS)
        groups = [
            (first, last) for first, last in _groups(times, reach.gap_ms) if first <= last_ms and last >= first_ms
        ]
        if not groups:
            return None
        return cls(first_ms=groups[0][0], last_ms=groups[-1][1], final_ms=groups[-1][1] + reach.after_ms)


def _groups(times: Sequence[SliceTimes], gap_ms: int) -> list[tuple[int, int]]:
    """Return the first and last event time of groups of records that may be one session, in order."""
    spans = np.array([span for slice_times in times for span in slice_times.spans], dtype=np.int64).reshape(-1, 2)
    groups = TimeGroups.none(gap_ms).joined(TimeGroups(gap_ms=gap_ms, first_ms=spans[:, 0], last_ms=spans[:, 1]))
    return [*zip(groups.first_ms.tolist(), groups.last_ms.tolist(), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRange:
    """The slices from `first` to `last`. `is_final` is false if no watermark tells when the windows are complete."""

    first: Slice
    last: Slice
    is_final: bool


def resolved(
    event_range: EventRange, rules: TimeRules, times: Sequence[SliceTimes], *, published: Mapping[str, int | None]
) -> ResolvedRange | None:
    """Return the slices for a range of event time; None if no record can be in a window that touches it.

    `times` are the slices that have records, in order. `published` maps a slice to the watermark after it in the chain
    that the slices continue. For other slices, the statistics tell a watermark if `rules` allow it.
    """
    touched = Touched.by(event_range, rules.reach, times)
    if touched is None:
        return None
    bounds = touched.first_ms, touched.last_ms
    first = next((number for number, own in enumerate(times) if own.may_have(*bounds)), None)
    if first is None:
        return None
    latest_ms = MIN_TIME_MS
    for own in times[first:]:
        if own.latest_ms is not None and own.is_exact:
            latest_ms = max(latest_ms, own.latest_ms)
        reached_ms = published.get(own.slice.slice_id)
        if reached_ms is None and rules.bound_ms is not None and latest_ms > MIN_TIME_MS:
            reached_ms = latest_ms - rules.bound_ms
        if reached_ms is not None and reached_ms >= touched.final_ms:
            return ResolvedRange(first=times[first].slice, last=own.slice, is_final=True)
    return ResolvedRange(first=times[first].slice, last=times[-1].slice, is_final=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeSlices:
    """The slices for a range of event time, as edges of slices, and a sentence for the person who asks."""

    from_ms: int
    to_ms: int
    sentence: str


def event_time_slices(work: RequestContext, text: str, *, is_fresh: bool = False) -> EventTimeSlices:
    """Return the slices for a range of event time, by the statistics of the log and the published watermarks.

    `is_fresh`: the chain begins at the first of these slices, so the published watermarks are not its own.

    Raises:
        RangeError: as for `EventRange.parse`.
        RequestError: no record can be in a window of the range; or event time does not tell when the windows end.
        LogError, SpecError: the log or the pipeline cannot be used.
    """
    pipeline, view, grid = work.pipeline, work.ledger.view(), slice_grid(work.pipeline)
    event_range, log_state = EventRange.parse(pipeline, text), work.log_state(view, ())
    log = log_state.known.opened or log_place(work.lake, pipeline).open()
    rules = _rules(pipeline, log)
    times: tuple[SliceTimes, ...] = ()
    if log_state.first_data is not None and log_state.last_data is not None:
        until_ms = min(log_state.last_data.end_ms, work.ledger.now_ms())
        over = slices_ending_in(pipeline, log_state.first_data.start_ms, until_ms)
        times = event_times(pipeline, log, over)
    published = {} if is_fresh else _published_watermarks(work, view, rules)
    needed = resolved(event_range, rules, times, published=published)
    asked = f"event time [{show_ms(grid, event_range.from_ms)}, {show_ms(grid, event_range.to_ms)})"
    if needed is None:
        raise RequestError(
            f"no record of pipeline {pipeline.name} can be in a window that touches {asked}. {_extent(times)}"
        )
    return EventTimeSlices(
        from_ms=needed.first.start_ms, to_ms=needed.last.end_ms, sentence=f"{asked} {_in_words(needed, times)}"
    )


def _rules(pipeline: Pipeline, log: LogVersion) -> TimeRules:
    """Return the rules of a pipeline. The statistics tell no watermark if the pipeline leaves out records."""
    engine = log_engine(pipeline, log)
    try:
        rules = time_rules(engine)
    except SpecError as error:
        raise RequestError(
            f"--event-time cannot tell which slices of pipeline {pipeline.name} to replay: {error}. Give --from and "
            "--to"
        ) from error
    if rules.reach.is_on_clock:
        raise RequestError(
            f"the windows of pipeline {pipeline.name} are on processing time, so the event time of a record does not "
            "tell its windows. Give --from and --to"
        )
    return rules if pipeline.log.where is None else replace(rules, bound_ms=None)


def _published_watermarks(work: RequestContext, view: LedgerView, rules: TimeRules) -> dict[str, int | None]:
    """Return published slice -> the watermark after it. There are none if a replay may reach lower ones.

    Further records raise a watermark that follows from the greatest event time alone. Others can fall, and so can all
    if records were removed.
    """
    changed = changed_slices(work, view)
    if any(rules.bound_ms is None or change.removed or change.accepted for change in changed):
        return {}
    spec = spec_fingerprint(work.pipeline)
    runs = ((slice_id, view.published_chain_run(slice_id)) for slice_id in view.published)
    return {
        slice_id: run.result.watermark_ms
        for slice_id, run in runs
        if run is not None and run.result.spec_fingerprint == spec
    }


def _in_words(needed: ResolvedRange, times: Sequence[SliceTimes]) -> str:
    first, last = needed.first.slice_id, needed.last.slice_id
    unknown = sum(not slice_times.is_known for slice_times in times)
    words = f"is in the records of {first}" + (f" … {last}" if first != last else "")
    if unknown:
        words += (
            f". The statistics of the log do not tell the event times of {counted(unknown, 'slice')}, so these count "
            "as well"
        )
    if not needed.is_final:
        words += f". No watermark is known that completes its windows, so the range ends with {last}"
    return words


def _extent(times: Sequence[SliceTimes]) -> str:
    spans = [span for slice_times in times for span in slice_times.spans]
    if not spans:
        return "The log has no slice with records that is over"
    first_ms, last_ms = min(span.first_ms for span in spans), max(span.last_ms for span in spans)
    return (
        f"The event times of its {counted(len(times), 'slice', 'are')} from {show_instant(first_ms)} to "
        f"{show_instant(last_ms)}, by the statistics of the log"
    )
