"""The instants of a column of times in the data files of a log, by the statistics of the files. They are the writer's.

Bounds of texts may be shortened, and those of doubles miss NaN, so only integers, timestamps and dates have instants.
"""

from jobs.lake.footer_bounds import known_bounds
from jobs.lake.log_version import LogVersion
from jobs.lake.slice_instants import Span
from windowlib.columnar.arrow import arrow_type
from windowlib.libraries import pa
from windowlib.records.column_types import Node


def bound_instants(bounds: "pa.Array", node: Node, *, unit: str | None) -> list[int | None]:
    """Return the instants of bounds of a column, in epoch ms rounded down; None where a bound tells none.

    The bounds are of the type that they have in a file or in the log. `unit` is that of numbers.
    """
    from windowlib.columnar.instants import read_instants

    kind = bounds.type
    if not (pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return [None] * len(bounds)
    read = read_instants(bounds.cast(arrow_type(node)), unit)
    rows = zip(read.ms.tolist(), read.problems.tolist(), read.is_lost.tolist(), strict=True)
    return [None if problem or is_lost else int(ms) for ms, problem, is_lost in rows]


def time_spans(log: LogVersion, column: str, *, unit: str | None) -> dict[str, Span]:
    """Return path -> the span of the instants of a column, for the data files whose statistics tell it.

    A derived column has no statistics.
    Raises LogError: the log is damaged.
    """
    if column not in log.nodes:
        return {}
    bounds, node = known_bounds(log, column), log.nodes[column]
    if not bounds.num_rows:
        return {}
    lows, highs = (bound_instants(bounds[name].combine_chunks(), node, unit=unit) for name in ("low", "high"))
    return {
        path: Span.of(low, high)
        for path, low, high in zip(bounds["path"].to_pylist(), lows, highs, strict=True)
        if low is not None and high is not None
    }
