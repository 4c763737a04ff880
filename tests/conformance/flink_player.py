"""Player of recorded scripts of Apache Flink's operators: it runs windowlib's public classes in the profile flink."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from windowlib.bounds import Window, wrap_int64
from windowlib.errors import SpecError
from windowlib.functions.window_functions import Apply, Reduce, UserAggregate, Whole, WindowFunction
from windowlib.keyed import key_groups
from windowlib.keyed.timer_owners import DueTimer
from windowlib.keyed.timers import EVENT, TimerQueue, TimerRow, TimerService
from windowlib.profiles import FLINK, EngineFault
from windowlib.records.records import LATE_IN_GAP, PAST_CLEANUP, Late, Output, Pane, Record, Value
from windowlib.triggers.flink import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    CountReached,
    DeltaExceeded,
    EndOfStream,
    EventTime,
    ProcessingTime,
)
from windowlib.triggers.protocol import Trigger
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.watermarks.generators import Bounded, EmitPeriodically, WatermarkSource
from windowlib.watermarks.valve import Advanced, Valve, WatermarkEvent
from windowlib.windows.assigners import Assigner, DynamicSession, Global, Session, Sliding, Stagger, Tumbling
from windowlib.windows.evictors import Evictor, KeepClose, KeepCount, KeepRecent
from windowlib.windows.spec import WindowSpec, default_trigger
from windowlib.windows.window_operator import WindowOperator

Script = Mapping[str, Any]
Answer = dict[str, Any]


def assigner_of(script: Script) -> Assigner:
    """Return the assigner that a script's `assigner` names."""
    kind, _, clock = script["type"].rpartition("_")
    is_event_time = clock == "event"
    match kind:
        case "tumbling":
            return Tumbling(
                size_ms=script["size"],
                offset_ms=script.get("offset", 0),
                is_event_time=is_event_time,
                stagger=Stagger[script.get("stagger", "ALIGNED")],
            )
        case "sliding":
            return Sliding(
                size_ms=script["size"],
                slide_ms=script["slide"],
                offset_ms=script.get("offset", 0),
                is_event_time=is_event_time,
            )
        case "session":
            return Session(gap_ms=script["gap"], is_event_time=is_event_time)
        case "dyn_session":
            return DynamicSession(is_event_time=is_event_time)
        case _:
            return Global()


def trigger_of(script: Script) -> Trigger:
    """Return the trigger that a script's `trigger` names."""
    build = _TRIGGERS.get(script["type"])
    if build is None:
        raise SpecError(f"script: no trigger is called {script['type']!r}; there are {', '.join(_TRIGGERS)}")
    return build(script)


_TRIGGERS: Final[Mapping[str, Callable[[Script], Trigger]]] = {
    "event_time": lambda _: EventTime(),
    "proc_time": lambda _: ProcessingTime(),
    "cont_event": lambda script: ContinuousEventTime(script["interval"]),
    "cont_proc": lambda script: ContinuousProcessingTime(script["interval"]),
    "count": lambda script: CountReached(script["n"]),
    "delta": lambda script: DeltaExceeded(script["threshold"]),
    "purging": lambda script: Purging(trigger_of(script["inner"])),
    "timeout": lambda script: ProcessingTimeout(
        inner=trigger_of(script["inner"]),
        timeout_ms=script["timeout"],
        resets=script.get("reset", False),
        clears=script.get("clear", True),
    ),
}


def evictor_of(script: Script) -> Evictor:
    """Return the evictor that a script's `evictor` names."""
    is_after = script.get("after", False)
    match script["type"]:
        case "count":
            return KeepCount(count=script["n"], evicts_after=is_after)
        case "time":
            return KeepRecent(size_ms=script["size"], evicts_after=is_after)
        case "delta":
            return KeepClose(threshold=script["threshold"], evicts_after=is_after)
        case other:
            raise SpecError(f"script: no evictor is called {other!r}")


def _mean(accumulator: tuple[int, int]) -> float:
    total, count = accumulator
    return total / count if count else float("nan")


def function_of(name: str) -> WindowFunction:
    """Return the window function that a script's `function` names."""
    match name:
        case "list":
            return Apply(lambda _key, _window, values: [list(values)])
        case "reduce":
            return Whole(Reduce(function=lambda left, right: wrap_int64(left + right)))
        case "avg":
            return Whole(
                UserAggregate(
                    create_accumulator=lambda: (0, 0),
                    add_value=lambda accumulator, value: (accumulator[0] + value, accumulator[1] + 1),
                    merge_accumulators=lambda left, right: (left[0] + right[0], left[1] + right[1]),
                    get_result=_mean,
                )
            )
        case other:
            raise SpecError(f"script: no function is called {other!r}")


def spec_of(script: Script) -> WindowSpec:
    """Return the WindowSpec of a window script, in the flink profile."""
    trigger = trigger_of(script["trigger"]) if script.get("trigger") else None
    if trigger is None and script["assigner"]["type"] == "global_eos":
        trigger = EndOfStream()
    return WindowSpec(
        assigner=assigner_of(script["assigner"]),
        trigger=trigger,
        evictor=evictor_of(script["evictor"]) if script.get("evictor") else None,
        allowed_lateness_ms=script.get("lateness", 0),
        function=function_of(script.get("function", "list")),
        profile=FLINK,
    )


def _exception_at_build(script: Script) -> str:
    """Return the exception that Flink throws for a script that WindowSpec refuses."""
    try:
        assigner = assigner_of(script["assigner"])
        trigger = trigger_of(script["trigger"]) if script.get("trigger") else default_trigger(assigner)
    except SpecError:
        return "IllegalArgumentException"
    cannot = assigner.is_merging and not trigger.can_merge
    return "UnsupportedOperationException" if cannot else "IllegalArgumentException"


class WindowPlayer:
    """Plays one window script."""

    def __init__(self, script: Script) -> None:
        self._spec = spec_of(script)
        self._has_late_output = bool(script.get("late_output", False))
        self._operator = self._spec.build()
        self._operator.advance_processing_time(script.get("proc_start", 0))
        self._rank = 0
        self.out: list[list[Any]] = []
        self.dropped = 0

    def play(self, event: Sequence[Any]) -> None:
        """Play one event and collect the outputs."""
        match event:
            case ["e", key, value, timestamp_ms, *gap]:
                self._rank += 1
                self._operator.process(
                    Record(key, timestamp_ms, value, (0, self._rank), self._rank, gap[0] if gap else None)
                )
                self._collect()
            case ["w", watermark_ms]:
                self._operator.advance_watermark(watermark_ms)
                self._collect()
                self.out.append(["w", watermark_ms])
            case ["p", processing_time_ms]:
                self._operator.advance_processing_time(processing_time_ms)
                self._collect()
            case ["snap"]:
                self._operator = self._resumed()
            case _:
                raise SpecError(f"script: unknown event {event!r}")

    def _resumed(self) -> WindowOperator:
        fresh = self._spec.build()
        fresh.restore(self._operator.snapshot(), after_failure=True)
        return fresh

    def _collect(self) -> None:
        for output in self._operator.drain():
            self._collect_one(output)

    def _collect_one(self, output: Output) -> None:
        match output:
            case Pane(kind="result"):
                bounds = _bounds(output.window)
                self.out.append(["o", output.key, *bounds, _payload(output.values), output.timestamp_ms])
            case Late(missed_all=True) if output.reason in {PAST_CLEANUP, LATE_IN_GAP}:
                record = output.record
                if self._has_late_output:
                    self.out.append(["late", record.key, record.value, record.timestamp_ms])
                else:
                    self.dropped += 1
            case _:
                pass  # Flink does not report gaps, partly late records and superseded sessions

    def answer(self) -> Answer:
        """Return the answer for the whole script."""
        event_timers, processing_timers = _split(self._operator.snapshot().timers)
        return {
            "out": self.out,
            "dropped": self.dropped,
            "event_timers": [[*_bounds(timer.namespace), timer.at_ms] for timer in event_timers],
            "proc_timers": [[*_bounds(timer.namespace), timer.at_ms] for timer in processing_timers],
        }


def _bounds(window: Window) -> tuple[int | None, int | None]:
    return (window.start_ms, window.end_ms)


def _payload(values: Value) -> Value:
    return "NaN" if isinstance(values, float) and values != values else values  # noqa: PLR0124


def _split(rows: Iterable[TimerRow]) -> tuple[list[TimerRow], list[TimerRow]]:
    rows = list(rows)
    return [row for row in rows if row.domain == EVENT], [row for row in rows if row.domain != EVENT]


def play_window(script: Script) -> Answer:
    """Play a script of mode `window`."""
    try:
        player = WindowPlayer(script)
    except SpecError:
        return {"out": [["x", _exception_at_build(script)]]}
    try:
        for event in script["events"]:
            player.play(event)
    except EngineFault as fault:
        return {"out": [*player.out, ["x", fault.exception]]}
    except SpecError:
        return {"out": [*player.out, ["x", "IllegalArgumentException"]]}
    return player.answer()


class TimerPlayer:
    """Plays one timer script."""

    def __init__(self, start_ms: int) -> None:
        self._service = TimerService()
        self._service.processing_time_ms = start_ms
        self.out: list[list[Any]] = []

    def play(self, event: Sequence[Any]) -> None:
        """Play one event and collect the timers that fire."""
        service = self._service
        match event:
            case ["reg_e" | "reg_p" as kind, key, namespace, at_ms]:
                self._queue(kind).register(at_ms, key, namespace)
            case ["del_e" | "del_p" as kind, key, namespace, at_ms]:
                self._queue(kind).delete(at_ms, key, namespace)
            case ["w", watermark_ms]:
                self._fire("fire_e", service.advance_watermark(watermark_ms))
            case ["p", processing_time_ms]:
                self._fire("fire_p", service.advance_processing_time(processing_time_ms))
            case ["snap"]:
                self._service = TimerService()
                self._service.restore(service.snapshot())
            case _:
                raise SpecError(f"script: unknown event {event!r}")

    def _queue(self, kind: str) -> TimerQueue:
        return self._service.event_timers if kind.endswith("_e") else self._service.processing_timers

    def _fire(self, kind: str, due: Iterable[tuple[int, DueTimer]]) -> None:
        self.out += [[kind, timer.key, timer.namespace, at_ms] for at_ms, timer in due]

    def answer(self) -> Answer:
        """Return the answer for the whole script."""
        event_timers, processing_timers = _split(self._service.snapshot())
        return {
            "out": self.out,
            "event_timers": [[row.key, row.namespace, row.at_ms] for row in event_timers],
            "proc_timers": [[row.key, row.namespace, row.at_ms] for row in processing_timers],
        }


def play_timers(script: Script) -> Answer:
    """Play a script of mode `timers`."""
    player = TimerPlayer(script.get("proc_start", 0))
    for event in script["events"]:
        player.play(event)
    return player.answer()


def _status(event: WatermarkEvent, *at_ms: int) -> list[Any]:
    if isinstance(event, Advanced):
        return ["w", event.watermark_ms, *at_ms]
    return ["status", "IDLE" if event.is_idle else "ACTIVE", *at_ms]


def play_watermarks(script: Script) -> Answer:
    """Play a script of mode `watermarks`."""
    source = WatermarkSource(
        Bounded(out_of_orderness_ms=script.get("delay", 0)),
        EmitPeriodically(every_ms=script["interval"]),
        idle_timeout_ms=script.get("idle"),
    )
    out: list[list[Any]] = []
    for event in script["events"]:
        match event:
            case ["p", clock_ms]:
                out += [_status(emitted, at_ms) for at_ms, emitted in source.advance_clock(clock_ms)]
                continue
            case ["e", timestamp_ms]:
                events = source.on_record(timestamp_ms)
            case ["w", watermark_ms]:
                events = source.on_upstream(watermark_ms)
            case ["finish"]:
                events = source.finish()
            case _:
                raise SpecError(f"script: unknown event {event!r}")
        out += [_status(emitted, source.state.clock_ms) for emitted in events]
    return {"out": out}


def play_valve(script: Script) -> Answer:
    """Play a script of mode `valve`."""
    valve = Valve(script["channels"])
    out: list[list[Any]] = []
    for event in script["events"]:
        match event:
            case ["w", channel, watermark_ms]:
                events = valve.input_watermark(channel, watermark_ms)
            case ["idle" | "active" as status, channel]:
                events = valve.input_status(channel, is_idle=status == "idle")
            case _:
                raise SpecError(f"script: unknown event {event!r}")
        out += [_status(emitted) for emitted in events]
    return {"out": out}


def play_key_groups(script: Script) -> Answer:
    """Play a script of mode `key_groups`."""
    parallelism = script["parallelism"]
    default = key_groups.default_max_parallelism(parallelism)
    limit = script.get("max_parallelism", default)
    out = []
    for key in script["keys"]:
        group = key_groups.key_group(key, limit)
        out.append([key, key_groups.stable_hash(key), group, key_groups.subtask_of(group, parallelism, limit)])
    ranges = [key_groups.key_group_range(subtask, parallelism, limit) for subtask in range(parallelism)]
    return {
        "out": out,
        "ranges": [[groups.start, groups.stop - 1] for groups in ranges],
        "default_max_parallelism": default,
    }


PLAYERS: Final = {
    "window": play_window,
    "timers": play_timers,
    "watermarks": play_watermarks,
    "valve": play_valve,
    "key_groups": play_key_groups,
}


def play(script: Script) -> Answer:
    """Play one script and return its answer.

    Raises:
        SpecError: the script has an unknown mode or event.
    """
    mode = script.get("mode", "window")
    if mode not in PLAYERS:
        raise SpecError(f"script: mode must be one of {', '.join(PLAYERS)}, got {mode!r}")
    return PLAYERS[mode](script)
