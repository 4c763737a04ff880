"""Checks a pipeline against the columns of its log: each column that the file names exists and has an allowed type.

A name with dots that is no column of the log is a path, and becomes a derived column of that name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from jobs.durations import UNIT_MS
from jobs.expressions.derived_columns import Derivation
from jobs.pipeline.models.grammar import FunctionGrammar
from jobs.pipeline.models.kafka import is_partition_by_partition
from jobs.pipeline.models.log import DATE_AND_HOUR, LogGrammar, SliceGrammar, TimeColumn
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.pipeline.models.watermarks import WatermarkGrammar
from jobs.pipeline.models.windows import WindowsGrammar
from windowlib.errors import SpecError
from windowlib.records.column_types import parse_type, spell_type

INTEGERS = ("tinyint", "smallint", "int", "bigint")
NUMBERS = (*INTEGERS, "float", "double", "decimal")
ORDERED = (*NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz")
TIMES = ("timestamp", "timestamp_ntz", "date", "string")  # a text without a unit is ISO 8601
SOURCES = (*INTEGERS, "string", "boolean", "date")
KEYS = (*INTEGERS, "string", "boolean", "date", "timestamp")  # not float or double: NaN and -0.0 are not usable keys
IDS = (*KEYS, "timestamp_ntz", "binary")
_AGGREGATE_TYPES: Mapping[str, tuple[str, ...]] = {
    "sum": NUMBERS, "avg": NUMBERS, "variance": NUMBERS, "min": ORDERED, "max": ORDERED,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """One key of the file that names a column. Empty `types` allow any type. `has_unit`: a time with a unit.

    `is_stored`: the log must have the column; it decides where a record is.
    """

    path: str
    column: str
    types: tuple[str, ...] = ()
    has_unit: bool = False
    is_stored: bool = False


def derivation(pipeline: Pipeline, columns: Mapping[str, str]) -> Derivation:
    """Return the columns that a pipeline derives from its log: those of `log.columns`, and the paths that it names.

    `columns` are the log's: name -> Spark simple type (`bigint`, `decimal(10,2)`, `struct<a:int>`).
    Raises SpecError: an expression does not fit the columns of the log.
    """
    expressions = dict(pipeline.log.columns or {})
    named = {use.column for use in _uses(pipeline) if not use.is_stored} - {*columns, *expressions}
    paths = sorted(name for name in named if "." in name)
    if not expressions and not paths and pipeline.log.where is None:
        return Derivation()
    from jobs.pipeline.models.expressions.derivation import derivation_of, path_expressions  # sqlglot takes 0.2 s

    _refuse_stored(pipeline, expressions, columns)
    expressions |= path_expressions(columns, paths)
    try:
        return derivation_of(tuple(columns.items()), tuple(expressions.items()), pipeline.log.where)
    except SpecError as error:
        raise SpecError(f"{pipeline.source}: {error} (the log is {pipeline.log.table})") from error


def _refuse_stored(pipeline: Pipeline, derived: Iterable[str], columns: Mapping[str, str]) -> None:
    stored = {name.lower(): name for name in columns}
    for name in derived:
        if name.lower() in stored:
            raise SpecError(
                f"{pipeline.source}: log.columns.{name}: the log has a column {stored[name.lower()]!r} (case is "
                f"ignored); choose another name (the log is {pipeline.log.table})"
            )


def input_columns(pipeline: Pipeline, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that a pipeline can read: those of the log, and then the derived ones, with their types.

    Raises SpecError: as for `derivation`.
    """
    derived = derivation(pipeline, columns).nodes
    return {**columns, **{name: spell_type(node) for name, node in derived.items()}}


def read_columns(pipeline: Pipeline, columns: Mapping[str, str]) -> frozenset[str]:
    """Return the columns of the log that a pipeline names, also in expressions.

    Raises SpecError: as for `derivation`.
    """
    leaves = derivation(pipeline, columns).leaves.values()
    return frozenset((*(use.column for use in _uses(pipeline)), *(leaf.column for leaf in leaves))) & columns.keys()


def validate_against_schema(pipeline: Pipeline, columns: Mapping[str, str]) -> None:
    """Check every column that the pipeline names.

    `columns` are the log's: name -> Spark simple type (`bigint`, `decimal(10,2)`, `struct<a:int>`).
    Raises SpecError: a column does not exist or has a wrong type. The message has all such errors, each with the key,
    the column, what the log has and what is allowed.
    """
    readable = input_columns(pipeline, columns)
    wrong = [*_partition_by_partition(pipeline), *_amounts(pipeline, readable)]
    wrong += [problem for use in _uses(pipeline) if (problem := _problem(use, columns if use.is_stored else readable))]
    if wrong:
        raise SpecError(f"{pipeline.source}: {'; '.join(wrong)} (the log is {pipeline.log.table})")


def _amounts(pipeline: Pipeline, columns: Mapping[str, str]) -> Iterator[str]:
    """Yield the outputs whose change `publish.settled` limits although their values are no numbers."""
    settled = None if pipeline.publish is None else pipeline.publish.settled
    for name in settled.change_at_most.columns if settled is not None else ():
        kind = _output_type(pipeline, name, columns)
        if kind is not None and kind.partition("(")[0] not in NUMBERS:
            yield f"publish.settled.change_at_most.columns: output {name!r} is {kind}; allowed: {', '.join(NUMBERS)}"


def _output_type(pipeline: Pipeline, name: str, columns: Mapping[str, str]) -> str | None:
    """Return the type of an output; None if it is a number for each log that the pipeline accepts."""
    if pipeline.process is not None:
        kind = pipeline.process.output.get(name)  # as the file spells it, such as `long`
        return None if kind is None else spell_type(parse_type(kind))
    aggregate = pipeline.aggregates.get(name)
    if aggregate is None:
        return "a document" if name in pipeline.output_columns else None
    if aggregate.kind == "collect_list":
        return "an array"
    return columns.get(aggregate.column or "") if aggregate.kind in {"min", "max", "first", "last"} else None


def _partition_by_partition(pipeline: Pipeline) -> Iterator[str]:
    """Yield the problem of a log in Kafka's order whose watermark or clock does not know the partitions."""
    order, kafka = pipeline.log.order_columns, pipeline.log.kafka
    if order is None or not is_partition_by_partition(order) or (kafka is not None and kafka.partitions == 1):
        return
    if pipeline.windows is not None and pipeline.windows.is_unbounded:
        return  # no record is late, and no window ends by a time
    problem = _one_watermark(pipeline.watermark, order[-2]) or _one_clock(pipeline.windows, order[-2])
    if problem is None:
        return
    key, instead = problem
    columns, arrival = ", ".join(order), pipeline.log.arrival_time
    by_arrival = f"log.order: [{'ARRIVAL' if arrival is None else arrival.column}, {columns}]"
    yield (
        f"log.order: [{columns}] puts all records of a partition before those of the next one, so with {key} most of "
        f"them would be late or in a later window; write {instead}{by_arrival} with log.key and log.event_time in "
        "place of log.kafka"
    )


def _sources(partition: str) -> str:
    return f"{{column: {partition}, expected: ['0', '1']}} with all partitions that have records, or "


def _one_watermark(watermark: WatermarkGrammar | None, partition: str) -> tuple[str, str] | None:
    """Return the key of a watermark that not each partition has, and what to write instead; None without."""
    if watermark is None:
        return None
    if watermark.kind == "ingestion":
        return "watermark.kind: ingestion", ""
    sources, instead = watermark.sources, f"watermark.sources: {_sources(partition)}"
    if sources is None:
        return "one watermark", f"log.kafka: {{partitions: N}}, or {instead}"
    if sources.idle_timeout_ms is not None:
        return "watermark.sources.idle_timeout", instead
    return ("watermark.sources without `expected`", instead) if sources.expected is None else None


def _one_clock(windows: WindowsGrammar | None, partition: str) -> tuple[str, str] | None:
    """Return the key of windows with a clock or a watermark of all partitions, and what to write; None without."""
    if windows is None:
        return None
    if windows.atlas is not None:
        return "windows.atlas", ""
    if windows.is_processing_time:
        return "time: processing", ""
    storm = windows.storm
    if storm is None or (storm.streams is not None and storm.streams.expected is not None):
        return None
    return "the watermark of windows.storm", f"windows.storm.streams: {_sources(partition)}"


def _uses(pipeline: Pipeline) -> Iterator[_Use]:
    yield from _log_uses(pipeline.log)
    for name, aggregate in pipeline.aggregates.items():
        if aggregate.column is not None:
            types = _AGGREGATE_TYPES.get(aggregate.kind, ())
            yield _Use(path=f"aggregates.{name}.{aggregate.kind}", column=aggregate.column, types=types)
    yield from _watermark_uses(pipeline)
    if pipeline.windows is not None:
        yield from _window_uses(pipeline.windows)
    for function, path in _functions(pipeline):
        for index, column in enumerate(function.columns or ()):
            yield _Use(path=f"{path}.columns[{index}]", column=column)


def _log_uses(log: LogGrammar) -> Iterator[_Use]:
    for index, column in enumerate(log.key_columns):
        yield _Use(path=f"log.key[{index}]", column=column, types=KEYS)
    yield _time_use("log.event_time", log.event_time)
    if log.arrival_time is not None:
        yield _time_use("log.arrival_time", log.arrival_time)
    if log.record_id is not None:
        yield _Use(path="log.record_id", column=log.record_id, types=(*INTEGERS, "string"))
    for index, column in enumerate(log.distinct.by if log.distinct is not None else ()):
        yield _Use(path=f"log.distinct.by[{index}]", column=column, types=IDS)
    yield from _slice_uses(log.slice)
    for index, column in enumerate(log.order_columns or ()):
        yield _Use(path=f"log.order[{index}]", column=column, types=ORDERED, is_stored=True)


def _watermark_uses(pipeline: Pipeline) -> Iterator[_Use]:
    watermark = pipeline.watermark
    if watermark is None:
        return
    if watermark.column is not None:
        has_unit = watermark.unit is not None
        allowed = INTEGERS if has_unit else (*INTEGERS, "timestamp", "timestamp_ntz")
        yield _Use(path="watermark.column", column=watermark.column, types=allowed, has_unit=has_unit)
    if watermark.sources is not None:
        yield _Use(path="watermark.sources.column", column=watermark.sources.column, types=SOURCES)


def _window_uses(windows: WindowsGrammar) -> Iterator[_Use]:
    for key, session in (("session", windows.session), ("dynamic_session", windows.dynamic_session)):
        if session is not None and session.gap.column is not None:
            yield _Use(path=f"windows.{key}.gap.column", column=session.gap.column, types=INTEGERS)
    for trigger in windows.trigger.whole() if windows.trigger is not None else ():
        if trigger.delta is not None:
            yield _Use(path="windows.trigger.delta.column", column=trigger.delta.column, types=NUMBERS)
    if windows.evictor is not None and windows.evictor.delta is not None:
        yield _Use(path="windows.evictor.delta.column", column=windows.evictor.delta.column, types=NUMBERS)
    streams = windows.storm.streams if windows.storm is not None else None
    partition = windows.atlas.partition if windows.atlas is not None else None
    if streams is not None:
        yield _Use(path="windows.storm.streams.column", column=streams.column, types=SOURCES)
    if partition is not None:
        yield _Use(path="windows.atlas.partition", column=partition, types=SOURCES)


def _functions(pipeline: Pipeline) -> Iterator[tuple[FunctionGrammar, str]]:
    if pipeline.watermark is not None and pipeline.watermark.function is not None:
        yield pipeline.watermark.function, "watermark.function"
    if pipeline.process is not None:
        yield pipeline.process.function, "process.function"
    for function in pipeline.windows.functions() if pipeline.windows is not None else ():
        yield function, f"windows: function {function.name}"


def _time_use(path: str, time: TimeColumn) -> _Use:
    # Floats and texts are allowed. A record whose value is NaN, infinite, out of range or not a time becomes a row of
    # invalid_records.
    has_unit = time.unit is not None
    types = (*NUMBERS, "string") if has_unit else TIMES
    return _Use(path=f"{path}.column", column=time.column, types=types, has_unit=has_unit)


def _slice_uses(grammar: SliceGrammar) -> Iterator[_Use]:
    texts = ("string", *INTEGERS)
    dates = texts if grammar.format is not None else ("date", *texts)
    if len(grammar.columns) == 1:
        types = dates if grammar.every_ms == UNIT_MS["d"] else texts
        times = ("timestamp", "timestamp_ntz") if grammar.format is None else ()
        yield _Use(path="log.slice.by", column=grammar.columns[0], types=(*types, *times), is_stored=True)
        return
    for index, column in enumerate(grammar.columns):  # none, if the commits cut the log
        # [date, hour], or [year, month, day] and perhaps an hour
        is_date = index == 0 and len(grammar.columns) == DATE_AND_HOUR
        yield _Use(path=f"log.slice.by[{index}]", column=column, types=dates if is_date else texts, is_stored=True)


def _problem(use: _Use, columns: Mapping[str, str]) -> str | None:
    simple_type = columns.get(use.column)
    if simple_type is None:
        there = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        return f"{use.path}: the log has no column {use.column!r}; it has {there}{did_you_mean(use.column, columns)}"
    kind = simple_type.partition("(")[0].partition("<")[0]
    if not use.types or kind in use.types:
        return None
    column = f"{use.path}: column {use.column!r} is {simple_type}"
    if use.has_unit and kind in TIMES:
        return f"{column}, which needs no unit; remove `unit`"
    unit = "; for a number write the unit: {column: ..., unit: ms}" if use.types == TIMES and kind in NUMBERS else ""
    derived = "; or derive a column in log.columns, such as cast(… as varchar)" if use.types == KEYS else ""
    return f"{column}; allowed: {', '.join(use.types)}{unit}{derived}"
