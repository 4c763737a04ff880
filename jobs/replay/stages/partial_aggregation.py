"""What the driver decides about partial aggregation: whether scan tasks combine records, and bounds of event times.

A scan task must know that a record meets none of its windows after the end, before it combines the record with others
(windowlib.kernels.partials). The watermark depends on all records before. Statistics of files and row groups bound it.
They are the writer's: the driver compares them with what the scan found (`are_right`).
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from jobs.lake.event_log import PinnedLog
from jobs.lake.time_bounds import bound_instants
from jobs.replay.chunk.time_steps import combined
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.layout import footer_of
from jobs.replay.pinned import Pinned
from jobs.replay.stages.combine import PartialPlan
from jobs.replay.stages.scan import NEVER_MS, Scanned
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.log_reading import TimeColumn
from windowlib.kernels.partials import Combining
from windowlib.libraries import pq


def partial_plan(pinned: Pinned) -> PartialPlan | None:
    """Return how scan tasks combine records; None if they do not."""
    if not pinned.chunk_log.combines:
        return None
    engine, sizes = pinned.tables.engine, pinned.sizes
    assert engine.time.bound_ms is not None, "needs_pass checked it"
    watermark_ms = combined(pinned.time_before).watermark_ms
    return PartialPlan(
        combining=Combining(
            spec=engine.operator,
            layout=engine.layout,
            keys=pinned.tables.keys,
            inputs=pinned.tables.inputs,
            cells_max=sizes.combined_cells,
        ),
        bound_ms=engine.time.bound_ms,
        watermark_ms=MIN_TIME_MS if watermark_ms is None else watermark_ms,
    )


def with_time_bounds(blocks: Sequence[Block], pinned: Pinned, time: TimeColumn) -> tuple[Block, ...]:
    """Return the blocks of a chunk, in log order, with the bounds of their event times.

    Raises LogError: the statistics of the Delta log cannot be read.
    """
    log = pinned.log
    bounds = log.table.bounds(time.name)
    highs = bound_instants(bounds["high"].combine_chunks(), log.nodes[time.name], unit=time.unit)
    of_files = dict(zip(bounds["path"].to_pylist(), highs, strict=True))
    footers: dict[str, pq.FileMetaData | None] = {}
    before = combined(pinned.time_before).max_event_time_ms
    before = NEVER_MS if before is None else before
    bounded: list[Block] = []
    for block in blocks:
        latest = of_files.get(block.named)
        if block.row_groups is not None and not block.runs:
            latest = _of_row_groups(block, log, time, footers=footers)
        bounded.append(block._replace(latest_ms=latest))
    parts = {(place, run): part for place, block in enumerate(bounded) for run, part in enumerate(block.in_log_order())}
    before_of: dict[tuple[int, int], int | None] = {}
    for at in sorted(parts, key=lambda at: parts[at].sequence):
        before_of[at], latest = before, parts[at].latest_ms
        before = None if before is None or latest is None else max(before, latest)
    return tuple(
        block._replace(
            latest_before_ms=before_of[place, 0],
            runs=tuple(
                run._replace(latest_before_ms=before_of[place, number]) for number, run in enumerate(block.runs)
            ),
        )
        for place, block in enumerate(bounded)
    )


def are_right(scanned: Iterable[Scanned]) -> bool:
    """Return whether no block has a record after its bound."""
    return all(block.block.latest_ms is None or block.latest_ms <= block.block.latest_ms for block in scanned)


def _of_row_groups(
    block: Block, log: PinnedLog, time: TimeColumn, *, footers: dict[str, "pq.FileMetaData | None"]
) -> int | None:
    if block.path not in footers:
        footers[block.path] = footer_of(block, log.uri)
    footer = footers[block.path]
    paths = [] if footer is None else [footer.schema.column(place).path for place in range(footer.num_columns)]
    if footer is None or time.name not in paths:
        return None
    index, kind = paths.index(time.name), footer.schema.to_arrow_schema().field(time.name).type
    groups = [footer.row_group(group).column(index).statistics for group in block.row_groups or ()]
    if not all(statistics is not None and statistics.has_min_max for statistics in groups):
        return None
    highs = pa.array([statistics.max_raw for statistics in groups], kind)
    latest = bound_instants(highs, log.nodes[time.name], unit=time.unit)
    return None if None in latest else max((ms for ms in latest if ms is not None), default=None)
