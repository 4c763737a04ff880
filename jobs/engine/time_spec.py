"""Builds the driver of time of a replay from the `watermark` part of a pipeline file."""

from jobs.engine.build import Build
from jobs.engine.engine import TimeSpec
from jobs.pipeline.models.watermarks import WatermarkGrammar
from windowlib.watermarks.generators import Bounded, EmitEveryRecord, EmitPeriodically, Generator, Periodic, Punctuated
from windowlib.watermarks.ingestion_driver import IngestionSpec
from windowlib.watermarks.sources_driver import DriverEmission, EmitWithCommits, SourcesSpec
from windowlib.windows.record_readers import WatermarkOfColumn, WatermarkOfFunction, no_watermark

_NO_WATERMARK = SourcesSpec(generator=Punctuated(watermark_of=no_watermark))


def time_spec(grammar: WatermarkGrammar | None, build: Build) -> TimeSpec:
    """Return how a replay computes the pipeline's watermark. Without a `watermark` part, event time does not advance.

    Raises SpecError: a name in the file is not a function; the message names the file and the key.
    """
    if grammar is None:
        return TimeSpec(driver=_NO_WATERMARK.build, needs_every_record=False)
    if grammar.kind == "ingestion":
        assert grammar.every_ms is not None, "the grammar requires it"
        return TimeSpec(driver=IngestionSpec(every_ms=grammar.every_ms).build, needs_every_record=False)
    sources = grammar.sources
    spec = SourcesSpec(
        generator=_generator(grammar, build),
        emission=_emission(grammar),
        idle_timeout_ms=None if sources is None else sources.idle_timeout_ms,
        expected=() if sources is None else (sources.expected or ()),
    )
    return TimeSpec(
        driver=spec.build,
        bound_ms=spec.bound_ms if sources is None else None,
        columns=_columns(grammar, build),
        source=None if sources is None else sources.column,
        needs_commits=isinstance(spec.emission, EmitWithCommits),
        needs_every_record=spec.needs_every_record,
    )


def _generator(grammar: WatermarkGrammar, build: Build) -> Generator:
    match grammar.kind:
        case "bounded" | "ascending":
            return Bounded(out_of_orderness_ms=grammar.out_of_orderness_ms or 0)
        case "legacy_bounded":
            return Bounded(out_of_orderness_ms=grammar.out_of_orderness_ms or 0, is_legacy=True)
        case "column":
            assert grammar.column is not None, "the grammar requires it"
            # Spark passes a timestamp as microseconds. A number has the unit of the file, by default ms.
            is_instant = build.columns[grammar.column].startswith("timestamp")
            unit = "us" if is_instant else (grammar.unit.value if grammar.unit is not None else "ms")
            return Punctuated(watermark_of=WatermarkOfColumn(column=grammar.column, unit=unit))
        case _:
            assert grammar.function is not None, "the grammar requires it"
            parameters = "timestamp_ms, columns" if grammar.kind == "punctuated" else "max_timestamp_ms"
            function = build.function(grammar.function, "watermark.function", parameters)
            checked = WatermarkOfFunction(name=grammar.function.name, function=function)
            if grammar.kind == "punctuated":
                return Punctuated(watermark_of=checked)
            return Periodic(watermark_of=checked)


def _emission(grammar: WatermarkGrammar) -> DriverEmission:
    emit = grammar.emit
    if emit.every_ms is not None:
        return EmitPeriodically(every_ms=emit.every_ms)
    return EmitWithCommits() if emit.on == "commit" else EmitEveryRecord(records=emit.records or 1)


def _columns(grammar: WatermarkGrammar, build: Build) -> tuple[str, ...]:
    if grammar.column is not None:
        return (grammar.column,)
    if grammar.kind != "punctuated" or grammar.function is None:
        return ()
    return grammar.function.columns or tuple(build.columns)
