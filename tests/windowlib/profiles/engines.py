"""One interface to the five engines, so that each test runs the same records and watermarks with every profile.

The value of a record is its event time, so a pane shows which records it holds. `column` is a column of the tables in
docs/reference/profiles.md: a profile, or `storm-strict` for Storm's windows with `semantics: strict`.
"""

import json
from typing import Any, Final

from tests.support.grammar import pipeline
from windowlib.atlas.policies import ATLAS_PROFILES
from windowlib.atlas.spec import AtlasSpec
from windowlib.functions.window_functions import Apply
from windowlib.keyed.operator_protocol import Operator, OperatorSpec
from windowlib.profiles import profile
from windowlib.records.records import Late, Output, Pane, Record, SideOutput, Unassigned
from windowlib.storm.profiles import storm_profile
from windowlib.storm.spec import StormSpec, TimeLength
from windowlib.watermarks.generators import Bounded
from windowlib.watermarks.sources_driver import SourcesSpec
from windowlib.watermarks.timeline import Arrival, SourceRow, TimeDriver, Timeline
from windowlib.windows.assigners import Assigner, Session, Sliding, Tumbling
from windowlib.windows.spec import WindowSpec
from windowlib.windows.window_operator import WindowOperator

ENGINES: Final = ("strict", "flink", "storm", "mongodb", "beam")
STORMS: Final = {"storm": "storm", "storm-strict": "strict"}
ATLAS: Final = "mongodb"

LIST: Final = Apply(lambda _key, _window, values: [list(values)])
PUSH: Final = [{"$group": {"_id": None, "times": {"$push": "$at"}}}]


def ms(size: int) -> dict[str, Any]:
    return {"size": size, "unit": "ms"}


def of_assigner(column: str, assigner: Assigner, **parts: Any) -> WindowSpec:  # noqa: ANN401 - parts of a spec
    return WindowSpec(assigner=assigner, **{"function": LIST, "profile": profile(column), **parts})


def of_storm(column: str, *, size_ms: int = 10, hop_ms: int = 10, **parts: Any) -> StormSpec:  # noqa: ANN401
    semantics = storm_profile(STORMS[column])
    return StormSpec(length=TimeLength(size_ms), slide=TimeLength(hop_ms), function=LIST, profile=semantics, **parts)


def of_stage(name: str, *, source: dict[str, Any] | None = None, **options: Any) -> AtlasSpec:  # noqa: ANN401 - JSON
    stage = {name: {"pipeline": PUSH, **options}}
    return AtlasSpec.parse(stage, columns={"at": "bigint"}, source=source, profile=ATLAS_PROFILES[ATLAS])


def hopping(column: str, *, size_ms: int = 10, hop_ms: int = 10, lateness_ms: int = 0) -> OperatorSpec:
    """Return a spec of aligned windows in event time. `lateness_ms` is ignored for Storm, which has no lateness."""
    if column in STORMS:
        return of_storm(column, size_ms=size_ms, hop_ms=hop_ms, late=True)
    if column == ATLAS:
        options = {"interval": ms(size_ms), "hopSize": ms(hop_ms), "allowedLateness": ms(lateness_ms)}
        return of_stage("$hoppingWindow", **options)
    return of_assigner(column, Sliding(size_ms=size_ms, slide_ms=hop_ms), allowed_lateness_ms=lateness_ms)


def default_lateness(column: str) -> OperatorSpec:
    """Return a spec of windows of 10 ms without a lateness option."""
    if column == ATLAS:
        return of_stage("$tumblingWindow", interval=ms(10))
    return of_assigner(column, Tumbling(size_ms=10))


def sessions(column: str) -> OperatorSpec:
    """Return a spec of sessions with a gap of 10 ms. Storm has no sessions."""
    if column == ATLAS:
        return of_stage("$sessionWindow", gap=ms(10), partitionBy=None, allowedLateness=ms(0))
    return of_assigner(column, Session(gap_ms=10))


def on_the_clock(column: str) -> OperatorSpec:
    """Return a spec of windows of 10 ms in processing time."""
    if column in STORMS:
        return of_storm(column, is_event_time=False)
    if column == ATLAS:
        return of_stage("$tumblingWindow", interval=ms(10), boundary="processingTime")
    return of_assigner(column, Tumbling(size_ms=10, is_event_time=False))


def driver(column: str, *, delay_ms: int = 0) -> TimeDriver:
    """Return a time driver whose watermark is behind by the delay or lag. Atlas ignores the delay."""
    if column in STORMS:
        return of_storm(column, lag_ms=delay_ms).driver()
    if column == ATLAS:
        return of_stage("$tumblingWindow", interval=ms(10)).driver()
    return SourcesSpec(generator=Bounded(out_of_orderness_ms=delay_ms)).build()


def watermark_of(maker: TimeDriver, *times_ms: int, sources: str = "") -> int:
    """Return the watermark after records with these times and one second. Each letter of `sources` is a source."""
    for place, at_ms in enumerate(times_ms):
        maker.on_record(Arrival(place, at_ms, 1, sources[place : place + 1]))
    timeline = Timeline(maker)
    timeline.end_slice(1_001)
    return maker.watermark_ms


def first_clock_at(maker: TimeDriver, watermark_ms: int, arrival: Arrival) -> int:
    """Return the time of the clock at which the watermark of one record is emitted."""
    timeline = Timeline(maker)
    timeline.arrive(arrival)
    timeline.end_slice(5_000)
    return next(step.clock_ms for step in timeline.steps if step.watermark_ms == watermark_ms)


def through_checkpoint(column: str, maker: TimeDriver) -> TimeDriver:
    """Return a fresh driver that is restored from the state of another one, passed through JSON."""
    fresh = driver(column)
    fresh.restore([SourceRow(*row) for row in json.loads(json.dumps(maker.snapshot()))])
    return fresh


class Played:
    """One operator that a test drives by hand. No record at or before a watermark is expected (Flink's definition)."""

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec = spec
        self._rank = 0
        self.operator: Operator = spec.build()
        self.outputs: list[Output] = []
        self.edges: dict[str, int] = {}

    def record(self, at_ms: int) -> str:
        """Process a record and return its fate."""
        self._rank += 1
        columns = {"at": at_ms}
        value = columns if isinstance(self._spec, AtlasSpec) else at_ms
        fate = self.operator.process(Record((), at_ms, value, (0, self._rank), self._rank))
        self._take()
        return str(fate.value)

    def records(self, *times_ms: int) -> None:
        for at_ms in times_ms:
            self.record(at_ms)

    def watermark(self, watermark_ms: int) -> None:
        self.operator.advance_watermark(watermark_ms, (0, self._rank))
        self._take()

    def clock(self, clock_ms: int) -> None:
        """Advance the clock to this instant, after the records of this instant."""
        self.operator.advance_processing_time(clock_ms, (0, self._rank))
        self._take()

    def resume(self, *, after_failure: bool = False) -> None:
        """Replace the operator by a fresh one with the same state. Only the window operator has `after_failure`."""
        snapshot = self.operator.snapshot()
        self.operator = self._spec.build()
        if isinstance(self.operator, WindowOperator):
            self.operator.restore(snapshot, after_failure=after_failure)
        else:
            self.operator.restore(snapshot)

    def replay(self, maker: TimeDriver, *times_ms: int) -> None:
        """Process records with the watermark that they cause. All arrive within the first second of the clock."""
        timeline = Timeline(maker)
        for place, at_ms in enumerate(times_ms):
            timeline.arrive(Arrival(place, at_ms, 0))
        timeline.end_slice(1_000)
        steps = list(timeline.steps)
        for place, at_ms in enumerate(times_ms):
            while steps and steps[0].sequence < place:
                self.watermark(steps.pop(0).watermark_ms)
            self.record(at_ms)
        for step in steps:
            self.watermark(step.watermark_ms)

    def _take(self) -> None:
        self.outputs += self.operator.drain()
        for term, tally in self.operator.take_tallies().items():
            self.edges[term] = self.edges.get(term, 0) + tally.count

    def panes(self) -> list[Pane]:
        return [output for output in self.outputs if isinstance(output, Pane)]

    def windows(self) -> list[tuple[int, int, list[int]]]:
        """Return the bounds and records of each pane so far."""
        return [(pane.window.start_ms or 0, pane.window.end_ms or 0, times_in(pane)) for pane in self.panes()]

    def timings(self) -> list[tuple[str, list[int]]]:
        """Return the timing and records of each pane so far."""
        return [(pane.timing, times_in(pane)) for pane in self.panes()]

    def late(self) -> list[Late]:
        return [output for output in self.outputs if isinstance(output, Late)]

    def unassigned(self) -> list[Unassigned]:
        return [output for output in self.outputs if isinstance(output, Unassigned)]

    def side_outputs(self) -> list[str]:
        return [output.tag for output in self.outputs if isinstance(output, SideOutput)]


def times_in(pane: Pane) -> list[int]:
    if isinstance(pane.values, tuple):
        found: list[int] = json.loads(pane.values[0])["times"]
        return found
    return list(pane.values)


def ask_for(column: str, windows: dict[str, Any]) -> None:
    """Read a pipeline file with these windows under an engine's own semantics.

    Raises:
        SpecError: the engine does not have a requested feature.
    """
    changes: dict[str, Any] = {"watermark": None} if {"storm", "atlas"} & set(windows) else {}
    if "atlas" in windows:
        changes["aggregates"] = None
    pipeline(windows=windows, semantics=STORMS.get(column, column), **changes)
