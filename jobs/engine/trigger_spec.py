"""Builds windowlib's triggers and evictors from the `trigger` and `evictor` parts of a pipeline file."""

from collections.abc import Callable, Mapping
from typing import Final

from jobs.engine.build import Build
from jobs.engine.placed_errors import PlacedSpecError
from jobs.pipeline.models.triggers import TriggerGrammar
from jobs.pipeline.models.windows import EvictorGrammar
from windowlib.beam import combinators as beam
from windowlib.beam.composite import Composite
from windowlib.triggers.flink import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    CountReached,
    DeltaExceeded,
    EndOfStream,
    EventTime,
    Never,
    ProcessingTime,
)
from windowlib.triggers.protocol import Trigger
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.windows.evictors import Evictor, KeepClose, KeepCount, KeepRecent
from windowlib.windows.record_readers import EvictorOnColumns, TriggerOnColumns

_Builder = Callable[[TriggerGrammar, Build, str], Trigger]
_CompositeBuilder = Callable[[TriggerGrammar, Build, str], Composite]


def trigger(grammar: TriggerGrammar, build: Build, path: str) -> Trigger:
    """Build the trigger that a part of the file describes; `path` is its key.

    Raises SpecError: a part does not fit, or a user's function has the wrong kind.
    """
    builder = _FLINK.get(grammar.kind)
    return builder(grammar, build, path) if builder is not None else composite(grammar, build, path)


def composite(grammar: TriggerGrammar, build: Build, path: str) -> Composite:
    """Build a composite trigger. All parts of a composite trigger are composite triggers, too.

    Raises SpecError: the kind is not a composite trigger.
    """
    builder = _COMPOSITE.get(grammar.kind)
    if builder is not None:
        return builder(grammar, build, path)
    field = TriggerGrammar.model_fields[grammar.kind]
    allowed = [TriggerGrammar.model_fields[name].alias or name for name in _COMPOSITE]
    raise PlacedSpecError.at(
        build.pipeline.source,
        path,
        f"{field.alias or grammar.kind} cannot be a part of a composite trigger; allowed: {', '.join(allowed)}",
    )


def _continuous(grammar: TriggerGrammar, build: Build, path: str) -> Trigger:  # noqa: ARG001
    assert grammar.continuous is not None, "its kind requires it"
    is_event_time = grammar.continuous.time == "event"
    every_ms = grammar.continuous.every_ms
    return ContinuousEventTime(every_ms) if is_event_time else ContinuousProcessingTime(every_ms)


def _delta(grammar: TriggerGrammar, build: Build, path: str) -> Trigger:  # noqa: ARG001
    delta = grammar.delta
    assert delta is not None, "its kind requires it"
    return DeltaExceeded(delta.threshold, measure=build.layout.measure(delta.column), is_absolute=delta.absolute)


def _timeout(grammar: TriggerGrammar, build: Build, path: str) -> Trigger:
    timeout = grammar.timeout
    assert timeout is not None, "its kind requires it"
    if any(part.timeout for part in timeout.trigger.whole()) and build.pipeline.semantics != "flink":
        message = "a time-out inside a time-out waits for the same instant as the outer one; write one of the two"
        raise PlacedSpecError.at(build.pipeline.source, f"{path}.timeout.trigger", message)
    inner = trigger(timeout.trigger, build, f"{path}.timeout.trigger")
    return ProcessingTimeout(inner=inner, timeout_ms=timeout.after_ms, resets=timeout.restart, clears=timeout.clear)


def _purging(grammar: TriggerGrammar, build: Build, path: str) -> Trigger:
    assert grammar.purging is not None, "its kind requires it"
    return Purging(trigger(grammar.purging, build, f"{path}.purging"))


def _users(grammar: TriggerGrammar, build: Build, path: str) -> Trigger:
    assert grammar.function is not None, "its kind requires it"
    inner = build.instance(grammar.function, Trigger, f"{path}.function")
    return TriggerOnColumns(inner=inner, columns=build.layout.shown_to(grammar.function), missing=build.missing)


_FLINK: Final[Mapping[str, _Builder]] = {
    "event_time": lambda *_: EventTime(),
    "processing_time": lambda *_: ProcessingTime(),
    "continuous": _continuous,
    "count": lambda grammar, *_: CountReached(grammar.count or 0),
    "delta": _delta,
    "purging": _purging,
    "timeout": _timeout,
    "never": lambda *_: Never(),
    "end_of_stream": lambda *_: EndOfStream(),
    "function": _users,
}


def _after_watermark(grammar: TriggerGrammar, build: Build, path: str) -> Composite:
    parts = grammar.after_watermark
    assert parts is not None, "its kind requires it"
    early = None if parts.early is None else composite(parts.early, build, f"{path}.after_watermark.early")
    late = None if parts.late is None else composite(parts.late, build, f"{path}.after_watermark.late")
    return beam.AfterWatermark(early=early, late=late)


def _several(grammar: TriggerGrammar, build: Build, path: str) -> list[Composite]:
    key = TriggerGrammar.model_fields[grammar.kind].alias
    return [composite(part, build, f"{path}.{key}[{index}]") for index, part in enumerate(grammar.parts())]


def _repeatedly(grammar: TriggerGrammar, build: Build, path: str) -> Composite:
    assert grammar.repeatedly is not None, "its kind requires it"
    return beam.Repeatedly(composite(grammar.repeatedly, build, f"{path}.repeatedly"))


def _or_finally(grammar: TriggerGrammar, build: Build, path: str) -> Composite:
    parts = grammar.or_finally
    assert parts is not None, "its kind requires it"
    main = composite(parts.trigger, build, f"{path}.or_finally.trigger")
    return beam.OrFinally(main, composite(parts.last, build, f"{path}.or_finally.finally"))


_COMPOSITE: Final[Mapping[str, _CompositeBuilder]] = {
    "after_watermark": _after_watermark,
    "any_of": lambda *where: beam.AfterAny(*_several(*where)),
    "all_of": lambda *where: beam.AfterAll(*_several(*where)),
    "each_of": lambda *where: beam.AfterEach(*_several(*where)),
    "repeatedly": _repeatedly,
    "or_finally": _or_finally,
    "after_count": lambda grammar, *_: beam.AfterCount(grammar.after_count or 0),
    "after_processing_time_ms": lambda grammar, *_: beam.AfterProcessingTime(grammar.after_processing_time_ms or 0),
    "always": lambda *_: beam.Always(),
    "default": lambda *_: beam.Default(),
    "never": lambda *_: beam.Never(),
}


def evictor(grammar: EvictorGrammar, build: Build, path: str) -> Evictor:
    """Build the evictor that a part of the file describes; `path` is its key.

    Raises SpecError: the user's object is not an Evictor.
    """
    if grammar.count is not None:
        return KeepCount(count=grammar.count.keep, evicts_after=grammar.count.after)
    if grammar.time is not None:
        return KeepRecent(size_ms=grammar.time.keep_ms, evicts_after=grammar.time.after)
    if grammar.delta is not None:
        delta = grammar.delta
        return KeepClose(
            threshold=delta.threshold,
            evicts_after=delta.after,
            measure=build.layout.measure(delta.column),
            is_absolute=delta.absolute,
        )
    assert grammar.function is not None, "the grammar requires one of the four"
    inner = build.instance(grammar.function, Evictor, f"{path}.function")
    return EvictorOnColumns(inner=inner, columns=build.layout.shown_to(grammar.function), missing=build.missing)
