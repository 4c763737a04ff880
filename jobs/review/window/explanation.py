"""Explains one window: the operator runs over its records again, and its panes are compared with the stored rows."""

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from jobs.lake.lake import Lake
from jobs.lake.store import table_columns
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_instant
from jobs.plain_text import agreeing, counted, first_of
from jobs.planning.changed_slices import named_spans
from jobs.planning.event_times import event_times
from jobs.reading.log_places import log_place
from jobs.reading.plain_values import plain, rows_of
from jobs.reading.stored_rows import run_attempt
from jobs.review.explain_windows import open_windows
from jobs.review.window.chain import Chain
from jobs.review.window.operator_walk import Bounds, WindowRecord
from jobs.review.window.slice_replay import Reading, SliceReplay
from jobs.review.window.stored_panes import StoredPanes, content_of, seen_by_readers
from jobs.review.window.told_window import WindowExplanation, WindowPane
from jobs.review.window.wanted import Key, WantedWindow, bounds_text, fixed_end
from jobs.runs import Slice
from windowlib.bounds import MAX_TIMESTAMP_MS
from windowlib.errors import RequestError
from windowlib.records.column_types import Node
from windowlib.records.tables import ROW_CHECK, ROW_ID, WINDOW_OUTPUTS

MOST_NAMED: Final = 8
"""A message names at most so many windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWindow:
    """The question: a key, a start, and the end if the start alone does not tell the window.

    `request` is the id of a request whose staged runs take the place of the published ones. `most` is how many of the
    first and of the last records to return; None for all.
    """

    key: Key
    start_ms: int
    end_ms: int | None = None
    request: str | None = None
    most: int | None = None


def explain_window(
    lake: Lake, pipeline: Pipeline, asked: AskedWindow, *, view: LedgerView, reading: Reading
) -> WindowExplanation:
    """Explain a window of the published runs, or with the staged runs of a request in their place.

    Only slices are read that may have records of the window, or in which it is open. Of their records, only those of
    the key leave the tasks. `pipeline` is the one of `spec_of_request`. `reading` returns the tasks that read a slice,
    and may refuse to read it.

    Raises:
        RequestError: there is no such window, or several, or the pipeline has no windows with bounds.
        LogError: the log cannot be read.
        CheckpointError, StoreError: stored rows are damaged.
    """
    whole = Chain.of(pipeline, view, asked.request)
    chain = whole.with_keys(asked.key.values)
    stored = StoredPanes(lake, pipeline.name, asked.key)
    window = _resolved(chain, asked, stored)
    candidates = slices_with_records(lake, pipeline, window, slices=whole.slices, view=view)
    told = _Told(most=asked.most)
    replay = SliceReplay(lake=lake, chain=chain, window=window, reading=reading)
    is_open = False
    for slice_id, run in chain.runs.items():
        if is_open or slice_id in candidates:
            is_open = replay.tell(run, told.add)
    # The window has no record before the first of these slices, and has ended, or has no later record, after the last.
    rows = stored.of_window(window, chain.between(*replay.span))
    if not told.counts and not rows.num_rows:
        rows = stored.of_window(window, chain.every)
    notes = (
        *_of_other_keys(slice_ for slice_ in whole.slices if slice_.slice_id in candidates - chain.runs.keys()),
        *_unread(replay),
    )
    if not rows.num_rows:
        _refuse_unknown(window, replay, told, is_grid=_has_grid(pipeline), notes=notes)
    seen = seen_by_readers(rows, chain.published, asked.key.values)
    panes = tuple(_panes(replay, rows_of(rows), seen=seen))
    return WindowExplanation(
        window=window,
        records=told.records,
        left_out=told.left_out,
        counts=dict(told.counts),
        panes=panes,
        is_open=is_open,
        outputs=chain.outputs,
        slices=tuple(replay.panes),
        unread=tuple(replay.unread),
        differences=(
            *replay.differences,
            *notes,
            *(() if replay.unread else _without_records(told, panes)),
            *_differences(panes),
        ),
    )


def key_columns_of(lake: Lake, pipeline: Pipeline) -> Mapping[str, Node]:
    """Return the stored columns of `window_outputs`, which have the types of the key columns.

    Raises RequestError: key and bounds do not name a window of the pipeline, or nothing has been replayed.
    """
    why = _why_not_named(pipeline)
    if why is not None:
        raise RequestError(
            f"no window of pipeline {pipeline.name} can be named by its key and its bounds: {why}; `hindcast explain "
            f"{pipeline.name} RECORD_ID` explains a record"
        )
    columns = table_columns(lake.table(pipeline.name, WINDOW_OUTPUTS))
    if not columns:
        raise RequestError(f"nothing of pipeline {pipeline.name} has been replayed in lake {lake.root}")
    return columns


def _why_not_named(pipeline: Pipeline) -> str | None:
    """Return why key and bounds do not name a window; None if they do."""
    windows = pipeline.windows
    if windows is None:
        return "it has no windows, and its function processes each record alone"
    if windows.is_unbounded:
        return "count and global windows have no bounds in time"
    if windows.storm is not None and windows.storm.length.count is not None:
        return "a window of Storm with a number of tuples has those tuples, and not all of its time"
    if windows.atlas is not None and windows.atlas.session_window is not None:
        return "a session of Atlas belongs to a partition, and the tables have no column of it"
    return None


@dataclass(slots=True, kw_only=True)
class _Told:
    """The records that were told: all, or the first and the last `most` of them, and the number of each fate."""

    most: int | None
    counts: Counter[str] = field(default_factory=Counter)
    _first: list[WindowRecord] = field(default_factory=list)
    _last: deque[WindowRecord] = field(default_factory=deque)

    def add(self, record: WindowRecord) -> None:
        self.counts[record.fate] += 1
        if self.most is None or len(self._first) < self.most:
            self._first.append(record)
            return
        self._last.append(record)
        if len(self._last) > self.most:
            self._last.popleft()

    @property
    def records(self) -> tuple[WindowRecord, ...]:
        return (*self._first, *self._last)

    @property
    def left_out(self) -> int:
        return self.counts.total() - len(self._first) - len(self._last)


def _resolved(chain: Chain, asked: AskedWindow, stored: StoredPanes) -> WantedWindow:
    pipeline = chain.pipeline
    assert pipeline.windows is not None, "the caller has checked it"
    end_ms = fixed_end(pipeline.windows, asked.start_ms)
    is_right_closed = pipeline.front_end == "storm"
    if asked.end_ms is not None and end_ms is not None and end_ms != asked.end_ms:
        raise RequestError(
            f"no window of pipeline {pipeline.name} is {bounds_text(asked.start_ms, asked.end_ms)}: the one that "
            f"starts there is {bounds_text(asked.start_ms, end_ms)}"
        )
    end_ms = end_ms if asked.end_ms is None else asked.end_ms
    if end_ms is None:
        end_ms = _only_end(chain, asked, stored)
    if end_ms <= asked.start_ms:
        raise RequestError(f"the window {bounds_text(asked.start_ms, end_ms)} is empty: give an end after the start")
    return WantedWindow(key=asked.key, start_ms=asked.start_ms, end_ms=end_ms, is_right_closed=is_right_closed)


def _only_end(chain: Chain, asked: AskedWindow, stored: StoredPanes) -> int:
    """Return the end of the only window that starts at an instant, among those that have panes or are open."""
    later = WantedWindow(key=asked.key, start_ms=asked.start_ms, end_ms=MAX_TIMESTAMP_MS)
    begun = slices_with_records(stored.lake, chain.pipeline, later, slices=chain.slices, view=chain.view)
    first_ms = min((slice_.start_ms for slice_ in chain.slices if slice_.slice_id in begun), default=MAX_TIMESTAMP_MS)
    runs = chain.between(first_ms, MAX_TIMESTAMP_MS)
    last = [*chain.runs.values()][-1].checkpoint
    still_open = open_windows(
        stored.lake,
        chain.pipeline,
        asked.key.plain(),
        checkpoint=last,
        holds=lambda begin_ms, _: begin_ms == asked.start_ms,
    )
    windows = stored.starting_at(asked.start_ms, runs) | still_open
    windows = windows or stored.starting_at(asked.start_ms, chain.every)
    if len(windows) == 1:
        return windows.pop()[1]
    if windows:
        raise RequestError(
            f"{counted(len(windows), 'window')} of {asked.key.words} start there: {_named(windows)}; name one by its "
            "end (--end)"
        )
    around = stored.around(asked.start_ms, runs)
    near = f"The windows around it are {_named(around)}" if around else "No window is around it"
    raise RequestError(
        f"no window of {asked.key.words} that has a pane or is open starts at {show_instant(asked.start_ms)}. {near}. "
        "A window that has no pane and is closed is found if its end is given, too (--end)"
    )


def _named(windows: Iterable[Bounds]) -> str:
    return first_of([bounds_text(*bounds) for bounds in sorted(windows)], MOST_NAMED)


def _has_grid(pipeline: Pipeline) -> bool:
    """Return whether the file alone tells where windows start."""
    windows = pipeline.windows
    if windows is None:
        return False
    return windows.sliding is not None or (windows.tumbling is not None and windows.tumbling.stagger.by == "aligned")


def _refuse_unknown(
    window: WantedWindow, replay: SliceReplay, told: _Told, *, is_grid: bool, notes: Iterable[str]
) -> None:
    """Raise a RequestError if there is no such window. It has no stored pane."""
    wanted, known = (window.start_ms, window.end_ms), replay.known
    if wanted in known or (is_grid and told.counts):
        return
    if not told.counts:
        first, last = min(replay.chain.runs), max(replay.chain.runs)
        raise RequestError(
            f"window {window.name} has no pane and no record in the slices {first} to {last}, which were published or "
            f"named with --request{''.join(f'. {sentence}' for sentence in notes).removesuffix('.')}"
        )
    near = {bounds for bounds in known if window.overlaps(*bounds)}
    others = f"The windows of the key that overlap it are {_named(near)}" if near else "No window overlaps it"
    raise RequestError(f"no window is {window.name}. {others}")


def _panes(
    replay: SliceReplay, stored: Sequence[Mapping[str, Any]], *, seen: AbstractSet[tuple[str, int]]
) -> Iterator[WindowPane]:
    """Yield the stored rows in their order, and after them those that only the operator gives."""
    chain = replay.chain
    published = {run_attempt(run) for run in chain.published.values()}
    told = {run_attempt(run) for run in chain.runs.values()}
    computed = {slice_id: Counter(map(_text, rows)) for slice_id, rows in replay.panes.items()}
    for row in stored:
        attempt = row["slice_id"], row["attempt_id"]
        own = computed.get(row["slice_id"]) if attempt in told else None
        text = _text(row)
        is_computed = None if own is None else own[text] > 0
        if own is not None and is_computed:
            own[text] -= 1
        readers = "not published"
        if attempt in published:
            is_seen = (row["attempt_id"], row[ROW_ID]) in seen
            readers = "seen" if is_seen else "replaced" if row["kind"] == "result" else "withdraws"
        yield WindowPane(
            slice_id=row["slice_id"],
            run_id=row["run_id"],
            row={name: value for name, value in row.items() if name not in {ROW_ID, ROW_CHECK}},
            readers=readers,
            is_stored=True,
            is_computed=is_computed,
        )
    for slice_id, rows in replay.panes.items():
        for row in rows:
            if computed[slice_id][_text(row)] > 0:
                computed[slice_id][_text(row)] -= 1
                yield WindowPane(
                    slice_id=slice_id,
                    run_id=chain.runs[slice_id].result.run_id,
                    row=row,
                    readers="not stored",
                    is_stored=False,
                    is_computed=True,
                )


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps(plain(content_of(row)), sort_keys=True)


def _of_other_keys(slices: Iterable[Slice]) -> Iterator[str]:
    """Yield a sentence on slices whose windows have other key columns than the one that is explained."""
    if left_out := [*slices]:
        yield (
            f"The windows of {counted(len(left_out), 'slice')} that may have records of this one have other key "
            f"columns, so they are left out: {named_spans(left_out)}."
        )


def _unread(replay: SliceReplay) -> Iterator[str]:
    """Yield a sentence on the slices that the log refuses to replay."""
    slices = [replay.chain.runs[slice_id].result.slice for slice_id in replay.unread]
    if slices:
        yield (
            f"{counted(len(slices), 'slice')} that may have records of the window cannot be read again: "
            f"{named_spans(slices)}. Records there are not told, and panes there are only those that are stored. The "
            f"reason for {slices[0].slice_id}: {replay.unread[slices[0].slice_id]}."
        )


def _without_records(told: _Told, panes: Iterable[WindowPane]) -> Iterator[str]:
    if any(panes) and not told.counts:
        yield (
            "The log has no record of this window any more, and the run that fired it had some: they were removed from "
            "the log since. Readers see its panes until the slice is replayed."
        )


def _differences(panes: Iterable[WindowPane]) -> Iterator[str]:
    panes = tuple(panes)
    missing = sum(not pane.is_stored for pane in panes)
    foreign = sum(pane.is_computed is False for pane in panes)
    if missing or foreign:
        yield (
            f"The operator gives other panes than the tables have: {counted(foreign, 'stored row')} that it does not "
            f"give, and {counted(missing, 'row')} that it gives and that {agreeing(missing, 'are')} not stored. The "
            "log, the spec or the rows have changed since; `hindcast verify` and `hindcast plan --verify` tell which."
        )


def slices_with_records(
    lake: Lake, pipeline: Pipeline, window: WantedWindow, *, slices: Sequence[Slice], view: LedgerView
) -> frozenset[str]:
    """Return the slices that may have records of a window: all whose files do not show that they have none.

    Raises LogError: the log cannot be read.
    """
    if pipeline.windows is not None and pipeline.windows.is_processing_time:
        # At the end of a slice, its clock is at that end.
        near = (slice_ for slice_ in slices if slice_.start_ms <= window.end_ms and slice_.end_ms >= window.start_ms)
        return frozenset(slice_.slice_id for slice_ in near)
    log = log_place(lake, pipeline).open()
    known_log(view, slices).log_files(log)
    return frozenset(
        times.slice.slice_id
        for times in event_times(pipeline, log, slices)
        if times.may_have(window.start_ms, window.end_ms)
    )
