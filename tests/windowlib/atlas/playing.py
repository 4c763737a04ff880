"""Plays documents through a spec: one pass of the driver over the log, then the operator over the driver's steps."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windowlib.atlas.atlas_operator import AtlasOperator
from windowlib.atlas.spec import AtlasSpec
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS, wrap_int64
from windowlib.keyed.snapshots import Snapshot, WindowStateRow
from windowlib.records.plain_json import from_json, to_json
from windowlib.records.records import Fate, Late, Output, Pane, Record, SideOutput, Tally, Unassigned
from windowlib.watermarks.timeline import Arrival, SourceRow, Step, Timeline

COLUMNS = {"n": "bigint", "x": "double", "who": "string"}
MINUTE = 60_000


def at(clock: str) -> int:
    """Return epoch ms of a time of day on 1970-01-01, `12:05` or `12:05:03.5`."""
    hours, minutes, *seconds = clock.split(":")
    return int(hours) * 60 * MINUTE + int(minutes) * MINUTE + int(1000 * float(seconds[0] if seconds else 0))


def stage(name: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {name: {"pipeline": [], **options}}


def seconds(size: int) -> dict[str, Any]:
    return {"size": size, "unit": "second"}


def ms(size: int) -> dict[str, Any]:
    return {"size": size, "unit": "ms"}


@dataclass(frozen=True, kw_only=True)
class Event:
    """A document that arrives."""

    at_ms: int
    clock_ms: int = 0
    source: str = ""
    value: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Played:
    """The outputs, fates and tallies of a played log."""

    operator: AtlasOperator
    outputs: list[Output] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    terms: dict[str, Tally] = field(default_factory=dict)

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(output.values[0]) for output in self.outputs if isinstance(output, Pane)]

    def panes(self) -> list[Pane]:
        return [output for output in self.outputs if isinstance(output, Pane)]

    def late(self) -> list[Late]:
        return [output for output in self.outputs if isinstance(output, Late)]

    def unassigned(self) -> list[Unassigned]:
        return [output for output in self.outputs if isinstance(output, Unassigned)]

    def dead_letters(self) -> list[dict[str, Any]]:
        letters = [output for output in self.outputs if isinstance(output, SideOutput)]
        assert all(letter.tag == "dead_letters" for letter in letters)
        return [json.loads(letter.value["document"]) for letter in letters]

    def take(self) -> None:
        self.outputs += self.operator.drain()
        for term, tally in self.operator.take_tallies().items():
            self.terms[term] = add(self.terms.get(term, Tally(0, 0, 0)), tally)


def add(left: Tally, right: Tally) -> Tally:
    return Tally(left.count + right.count, wrap_int64(left.xor ^ right.xor), wrap_int64(left.sum + right.sum))


def hash_of(place: int) -> int:
    return wrap_int64((place + 1) * 0x9E37_79B9_7F4A_7C15)


def arrivals(events: Sequence[Event]) -> list[Arrival]:
    clock_ms, found = 0, []
    for place, event in enumerate(events):
        clock_ms = max(clock_ms, event.clock_ms)
        found.append(Arrival(place, event.at_ms, clock_ms, event.source))
    return found


def steps_of(spec: AtlasSpec, events: Sequence[Event], *, end_ms: int, cuts: Collection[int] = ()) -> list[Step]:
    """Run the driver over the log. Before each record in `cuts`, a fresh driver takes over from a snapshot in JSON."""
    timeline = Timeline(spec.driver())
    steps: list[Step] = []
    for arrival in arrivals(events):
        if arrival.sequence in cuts:
            steps += timeline.steps
            rows, cut_ms = timeline.snapshot(), steps[-1].clock_ms if steps else MIN_TIME_MS
            timeline = Timeline(spec.driver(), clock_ms=cut_ms)
            timeline.restore([SourceRow(*row) for row in json.loads(json.dumps(rows))])
            assert timeline.snapshot() == rows
        timeline.arrive(arrival)
    timeline.end_slice(end_ms)
    return steps + timeline.steps


def take_step(operator: AtlasOperator, step: Step) -> None:
    place = (0, max(step.sequence, 0))
    operator.advance_processing_time(step.clock_ms, place, inclusive=step.due_ms > step.clock_ms)
    operator.advance_watermark(step.watermark_ms, place)


def through_json(snapshot: Snapshot) -> Snapshot:
    def converted(row: WindowStateRow) -> WindowStateRow:
        contents = [stored._replace(value=from_json(to_json(stored.value))) for stored in row.contents]
        return replace(row, contents=contents, trigger_state=from_json(to_json(row.trigger_state)))

    return replace(snapshot, windows=[converted(row) for row in snapshot.windows])


def play(
    spec: AtlasSpec, events: Sequence[Event], *, end_ms: int = 0, cuts: Collection[int] = (), flush: bool = False
) -> Played:
    """Play events. With `flush`, watermark and clock then advance to the greatest time."""
    played = Played(operator=spec.build())
    steps = steps_of(spec, events, end_ms=end_ms, cuts=cuts)
    for place, event in enumerate(events):
        while steps and steps[0].sequence < place:
            take_step(played.operator, steps.pop(0))
        played.take()
        if place in cuts:
            snapshot = played.operator.snapshot()
            played.operator = spec.build()
            played.operator.restore(through_json(snapshot))
        record = Record((), event.at_ms, event.value, (0, place), hash_of(place))
        played.fates.append(played.operator.process(record))
    for step in steps:
        take_step(played.operator, step)
    if flush:
        played.operator.advance_processing_time(MAX_TIME_MS)
        played.operator.advance_watermark(MAX_TIME_MS)
    played.take()
    return played


def numbered(times: Sequence[int]) -> list[Event]:
    """Return events with the documents {n: 0}, {n: 1}, ... at these event times."""
    return [Event(at_ms=at_ms, value={"n": place}) for place, at_ms in enumerate(times)]


PUSH = [{"$group": {"_id": None, "docs": {"$push": "$n"}}}]


def contents(played: Played) -> dict[tuple[int, int], list[int]]:
    """Return the numbers of the documents by window, for the pipeline PUSH."""
    return {
        (pane.window.start_ms or 0, pane.window.end_ms or 0): json.loads(pane.values[0])["docs"]
        for pane in played.panes()
    }
