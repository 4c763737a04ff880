"""What the rows of a stored table consist of under the spec of the run that wrote them.

A table outlives specs: it has columns of others, at the end. So which columns are content, and in which order, comes
from the spec, and the types come from the table.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from jobs.engine.window_spec import pipeline_aggregates
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.files import pipeline_from_json
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.errors import LedgerError
from windowlib.records import tables
from windowlib.records.column_types import Node, spell_type
from windowlib.records.tables import Table
from windowlib.windows.declared_functions import JSON_STATE

Columns = Mapping[str, Node]
"""The columns of a stored table, with their types."""


def spec_of(view: LedgerView, run: StagedRun) -> Pipeline:
    """Return the spec with which a run was made, as the ledger keeps it.

    Raises:
        LedgerError: the ledger has no request of that run.
    """
    request = view.requests.get(run.request_id)
    if request is None:
        raise LedgerError(
            f"the ledger has no request {run.request_id}, which run {run.result.run_id} belongs to; it is damaged"
        )
    return _parsed(request.spec_json)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Pipeline:
    return pipeline_from_json(text, source="the spec that the ledger keeps of a request")


def stored_table(pipeline: Pipeline, name: str, columns: Columns, *, log: Callable[[], Columns]) -> Table:
    """Return a table as runs of this spec fill it.

    Args:
        pipeline: the spec.
        name: of the table.
        columns: of the stored table.
        log: the columns of the log; asked for where accumulators depend on them.
    """
    keys, outputs = _typed(pipeline.log.key_columns, columns), _typed(pipeline.output_columns, columns)
    record = columns.get("record", "string")
    made: Mapping[str, Callable[[], Table]] = {
        tables.WINDOW_OUTPUTS: lambda: tables.window_outputs(keys, outputs),
        tables.LATE_RECORDS: lambda: tables.late_records(record),
        tables.UNASSIGNED_RECORDS: lambda: tables.unassigned_records(record),
        tables.INVALID_RECORDS: lambda: tables.invalid_records(record),
        tables.WINDOW_STATE: lambda: tables.window_state(
            keys, _accumulators(pipeline, columns, log), _last(pipeline, columns)
        ),
        tables.USER_STATE: lambda: tables.user_state(keys),
        tables.TIMERS: lambda: tables.timers(keys),
        tables.WATERMARKS: tables.watermarks,
        tables.TALLIES: tables.tallies,
        tables.QUALITY_RESULTS: tables.quality_results,
    }
    if name in made:
        return made[name]()
    tag = name.removeprefix(tables.SIDE_OUTPUTS)
    return tables.side_outputs(tag, keys, _typed(_side_columns(pipeline, tag), columns))


def _side_columns(pipeline: Pipeline, tag: str) -> Iterable[str]:
    if pipeline.front_end == "atlas":
        from windowlib.atlas.spec import SIDE_OUTPUT_COLUMNS

        return SIDE_OUTPUT_COLUMNS.get(tag, {})
    return pipeline.process.side_outputs.get(tag, {}) if pipeline.process is not None else ()


def _accumulators(pipeline: Pipeline, columns: Columns, log: Callable[[], Columns]) -> Mapping[str, Mapping[str, str]]:
    """Return the states of the aggregates that the table has columns for; other specs may have widened them."""
    if not any(name.startswith("acc_") for name in columns):
        return {}
    if pipeline.aggregates:
        types = {name: spell_type(node) for name, node in log().items()}
        found = {name: one.state_columns for name, one in pipeline_aggregates(pipeline, types).items()}
    else:
        found = dict.fromkeys(pipeline.output_columns[:1], JSON_STATE)
    return {name: dict(named) for name, named in found.items() if f"acc_{name}" in columns}


def _last(pipeline: Pipeline, columns: Columns) -> Mapping[str, str] | None:
    node = columns.get("last_emitted")
    if node is None or isinstance(node, str):
        return None
    return _typed(pipeline.output_columns, {field["name"]: field["type"] for field in node["fields"]})


def _typed(names: Iterable[str], columns: Columns) -> dict[str, str]:
    return {name: spell_type(columns[name]) for name in names if name in columns}
