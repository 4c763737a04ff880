"""The plan of a chunk: the tables it writes, the engine it runs, and the buckets that its tasks work on."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.engine.engine import Engine
from jobs.engine.user_functions import Functions
from jobs.engine.window_spec import engine, pipeline_functions
from jobs.expressions.derived_columns import Derivation
from jobs.lake.event_log import PinnedLog
from jobs.pipeline.log_schema import derivation, input_columns
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.record_columns import record_names, record_type
from windowlib.columnar.plan import BucketPlan, CheckpointRules
from windowlib.columnar.watermark_steps import SliceRange
from windowlib.errors import SpecError
from windowlib.kernels.coverage import why_not
from windowlib.records import tables
from windowlib.records.column_types import Node, spell_type, struct_fields
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
    were_dates: frozenset[str]

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
    inputs = {name: columns[name] for name in run.layout.read()}
    return ChunkTables(
        engine=run,
        functions=functions,
        keys=keys,
        inputs=inputs,
        stored=stored,
        record_names=names,
        derivation=derived,
        were_dates=_were_dates(pipeline, in_log, pinned.widened, stored=kept, inputs=inputs),
    )


def _were_dates(
    pipeline: Pipeline,
    columns: Mapping[str, str],
    widened: Mapping[str, str],
    *,
    stored: Iterable[Node],
    inputs: Mapping[str, str],
) -> frozenset[str]:
    """Return the inputs with timestamps that were dates before columns of the log were widened, also derived ones.

    The types of records in side tables show nested columns that were widened, too. `explain` does not read them.
    """
    fields = {name: spell_type(kind) for node in stored for name, kind in struct_fields(node).items()}
    former = {name: kind for name, kind in {**widened, **fields}.items() if columns.get(name, kind) != kind}
    if not any("date" in kind for kind in former.values()):
        return frozenset()
    before = dict(former)
    with suppress(SpecError):  # an expression that does not fit the former types is newer than the records
        before |= input_columns(pipeline, {**columns, **former})
    return frozenset(
        name
        for name, kind in inputs.items()
        if "timestamp_ntz" in kind and "date" in before.get(name, "") and before[name] != kind
    )


def plan_buckets(
    pipeline: Pipeline,
    written: ChunkTables,
    ranges: Sequence[SliceRange],
    *,
    buckets: int,
    time: "ChunkTime",
    checkpoints: CheckpointRules | None = None,
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
        were_dates=written.were_dates,
    )
