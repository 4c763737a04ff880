"""From a pipeline file to the WindowSpec that windowlib runs: the one place where the two vocabularies meet."""

from collections.abc import Mapping
from typing import assert_never

from jobs.pipeline_models import Pipeline, Session, Sliding, Tumbling
from windowlib import assigners
from windowlib.aggregates import Aggregate
from windowlib.errors import SpecError
from windowlib.functions import aggregate
from windowlib.profiles import profile
from windowlib.spec import WindowSpec


def pipeline_aggregates(pipeline: Pipeline, columns: Mapping[str, str]) -> dict[str, Aggregate]:
    """Build the aggregates of a pipeline, by name, in the order of the file.

    Args:
        pipeline: what was read from the file.
        columns: the log's columns, name -> Spark type.

    Raises:
        SpecError: an aggregate does not take the type of its column; the message names the file and the aggregate.
    """
    built: dict[str, Aggregate] = {}
    for name, grammar in pipeline.aggregates.items():
        input_type = None if grammar.column is None else columns[grammar.column]
        try:
            built[name] = aggregate(grammar.kind, input_type, name=name)
        except SpecError as error:
            raise SpecError(f"{pipeline.source}: aggregates.{name}: {error}") from error
    return built


def window_spec(pipeline: Pipeline, columns: Mapping[str, str]) -> WindowSpec:
    """Build the WindowSpec of a pipeline over a log with these columns.

    Raises:
        SpecError: the parts do not go together; the message names the file.
    """
    try:
        spec = WindowSpec(
            assigner=_assigner(pipeline),
            function=tuple(pipeline_aggregates(pipeline, columns).values()),
            allowed_lateness_ms=pipeline.windows.allowed_lateness_ms,
            accumulation=pipeline.windows.accumulation,
            profile=profile(pipeline.semantics),
        )
        spec.check_terminates()
    except SpecError as error:
        raise SpecError(
            str(error) if str(error).startswith(pipeline.source) else f"{pipeline.source}: windows: {error}"
        ) from error
    return spec


def _assigner(pipeline: Pipeline) -> assigners.Assigner:
    windows = pipeline.windows.assigner
    match windows:
        case Tumbling():
            return assigners.Tumbling(size_ms=windows.size_ms, offset_ms=windows.offset_ms)
        case Sliding():
            return assigners.Sliding(size_ms=windows.size_ms, slide_ms=windows.slide_ms, offset_ms=windows.offset_ms)
        case Session():
            return assigners.Session(gap_ms=windows.gap_ms)
        case _:
            assert_never(windows)
