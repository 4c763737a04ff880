"""Describes a stored table under the spec of the run that wrote its rows.

A table is used by several specs in turn and also has the columns of the other ones. So the spec gives the columns of
the content and their order, and the stored table gives their types.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from jobs.lake.damage import ADVICE
from jobs.lake.lake import Lake
from jobs.lake.store import table_columns
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.files import pipeline_from_json
from jobs.pipeline.log_schema import input_columns
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.errors import LedgerError, SpecError, StoreError
from windowlib.records import tables
from windowlib.records.column_types import Node, spell_type, struct_fields
from windowlib.records.tables import Table

Columns = Mapping[str, Node]
"""The columns of a stored table: name -> type."""


def spec_of(view: LedgerView, run: StagedRun) -> Pipeline:
    """Return the spec of a run, from the run's request in the ledger.

    Raises LedgerError: the ledger does not have the run's request.
    """
    request = view.requests.get(run.request_id)
    if request is None:
        raise LedgerError(
            f"the ledger is damaged: it has no request {run.request_id}, to which run {run.result.run_id} belongs"
        )
    return _parsed(request.spec_json)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Pipeline:
    return pipeline_from_json(text, source="the spec of a request in the ledger")


def written_tables(runs: Sequence[StagedRun]) -> list[str]:
    """Return the tables that have rows of some runs, or may have."""
    digested = {name for run in runs for name in (*run.result.digests, *run.result.checkpoint.stored_digests)}
    return [*sorted(digested), *((tables.TALLIES, tables.QUALITY_RESULTS) if runs else ())]


def stored_table(pipeline: Pipeline, name: str, columns: Columns, *, log: Callable[[], Columns]) -> Table:
    """Return the description of a table for rows of runs with this spec.

    `columns` are those of the stored table. `log` returns the log's columns. It is called only if the types of
    accumulators depend on them or on derived ones.
    """
    keys, outputs = _typed(pipeline.log.key_columns, columns), _typed(pipeline.output_columns, columns)
    record = columns.get("record", "string")
    made: Mapping[str, Callable[[], Table]] = {
        tables.WINDOW_OUTPUTS: lambda: tables.window_outputs(keys, outputs),
        tables.LATE_RECORDS: lambda: tables.late_records(record),
        tables.UNASSIGNED_RECORDS: lambda: tables.unassigned_records(record),
        tables.INVALID_RECORDS: lambda: tables.invalid_records(record),
        tables.DUPLICATE_RECORDS: lambda: tables.duplicate_records(record),
        tables.WINDOW_STATE: lambda: tables.window_state(
            keys, _accumulators(pipeline, columns, log), _last(pipeline, columns)
        ),
        tables.USER_STATE: lambda: tables.user_state(keys),
        tables.TIMERS: lambda: tables.timers(keys),
        tables.STATE_REMOVALS: tables.state_removals,
        tables.WATERMARKS: tables.watermarks,
        tables.TALLIES: tables.tallies,
        tables.QUALITY_RESULTS: tables.quality_results,
    }
    if name in made:
        return made[name]()
    tag = name.removeprefix(tables.SIDE_OUTPUTS)
    return tables.side_outputs(tag, keys, _typed(side_columns(pipeline, tag), columns))


def own_columns(pipeline: Pipeline, table: str) -> frozenset[str]:
    """Return the columns of a table that a spec names: keys and outputs. Tables of records have none."""
    if table == tables.WINDOW_OUTPUTS:
        return frozenset((*pipeline.log.key_columns, *pipeline.output_columns))
    if table.startswith(tables.SIDE_OUTPUTS):
        return frozenset((*pipeline.log.key_columns, *side_columns(pipeline, table.removeprefix(tables.SIDE_OUTPUTS))))
    return frozenset()


def reader_columns(lake: Lake, pipeline: str, table: str, *, view: LedgerView) -> Columns:
    """Return the columns of a stored table that readers get: those of a spec that was never published are left out.

    Raises StoreError: the log of the table cannot be read.
    """
    stored = table_columns(lake.table(pipeline, table))
    if table == tables.WINDOW_OUTPUTS:
        common = tables.window_outputs({}, {})
    elif table.startswith(tables.SIDE_OUTPUTS):
        common = tables.side_outputs(table.removeprefix(tables.SIDE_OUTPUTS), {}, {})
    else:
        return stored
    ids = {publication.request_id for publication in view.publications}
    runs = (view.known_run(run_id) for run_id in view.published.values())
    ids |= {run.request_id for run in runs if run is not None}
    specs = {request.spec_json for name in ids if name is not None and (request := view.requests.get(name))}
    named = {*common.stored_columns()}.union(*(own_columns(_parsed(spec), table) for spec in specs))
    return {name: node for name, node in stored.items() if name in named}


def keys_by_run(view: LedgerView, runs: Iterable[StagedRun]) -> dict[str, tuple[str, ...]]:
    """Return run id -> the key columns of the run's spec, which identify its windows with their bounds.

    Their order in the pipeline file means nothing. Runs with the same key columns have them in the order of the last.
    """
    keys = {run.result.run_id: spec_of(view, run).log.key_columns for run in runs}
    newest = {frozenset(own): own for own in keys.values()}
    return {run_id: newest[frozenset(own)] for run_id, own in keys.items()}


def log_columns(lake: Lake, pipeline: str) -> Columns:
    """Return the columns of the log, from the first table that stores records.

    Raises StoreError: none of these tables is there, or the log of one cannot be read.
    """
    for name in tables.RECORD_TABLES:
        node = table_columns(lake.table(pipeline, name)).get("record", "string")
        if not isinstance(node, str):
            return struct_fields(node)
    raise StoreError(
        f"pipeline {pipeline} has lost all tables of records ({', '.join(tables.RECORD_TABLES)}), so the types of the "
        f"state of its windows are not known. {ADVICE}"
    )


def side_columns(pipeline: Pipeline, tag: str) -> Iterable[str]:
    """Return the columns of a side output under a spec, without keys; none if the spec does not have the output."""
    if pipeline.front_end == "atlas":
        from windowlib.atlas.spec import SIDE_OUTPUT_COLUMNS

        return SIDE_OUTPUT_COLUMNS.get(tag, {})
    return pipeline.process.side_outputs.get(tag, {}) if pipeline.process is not None else ()


def _accumulators(pipeline: Pipeline, columns: Columns, log: Callable[[], Columns]) -> Mapping[str, Mapping[str, str]]:
    """Return the state columns of the aggregates for which the table has a column.

    If the type of an input is not known, because a run of an earlier version did not store it, they are those of all
    specs.
    """
    if not any(name.startswith("acc_") for name in columns):
        return {}
    # These import all window operators. Readers of published rows do not need them.
    from jobs.engine.window_spec import pipeline_aggregates
    from windowlib.windows.declared_functions import JSON_STATE

    names = [*pipeline.aggregates] or pipeline.output_columns[:1]
    stored = {name: struct_fields(columns[f"acc_{name}"]) for name in names if f"acc_{name}" in columns}
    states = dict.fromkeys(names, JSON_STATE)
    if pipeline.aggregates:
        try:
            types = input_columns(pipeline, {name: spell_type(node) for name, node in log().items()})
            built = pipeline_aggregates(pipeline, types)
        except SpecError:
            return {name: _typed(own, own) for name, own in stored.items()}
        states = {name: aggregate.state_columns for name, aggregate in built.items()}
    return {name: {**dict(states[name]), **_typed(dict(states[name]), own)} for name, own in stored.items()}


def _last(pipeline: Pipeline, columns: Columns) -> Mapping[str, str] | None:
    node = columns.get("last_emitted")
    return None if node is None or isinstance(node, str) else _typed(pipeline.output_columns, struct_fields(node))


def _typed(names: Iterable[str], columns: Columns) -> dict[str, str]:
    return {name: spell_type(columns[name]) for name in names if name in columns}
