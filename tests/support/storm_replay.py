"""A small replay of a log through Storm's windows with streams, clock, buckets and slices, like that of a chunk."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from windowlib.bounds import MIN_TIME_MS, wrap_int64
from windowlib.keyed.operator_protocol import Operator
from windowlib.keyed.snapshots import Snapshot
from windowlib.records.records import Fate, Late, Output, Pane, Record, Unassigned
from windowlib.storm.spec import StormSpec
from windowlib.watermarks.timeline import Arrival, SourceRow, Step, Timeline

_GOLDEN = 0x9E37_79B9_7F4A_7C15
Edges = tuple[int, int, int]
NO_EDGES: Edges = (0, 0, 0)


class LogRow(NamedTuple):
    """One record of a log: its arrival, its event time, its stream and its key."""

    arrival_ms: int
    timestamp_ms: int
    stream: str
    key: int


def together(left: Edges, right: Edges) -> Edges:
    """Return the count, XOR and wrapping sum of both sets of edges."""
    return left[0] + right[0], left[1] ^ right[1], wrap_int64(left[2] + right[2])


@dataclass
class Replayed:
    """The results of a replay: outputs by key (keys have no order among each other), fates, tallies, the last state."""

    outputs: dict[object, list[Output]] = field(default_factory=dict)
    fates: dict[int, Fate] = field(default_factory=dict)
    tallies: dict[str, Edges] = field(default_factory=dict)
    state: list[str] = field(default_factory=list)
    sources: list[SourceRow] = field(default_factory=list)
    open_edges: Edges = NO_EDGES

    def take(self, operator: Operator) -> None:
        """Collect an operator's outputs and tallies. A pane's position is removed: it is a coordinate, not content."""
        for output in operator.drain():
            key = output.record.key if isinstance(output, Late | Unassigned) else output.key
            content = output._replace(position=(0, 0)) if isinstance(output, Pane) else output
            self.outputs.setdefault(key, []).append(content)
        for term, tally in operator.take_tallies().items():
            self.tallies[term] = together(self.tallies.get(term, NO_EDGES), tally)


def replay(spec: StormSpec, log: Sequence[LogRow], *, cuts_ms: Iterable[int] = (), buckets: int = 1) -> Replayed:
    """Replay a log in slices that end at `cuts_ms` and 100 ms after its end, with JSON for the state between them."""
    result = Replayed()
    end_ms = max((row.arrival_ms for row in log), default=0) + 100
    before: dict[int, Snapshot] = {}
    start, clock_ms = 0, MIN_TIME_MS
    for slice_end_ms in [*sorted(cut_ms for cut_ms in set(cuts_ms) if cut_ms < end_ms), end_ms]:
        stop = start + sum(row.arrival_ms < slice_end_ms for row in log[start:])
        timeline = _timeline(spec, list(enumerate(log))[start:stop], begins_ms=clock_ms, sources=result.sources)
        timeline.end_slice(slice_end_ms)
        result.sources = [row._replace(details=json.loads(json.dumps(row.details))) for row in timeline.snapshot()]
        for bucket in range(buckets):
            rows = [
                (sequence, log[sequence]) for sequence in range(start, stop) if log[sequence].key % buckets == bucket
            ]
            operator = _operator(spec, before.get(bucket), timeline.first_arrival_ms)
            _walk(operator, rows, steps=timeline.steps, result=result)
            before[bucket] = operator.snapshot()
        start, clock_ms = stop, slice_end_ms
    states = [row for snapshot in before.values() for row in snapshot.windows]
    result.state = sorted(repr((row.key, row)) for row in states)
    for row in states:
        result.open_edges = together(result.open_edges, (row.edge_count, row.edge_xor, row.edge_sum))
    return result


def _timeline(
    spec: StormSpec, rows: Iterable[tuple[int, LogRow]], *, begins_ms: int, sources: Sequence[SourceRow]
) -> Timeline:
    timeline = Timeline(spec.driver(), clock_ms=begins_ms)
    if sources:
        timeline.restore(sources)
    for sequence, row in rows:
        timeline.arrive(Arrival(sequence, row.timestamp_ms, row.arrival_ms, row.stream))
    return timeline


def _operator(spec: StormSpec, before: Snapshot | None, first_arrival_ms: int | None) -> Operator:
    operator: Operator = spec.build()
    if before is not None:
        for row in before.windows:
            row.trigger_state = json.loads(json.dumps(row.trigger_state))
        operator.restore(before)
    if first_arrival_ms is not None:
        operator.begin(first_arrival_ms)
    return operator


def _walk(operator: Operator, rows: Iterable[tuple[int, LogRow]], *, steps: Sequence[Step], result: Replayed) -> None:
    """Process one bucket's records and the steps between them; skip the steps that the operator does not wait for."""
    taken = 0
    for sequence, row in rows:
        before = sum(step.sequence < sequence for step in steps)
        _pass(operator, steps[taken:before])
        taken = before
        identity = wrap_int64((sequence + 1) * _GOLDEN)
        result.fates[sequence] = operator.process(
            Record((row.key,), row.timestamp_ms, sequence, (0, sequence), identity)
        )
    _pass(operator, steps[taken:])
    result.take(operator)


def _pass(operator: Operator, steps: Sequence[Step]) -> None:
    for step in steps:
        position = (0, step.sequence)
        operator.advance_processing_time(step.due_ms - 1, position)
        operator.advance_processing_time(max(step.clock_ms, step.due_ms - 1), position, inclusive=False)
        timer_ms: Any = operator.next_event_timer_ms()
        if step is steps[-1] or (timer_ms is not None and timer_ms <= step.watermark_ms):
            operator.advance_watermark(step.watermark_ms, position)
