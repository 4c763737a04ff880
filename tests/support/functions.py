"""Sample users' functions of every kind, which pipeline files in tests and docs/reference/pipelines.md name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windowlib.bounds import Window
from windowlib.functions.window_functions import Place, ProcessContext, ProcessFunction, Reduce, UserAggregate, fold
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction
from windowlib.records.records import Record, Stored
from windowlib.triggers.protocol import CONTINUE, FIRE, FIRE_AND_PURGE, PURGE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.evictors import Evictor, EvictorContext

HOUR_MS = 3_600_000


def gap_of_distance(columns: Mapping[str, Any]) -> int:
    """Return a longer gap after a long flight."""
    return HOUR_MS if (columns["distance"] or 0) < 1_000 else 3 * HOUR_MS


def watermark_of_marker(timestamp_ms: int, columns: Mapping[str, Any]) -> int | None:
    """Return a watermark for every flight of the carrier UA."""
    return timestamp_ms - HOUR_MS if columns["carrier"] == "UA" else None


def half_of_it(timestamp_ms: int, columns: Mapping[str, Any]) -> float:  # noqa: ARG001
    """Return a float, which is an error."""
    return timestamp_ms / 2


def whole_hours(greatest_ms: int) -> int:
    """Return a watermark that advances by whole hours."""
    return greatest_ms // HOUR_MS * HOUR_MS - 1


@dataclass(frozen=True)
class FireOnCarrier(Trigger):
    """Fires at every flight of one carrier."""

    carrier: str = "UA"
    can_merge = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE if record.value["carrier"] == self.carrier else CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:
        """Merge nothing: the trigger has no state."""


on_delta = FireOnCarrier("DL")


class KeepLongFlights(Evictor):
    """Keeps only the flights of 500 miles and more."""

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return [record for record in records if (record.value["distance"] or 0) >= 500]


def longest(key: Any, window: Window, contents: Sequence[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:  # noqa: ANN401, ARG001
    """Return the longest flight of a window: a plain window function."""
    flight = max(contents, key=lambda row: (row["distance"] or 0, row["flight_id"]))
    return [{"flight": flight["flight_id"], "miles": flight["distance"]}]


def _longer(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    return max(one, other, key=lambda flight: (flight["distance"] or 0, flight["flight_id"]))


longest_so_far = Reduce(function=_longer)
"""The longest flight as an incremental reduce: records and result have the same columns."""


def _add_miles(total: Mapping[str, Any], flight: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"flights": total["flights"] + 1, "miles": total["miles"] + (flight["distance"] or 0.0)}


mean_distance = UserAggregate(
    create_accumulator=lambda: {"flights": 0, "miles": 0.0},
    add_value=_add_miles,
    get_result=lambda total: total["miles"] / total["flights"],
    merge_accumulators=lambda one, other: {name: one[name] + other[name] for name in one},
)
carriers_in_order = fold("", lambda text, flight: text + flight["carrier"])


def _counted(result: Callable[[int], Any]) -> UserAggregate:
    """Return an aggregate with a result of the number of records."""
    return UserAggregate(
        create_accumulator=lambda: 0,
        add_value=lambda count, _: count + 1,
        get_result=result,
        merge_accumulators=lambda one, other: one + other,
    )


counted_number = _counted(lambda count: {"r": count})
counted_list = _counted(lambda count: {"r": [count]})
counted_map = _counted(lambda count: {"r": {"a": count}})
counted_structs = _counted(lambda count: {"r": [{"a": count}, (count,)][count // 4 % 2]})
"""A struct as a dict, and later as a tuple."""


class Share(ProcessFunction):
    """After aggregates: the mean, the number of the key's windows so far, and a side output for empty windows."""

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        [results] = contents
        windows = ctx.state.value("windows")
        windows.set((windows.get() or 0) + 1)
        if results["delay"] is None:
            ctx.output("without_delay", {"key_text": str(place.key)})
            return []
        return [(results["delay"] / results["flights"], windows.get())]


class Silence(KeyedProcessFunction):
    """Without windows: emits a row when a key was silent for six hours of event time."""

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        waiting = ctx.state.value("waiting")
        if waiting.get() is not None:
            ctx.delete_event_timer(waiting.get())
        at_ms = (record.timestamp_ms or 0) + 6 * HOUR_MS
        waiting.set(at_ms)
        ctx.register_event_timer(at_ms)
        return []

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:
        ctx.state.value("waiting").clear()
        return [{"silent_since_ms": at_ms - 6 * HOUR_MS}]


class KeepsUndeclaredState(Share):
    """Declares state in the class that the pipeline file does not declare, which is an error."""

    from windowlib.keyed.state import StateSpec

    state = (StateSpec(name="secret", kind="list"),)


class SetsTimers(KeyedProcessFunction):
    """Without windows: sets a timer of both kinds of time for each record, and emits their instants."""

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        ctx.register_event_timer((record.timestamp_ms or 0) + HOUR_MS)
        ctx.register_processing_timer(ctx.processing_time_ms + HOUR_MS)
        return []

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
        return [{"amount": at_ms}]


class FireOnClock(Trigger):
    """Fires an hour of the clock after each record."""

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        at_ms = ctx.processing_time_ms + HOUR_MS
        ctx.register_processing_timer(at_ms)
        return CONTINUE

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE


class NeedsAnArgument(Trigger):
    """Cannot be called without arguments, which is an error."""

    def __init__(self, count: int) -> None:
        self.count = count


a_number = 5


class SaysEverything(Trigger):
    """Returns every TriggerResult, by the record's amount. Has no state to merge."""

    can_merge = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return (CONTINUE, FIRE, FIRE_AND_PURGE, PURGE, FIRE)[record.value["amount"] % 5]

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:
        """Merge nothing: the trigger has no state."""


class TellsAside(ProcessFunction):
    """Counts the records, and writes the first amount of each window to a side output."""

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        ctx.output("aside", {"amount": contents[0]["amount"]})
        return [{"records": len(contents)}]


class Waits(KeyedProcessFunction):
    """Without windows: stores every amount, and sets a timer of both kinds of time."""

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        ctx.state.list("seen").append(record.value["amount"])
        ctx.register_event_timer((record.timestamp_ms or 0) + HOUR_MS)
        ctx.register_processing_timer(ctx.processing_time_ms + 40 * HOUR_MS)
        return [{"amount": record.value["amount"]}]

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
        return [{"amount": len(ctx.state.list("seen").get())}]


newest_of_two = Reduce(function=lambda left, right: right if right["seen_ms"] >= left["seen_ms"] else left)
"""The record with the greatest `seen_ms`, returned with the columns that the function got."""


def names_of_columns(_key: object, _window: Window, records: Sequence[Mapping[str, Any]]) -> Iterable[Any]:
    """Yield the newest record; raise if the function got columns that the file does not list."""
    for record in records:
        if set(record) != {"gap_ms", "seen_ms"}:
            raise ValueError(f"got the columns {sorted(record)}")
    yield max(records, key=lambda record: record["seen_ms"])
