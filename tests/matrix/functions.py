"""User functions over the log of sensors, one of each kind."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windowlib.bounds import Window
from windowlib.functions.window_functions import Place, ProcessContext, ProcessFunction, Reduce, UserAggregate, fold
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction
from windowlib.records.records import Record, Stored
from windowlib.triggers.protocol import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.evictors import Evictor, EvictorContext

MINUTE_MS = 60_000
Columns = Mapping[str, Any]


def gap_of_level(columns: Columns) -> int:
    """A high level ends a session sooner."""
    return MINUTE_MS if (columns["level"] or 0) > 10 else 4 * MINUTE_MS


def watermark_of_feed(timestamp_ms: int, columns: Columns) -> int | None:
    """Return the watermark, which the records of one feed carry."""
    return timestamp_ms - 5 * MINUTE_MS if columns["feed"] == "one" else None


def whole_minutes(greatest_ms: int) -> int:
    """Event time moves on by whole minutes."""
    return greatest_ms // MINUTE_MS * MINUTE_MS - 1


@dataclass(frozen=True)
class OnHighLevel(Trigger):
    """Fires at a record with a level of 15 and more, and at the window's end."""

    can_merge = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_event_timer(window.last_ms)
        return FIRE if (record.value["level"] or 0) >= 15 else CONTINUE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE if at_ms == window.last_ms else CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        ctx.register_event_timer(window.last_ms)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_timer(window.last_ms)


class KeepLow(Evictor):
    """The function sees records with a level below 15."""

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return [record for record in records if (record.value["level"] or 0) < 15]


def sizes(key: Any, window: Window, contents: Sequence[Columns]) -> Iterable[Columns]:  # noqa: ANN401, ARG001
    """A plain window function: one row for the whole window, one more where it holds three records."""
    levels = [one["level"] for one in contents if one["level"] is not None]
    rows = [{"records": len(contents), "highest": max(levels, default=None)}]
    return rows if len(contents) != 3 else [*rows, {"records": -3, "highest": None}]


def _higher(one: Columns, other: Columns) -> Columns:
    return max(one, other, key=lambda columns: (columns["level"] or 0, columns["note"] or ""))


highest_so_far = Reduce(function=_higher)
"""Records and result have the same columns."""

mean_level = UserAggregate(
    create_accumulator=lambda: {"records": 0, "sum": 0},
    add_value=lambda total, one: {"records": total["records"] + 1, "sum": total["sum"] + (one["level"] or 0)},
    get_result=lambda total: total["sum"] / total["records"] if total["records"] else None,
    merge_accumulators=lambda one, other: {name: one[name] + other[name] for name in one},
)
notes_in_order = fold("", lambda text, one: text + (one["note"] or "-"))


class Shares(ProcessFunction):
    """After aggregates: the result beside a count of the key's firings; every third firing goes to a side output."""

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        """Count."""
        [results] = contents
        firings, seen = ctx.state.value("firings"), ctx.state.map("seen")
        firings.set((firings.get() or 0) + 1)
        seen.put(str(results["records"]), firings.get())
        if firings.get() % 3 == 0:
            ctx.output("thirds", {"firing": firings.get(), "records": results["records"]})
            return []
        return [(results["records"], firings.get())]


class CountsPerWindow(ProcessFunction):
    """Keeps how often each window fired in the state of the window."""

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        """Count."""
        fired = ctx.window_state.value("fired")
        fired.set((fired.get() or 0) + 1)
        return [(len(contents), fired.get())]


class Rests(KeyedProcessFunction):
    """Without windows: how long each key rested, on both clocks, and a side output."""

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        last, levels = ctx.state.value("last_ms"), ctx.state.list("levels")
        rested = None if last.get() is None else (record.timestamp_ms or 0) - last.get()
        last.set(max(record.timestamp_ms or 0, last.get() or 0))
        levels.append(record.value["level"])
        ctx.register_event_timer((record.timestamp_ms or 0) + 6 * MINUTE_MS)
        ctx.register_processing_timer((ctx.processing_time_ms // (20 * MINUTE_MS) + 1) * 20 * MINUTE_MS)
        return [(rested, record.value["level"])]

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:
        levels = ctx.state.list("levels")
        if ctx.domain == "processing":
            ctx.output("reports", {"due_ms": at_ms, "levels": [one for one in levels.get() if one is not None]})
            levels.clear()
            return []
        return [{"rested_ms": -1, "level": None}] if at_ms % 2 else []
