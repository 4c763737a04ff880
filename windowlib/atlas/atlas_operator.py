"""`AtlasOperator`: collects documents in windows, and runs the inner pipeline over each window when it closes.

A tumbling or hopping window holds the documents of one key (with `over: all`, all documents). A session holds the
documents of one partition. A window emits only when it closes. A document that arrives later is a dead letter.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from windowlib.atlas.dead_letters import DEAD_LETTER_EDGE, DEAD_LETTERS, LATE_REASON, SOURCE_META, DeadLetterWriter
from windowlib.atlas.documents.documents import MISSING, Date, Document
from windowlib.atlas.documents.json_documents import to_text
from windowlib.atlas.expressions.forms import Expression, ExpressionFault, Scope
from windowlib.atlas.open_documents import Closing, Lane, OpenDocuments
from windowlib.atlas.policies import AtlasProfile
from windowlib.atlas.stages.stage_forms import Failure, Item, Run, Stage
from windowlib.atlas.stages.stages import run_pipeline
from windowlib.atlas.window_stages import Hopping, Windows
from windowlib.bounds import MIN_TIME_MS, TimeWindow, lateness_ms
from windowlib.errors import InvariantBroken
from windowlib.keyed.collecting import CollectingOperator, check_watermark
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.records import (
    ASSIGNED,
    LATE,
    ON_TIME,
    START,
    UNASSIGNED,
    Fate,
    Late,
    Pane,
    Position,
    Record,
    SideOutput,
    Stored,
    Unassigned,
)
from windowlib.records.tallies import FIRED, NEW, edges_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """The compiled form of an AtlasSpec, for the operator.

    `document_of` converts a record's value to a document without the event time. The event time goes into the field
    `ts_field_name`. `partition_by` is None for all windows except sessions.
    """

    windows: Windows
    stages: tuple[Stage, ...]
    partition_by: Expression | None
    document_of: Callable[[Mapping[str, Any]], Document]
    ts_field_name: str
    letters: DeadLetterWriter
    profile: AtlasProfile
    stale_max: int

    def document(self, value: Mapping[str, Any], timestamp_ms: int | None) -> Document:
        """Return the document of a record, with the event time in its field."""
        document = self.document_of(value)
        document[self.ts_field_name] = None if timestamp_ms is None else Date(timestamp_ms)
        return document

    def closes_at(self, window: TimeWindow) -> int:
        """Return the time that closes a window: a watermark in Flink's inclusive reading, or its end on the clock."""
        windows = self.windows
        return window.end_ms - 1 + windows.allowed_lateness_ms if windows.is_event_time else window.end_ms


class AtlasOperator(CollectingOperator):
    """Atlas's windows of many keys, made by `AtlasSpec.build`. A driver calls it; it reads no clock and does no I/O.

    The terms of its tallies are 'new', 'closed:fired' and 'closed:dead_letter'.
    """

    def __init__(self, windowing: Windowing, groups: KeyGroupRange | None = None) -> None:
        super().__init__()
        self._windowing = windowing
        self._is_event_time = windowing.windows.is_event_time
        self._open = OpenDocuments(windowing.closes_at, groups, stale_max=windowing.stale_max)
        self.watermark_ms = MIN_TIME_MS
        self.processing_time_ms = 0

    def process(self, record: Record) -> Fate:
        """Process one record under the watermark before it, and return its fate.

        Raises InvariantBroken: the windows are on event time, and the record has none.
        """
        at_ms = record.timestamp_ms if self._is_event_time else self.processing_time_ms
        if at_ms is None:
            raise InvariantBroken(
                f"the record at {record.position} has no event time; such a record is invalid, and the caller must not "
                "pass it to the operator"
            )
        windows = self._windowing.windows
        if isinstance(windows, Hopping):
            return self._into_windows(record, windows.windows_of(at_ms))
        return self._into_session(record, TimeWindow(at_ms, at_ms + windows.gap_ms))

    def _into_windows(self, record: Record, windows: Sequence[TimeWindow]) -> Fate:
        if not windows:
            self._outputs.append(Unassigned(record, self.watermark_ms))
            return UNASSIGNED
        lane = self._open.lane(record.key)
        missed = [window for window in windows if self._is_closed(window)]
        for window in windows:
            if not missed or not self._is_closed(window):
                self._put(lane, window, record)
        if missed:
            self._late(record, missed, missed_all=len(missed) == len(windows))
        return LATE if len(missed) == len(windows) else ASSIGNED

    def _into_session(self, record: Record, own: TimeWindow) -> Fate:
        # Two sessions that only touch stay separate: Atlas joins documents that are less than the gap apart.
        windowing = self._windowing
        try:
            partition = self._partition(record)
        except ExpressionFault as error:
            self._outputs.append(Unassigned(record, self.watermark_ms))
            self._dead_letter(record, f"partitionBy: {error}")
            return UNASSIGNED
        lane = self._open.lane(record.key, partition)
        met = [window for window in lane.windows if window.start_ms < own.end_ms and own.start_ms < window.end_ms]
        if not met and windowing.windows.is_event_time and self._is_closed(own):
            self._late(record, [own], missed_all=True)
            return LATE
        starts, ends = zip(own, *met, strict=True)
        cover = TimeWindow(min(starts), max(ends))
        if met:
            self._open.merge(lane, met, cover)
        self._put(lane, cover, record)
        return ASSIGNED

    def _partition(self, record: Record) -> Any:  # noqa: ANN401 - any value of a document
        expression = self._windowing.partition_by
        if expression is None:
            raise InvariantBroken("sessions have no partitionBy; AtlasSpec must refuse such a stage")
        document = self._windowing.document(record.value, record.timestamp_ms)
        value = expression(Scope(document, SOURCE_META, self.processing_time_ms))
        return None if value is MISSING else value

    def _is_closed(self, window: TimeWindow) -> bool:
        return self._is_event_time and self._windowing.closes_at(window) <= self.watermark_ms

    def _put(self, lane: Lane, window: TimeWindow, record: Record) -> None:
        edge = record.record_hash
        self._tallies.add(NEW, (1, edge, edge))
        self._open.put(lane, window, Stored(record.position, record.timestamp_ms, record.value, edge))

    def _late(self, record: Record, missed: Sequence[TimeWindow], *, missed_all: bool) -> None:
        windowing = self._windowing
        closed_at_ms = max(map(windowing.closes_at, missed))
        self._outputs.append(
            Late(
                record=record,
                missed=tuple(missed),
                missed_all=missed_all,
                watermark_ms=self.watermark_ms,
                late_by_ms=lateness_ms(self.watermark_ms, closed_at_ms),
                reason=LATE_REASON,
            )
        )
        if missed_all or windowing.profile.dead_letters_partly_late:
            self._dead_letter(record, LATE_REASON, missed)

    def _dead_letter(self, record: Record, reason: str, missed: Sequence[TimeWindow] = ()) -> None:
        at_ms, windowing = record.timestamp_ms, self._windowing
        failure = Failure(Item(windowing.document(record.value, at_ms), None), windowing.windows.stage, reason)
        letter = self._letter(failure, record.position, meta=SOURCE_META, missed=missed)
        self._outputs.append(SideOutput(DEAD_LETTERS, letter, record.key, at_ms, self.watermark_ms, record.position))

    def _letter(
        self, failure: Failure, position: Position, *, meta: Document, missed: Sequence[TimeWindow] = ()
    ) -> dict[str, str]:
        # Its time is the clock or, in a log without a clock, the start of the slice.
        clock_ms = max(self.processing_time_ms, position[0])
        return self._windowing.letters.write(failure, meta=meta, clock_ms=clock_ms, missed=missed)

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        check_watermark(self.watermark_ms, watermark_ms, position)
        self.watermark_ms = watermark_ms
        if self._is_event_time:
            self._close_due(watermark_ms, position)

    def advance_processing_time(
        self, processing_time_ms: int, position: Position = START, *, inclusive: bool = True
    ) -> None:
        """Advance the clock to `processing_time_ms`; each window on the clock closes at its own end.

        Without `inclusive`, windows that end at that time stay open: a record that arrives at that time goes first.
        """
        if not self._is_event_time:
            self._close_due(processing_time_ms if inclusive else processing_time_ms - 1, position)
        self.processing_time_ms = processing_time_ms

    def _close_due(self, until_ms: int, position: Position) -> None:
        """Close the windows that are due. Windows of one key with equal bounds number their panes together."""
        due = self._open.take_due(until_ms)
        by_window = groupby(due, key=lambda closing: (closing.at_ms, closing.lane.name[0], closing.window))
        for (at_ms, _, window), closings in by_window:
            if not self._is_event_time:
                self.processing_time_ms = max(self.processing_time_ms, at_ms)
            panes = [pane for closing in closings for pane in self._close(closing, position)]
            for index, (key, record_count, text) in enumerate(panes):
                pane = Pane(
                    key=key,
                    window=window,
                    values=(text,),
                    pane_index=index,
                    timing=ON_TIME,
                    is_first=index == 0,
                    is_last=index == len(panes) - 1,
                    mode="discarding",
                    kind="result",
                    record_count=record_count,
                    watermark_ms=self.watermark_ms,
                    position=position,
                    timestamp_ms=window.last_ms,
                    nonspeculative_index=index,
                )
                self._outputs.append(pane)

    def _close(self, closing: Closing, position: Position) -> list[tuple[Hashable, int, str]]:
        """Run the pipeline over a window's documents; return (key, record count, JSON text) for each result."""
        windowing, lane, contents = self._windowing, closing.lane, closing.contents
        meta = self._meta(lane, closing.window)
        run = Run(meta=meta, now_ms=self.processing_time_ms)
        documents = [windowing.document(stored.value, stored.timestamp_ms) for stored in contents]
        results = run_pipeline(windowing.stages, documents, run)
        self._count(contents, run.failures)
        for failure in run.failures:
            letter, at_ms = self._letter(failure, position, meta=meta), closing.window.last_ms
            self._outputs.append(SideOutput(DEAD_LETTERS, letter, lane.key, at_ms, self.watermark_ms, position))
        return [(lane.key, len(contents), to_text({**document, "_stream_meta": meta})) for document in results]

    def _meta(self, lane: Lane, window: TimeWindow) -> Document:
        bounds: Document = {"start": Date(window.start_ms), "end": Date(window.end_ms)}
        if self._windowing.partition_by is not None:
            bounds["partition"] = lane.partition
        return {**SOURCE_META, "window": bounds}

    def _count(self, contents: Sequence[Stored], failures: Sequence[Failure]) -> None:
        """Close the edges of a window: as a dead letter for a record whose document failed, as fired for the others."""
        failed = {failure.item.origin for failure in failures}
        for term, is_failed in ((FIRED, False), (DEAD_LETTER_EDGE, True)):
            part = [stored for place, stored in enumerate(contents) if (place in failed) is is_failed]
            self._tallies.add(term, edges_of(part))

    def next_event_timer_ms(self) -> int | None:
        return self._open.next_ms() if self._is_event_time else None

    def next_processing_timer_ms(self) -> int | None:
        return None if self._is_event_time else self._open.next_ms()

    def snapshot(self) -> Snapshot:
        """Return all state as plain rows in a fixed order. Closing times follow from the bounds and are not stored."""
        return Snapshot(
            watermark_ms=self.watermark_ms,
            processing_time_ms=self.processing_time_ms,
            stagger_ms=None,
            windows=self._open.rows(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        snapshot.check_version()
        self._open.restore(snapshot.windows)
        self.watermark_ms = snapshot.watermark_ms
        self.processing_time_ms = snapshot.processing_time_ms
