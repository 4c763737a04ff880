"""The ids of stored records by the column `log.record_id` of another spec than the one that stored them."""

from contextlib import suppress
from typing import TYPE_CHECKING

from jobs.expressions.derived_columns import Derivation
from jobs.lake.lake import Lake
from jobs.pipeline.log_schema import derivation
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.stored_tables import Columns, log_columns
from windowlib.errors import SpecError, StoreError
from windowlib.libraries import pa, pc
from windowlib.records.column_types import spell_type

if TYPE_CHECKING:
    from collections.abc import Callable


def ids_by(lake: Lake, pipeline: Pipeline, name: str) -> "Callable[[pa.Array], pa.Array]":
    """Return what tells the ids of stored records by a column of the log, or one that the pipeline derives, as texts.

    The id is null if the records do not have the column, or what it is derived from.
    """
    from windowlib.columnar.arrow import arrow_type

    columns: Columns = {}
    derived = Derivation()
    with suppress(StoreError, SpecError):
        columns = log_columns(lake, pipeline.name)
        derived = derivation(pipeline, {column: spell_type(node) for column, node in columns.items()}).unfiltered()

    def field(records: pa.Array, column: str) -> pa.Array:
        has_field = pa.types.is_struct(records.type) and records.type.get_field_index(column) >= 0
        return pc.struct_field(records, column) if has_field else pa.nulls(len(records), pa.string())

    def ids(records: pa.Array) -> pa.Array:
        if name not in derived.nodes:
            return field(records, name).cast(pa.string())
        from jobs.expressions.evaluation import derive
        from windowlib.columnar.instants import decodable

        leaves = {leaf.column for leaf in derived.leaves.values()}
        values = {column: field(records, column).cast(arrow_type(columns[column])) for column in sorted(leaves)}
        rows = pa.RecordBatch.from_pydict(values or {"nothing": pa.nulls(len(records))})
        return derive(decodable(rows)[0], derived).rows.column(name).cast(pa.string())

    return ids
