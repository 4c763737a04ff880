"""Checks a pipeline against the columns of its log: each column that the file names exists and has an allowed type."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jobs.durations import UNIT_MS
from jobs.pipeline.models.grammar import FunctionGrammar
from jobs.pipeline.models.log import DATE_AND_HOUR, LogGrammar, SliceGrammar, TimeColumn
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.pipeline.models.windows import WindowsGrammar
from windowlib.errors import SpecError

INTEGERS = ("tinyint", "smallint", "int", "bigint")
NUMBERS = (*INTEGERS, "float", "double", "decimal")
ORDERED = (*NUMBERS, "string", "boolean", "date", "timestamp")
TIMES = ("timestamp", "timestamp_ntz", "date", "string")  # a text without a unit is ISO 8601
SOURCES = (*INTEGERS, "string", "boolean", "date")
KEYS = (*INTEGERS, "string", "boolean", "date", "timestamp")  # not float or double: NaN and -0.0 are not usable keys
_AGGREGATE_TYPES: Mapping[str, tuple[str, ...]] = {
    "sum": NUMBERS, "avg": NUMBERS, "variance": NUMBERS, "min": ORDERED, "max": ORDERED,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """One key of the file that names a column. Empty `types` allow any type. `has_unit`: a time with a unit."""

    path: str
    column: str
    types: tuple[str, ...] = ()
    has_unit: bool = False


def validate_against_schema(pipeline: Pipeline, columns: Mapping[str, str]) -> None:
    """Check every column that the pipeline names.

    Args:
        pipeline: the pipeline of a file.
        columns: the log's columns, name -> Spark simple type (`bigint`, `decimal(10,2)`, `struct<a:int>`).

    Raises:
        SpecError: a column does not exist or has a wrong type. The message has all such errors, each with the key, the
            column, what the log has and what is allowed.
    """
    wrong = [problem for use in _uses(pipeline) if (problem := _problem(use, columns))]
    if wrong:
        raise SpecError(f"{pipeline.source}: {'; '.join(wrong)} (the log is {pipeline.log.table})")


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
    yield from _slice_uses(log.slice)
    for index, column in enumerate(log.order_columns or ()):
        yield _Use(path=f"log.order[{index}]", column=column, types=ORDERED)


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
    for one in windows.trigger.whole() if windows.trigger is not None else ():
        if one.delta is not None:
            yield _Use(path="windows.trigger.delta.column", column=one.delta.column, types=NUMBERS)
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


def _slice_uses(one: SliceGrammar) -> Iterator[_Use]:
    texts = ("string", *INTEGERS)
    dates = texts if one.format is not None else ("date", *texts)
    if len(one.columns) == 1:
        types = dates if one.every_ms == UNIT_MS["d"] else texts
        times = ("timestamp", "timestamp_ntz") if one.format is None else ()
        yield _Use(path="log.slice.by", column=one.columns[0], types=(*types, *times))
        return
    for index, column in enumerate(one.columns):  # none, if the commits cut the log
        # [date, hour], or [year, month, day] and perhaps an hour
        is_date = index == 0 and len(one.columns) == DATE_AND_HOUR
        yield _Use(path=f"log.slice.by[{index}]", column=column, types=dates if is_date else texts)


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
    return f"{column}; allowed: {', '.join(use.types)}{unit}"
