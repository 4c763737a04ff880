"""The plan of a chunk: the tables it writes, the engine it runs, and the buckets that its tasks work on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.engine.engine import Engine
from jobs.engine.user_functions import Functions
from jobs.engine.window_spec import engine, pipeline_functions
from jobs.expressions.derived_columns import Derivation
from jobs.lake.event_log import PinnedLog
from jobs.pipeline.log_schema import derivation
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.record_columns import record_names, record_type
from windowlib.columnar.plan import BucketPlan, CheckpointRules
from windowlib.columnar.watermark_steps import SliceRange
from windowlib.kernels.coverage import why_not
from windowlib.records import tables
from windowlib.records.column_types import Node, spell_type
from windowlib.records.tables import Table

if TYPE_CHECKING:
    from jobs.replay.chunk.time_steps import ChunkTime


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTables:
    """A pipeline over one log: its engine, the Spark types of the columns it reads, and the tables it writes.

    `functions` are the user's functions, loaded in this process. Call `functions.ship()` before Spark's workers use
    them. `record_names` maps a column of the log to its name in the side tables. `derivation` has the columns that are
    derived from those of the log. They are no part of a record in the side tables.
    """

    engine: Engine
    functions: Functions
    keys: Mapping[str, str]
    inputs: Mapping[str, str]
    stored: tuple[Table, ...]
    record_names: Mapping[str, str]
    derivation: Derivation

    def emitted(self) -> tuple[Table, ...]:
        """Return the tables of the tagged result. Late and unassigned rows are without their record: Spark joins it."""
        slim = {tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS}
        own = (tables.INVALID_RECORDS, tables.DUPLICATE_RECORDS, tables.WATERMARKS)
        chosen = [table for table in self.stored if table.name not in own]
        return tuple(table.slim() if table.name in slim else table for table in chosen)

    @property
    def is_columnar(self) -> bool:
        """Whether the columnar executor computes the windows."""
        return why_not(self.engine.operator, self.engine.layout) is None

    def digested(self) -> tuple[str, ...]:
        """Return the names of the tables that a run's digests cover: those whose rows the run's input determines."""
        return tuple(table.name for table in self.stored if table.name not in {tables.TALLIES, tables.STATE_REMOVALS})


def chunk_tables(pipeline: Pipeline, pinned: PinnedLog, *, stored_records: Iterable[Node] = ()) -> ChunkTables:
    """Return the tables that a pipeline writes when it reads a log.

    `stored_records` are the types of column `record` in the side tables that exist already.
    Raises SpecError: parts of the pipeline contradict each other or the columns of the log.
    """
    in_log = {name: spell_type(node) for name, node in pinned.nodes.items()}
    derived = derivation(pipeline, in_log)
    columns = in_log | {name: spell_type(node) for name, node in derived.nodes.items()}
    functions = pipeline_functions(pipeline)
    run = engine(pipeline, columns, functions)
    keys = {name: columns[name] for name in pipeline.log.key_columns}
    kept = [*stored_records]
    names = record_names(pinned.nodes, kept)
    record = record_type(pinned.nodes, names, kept)
    stored = (
        tables.window_outputs(keys, run.outputs),
        tables.late_records(record),
        tables.unassigned_records(record),
        tables.invalid_records(record),
        *((tables.duplicate_records(record),) if pipeline.log.distinct is not None else ()),
        *(tables.side_outputs(tag, keys, named) for tag, named in run.side_outputs.items()),
        tables.window_state(keys, run.accumulators, run.outputs if run.keeps_last else None),
        *((tables.user_state(keys),) if run.keeps_user_state else ()),
        tables.timers(keys),
        tables.state_removals(),
        tables.watermarks(),
        tables.tallies(),
    )
    return ChunkTables(
        engine=run,
        functions=functions,
        keys=keys,
        inputs={name: columns[name] for name in run.layout.read()},
        stored=stored,
        record_names=names,
        derivation=derived,
    )


def plan_buckets(
    pipeline: Pipeline,
    written: ChunkTables,
    ranges: Sequence[SliceRange],
    *,
    buckets: int,
    time: "ChunkTime",
    checkpoints: CheckpointRules | None = None,
    were_dates: frozenset[str] = frozenset(),
) -> BucketPlan:
    """Return the plan that every task gets. The number of buckets changes the speed only."""
    run = written.engine
    return BucketPlan(
        spec=run.operator,
        layout=run.layout,
        keys=written.keys,
        inputs=written.inputs,
        outputs=tuple(run.outputs),
        side_outputs={tag: tuple(named) for tag, named in run.side_outputs.items()},
        accumulators=run.accumulators,
        last=tuple(run.outputs) if run.keeps_last else (),
        slices=tuple(ranges),
        steps=time.steps,
        beginning=time.beginning,
        max_parallelism=pipeline.max_parallelism,
        tables=written.emitted(),
        buckets=buckets,
        tasks=buckets,
        checkpoints=checkpoints or CheckpointRules(),
        were_dates=were_dates,
    )
