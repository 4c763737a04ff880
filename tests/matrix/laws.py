"""Laws of every replay of the matrix, checked on its rows and tallies."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from jobs.lake.arrow_sql import query
from jobs.reading.published import PublishedView, published_sql, quote_duckdb
from tests.matrix.buckets import Tallies
from tests.matrix.log import HOURS
from tests.matrix.one_process import Answer
from tests.matrix.pipelines import OWN_WINDOWS, Case
from tests.matrix.rows import Row, Rows
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables
from windowlib.records.records import Fate
from windowlib.records.row_ids import IdSum


def open_equations(rows: Rows, tallies: Tallies, answer: Answer) -> Iterator[str]:
    """Yield the equations of the audit that do not close: edges from slice to slice, and fates of records."""
    before = IdSum()
    for number in range(len(HOURS)):
        after, left, right = IdSum(), IdSum(), IdSum()
        for row in rows.get(tables.WINDOW_STATE, ()):
            if row["slice_no"] == number and not row["is_orphan"]:  # what Flink lost (F1) is closed
                after.merge(IdSum(row["edge_count"], row["edge_xor"], row["edge_sum"]))
        left.merge(before)
        right.merge(after)
        terms = {term: ids for (one, equation, term), ids in tallies.items() if (one, equation) == (number, "edges")}
        for term, ids in terms.items():
            (left if term == "new" else right).merge(ids)
        if left.as_row() != right.as_row():
            counts = {term: ids.count for term, ids in terms.items()}
            yield f"edges of slice {number}: state before {before.count}, state after {after.count}, {counts}"
        before = after
        fates = {fate: tallies.get((number, "fates", fate.value), IdSum()).count for fate in Fate}
        if {fate: count for fate, count in fates.items() if count} != answer.hours[number].fates:
            yield f"fates of slice {number}: {fates}, and in one process {answer.hours[number].fates}"


def view_rows(case: Case, panes: Sequence[Row]) -> list[Row]:
    """Return the published view over rows of window_outputs, as a reader without Spark gets it."""
    run, keys = case.engine, case.pipeline.log.key_columns
    table = tables.window_outputs(dict.fromkeys(keys, "string"), run.outputs)
    schema = pa.schema([pa.field(name, arrow_type(node)) for name, node in table.stored_columns().items()])
    placed = [{**row, "slice_id": HOURS[row["slice_no"]], "attempt_id": "0", "run_id": "0"} for row in panes]
    columns = [name for name in schema.names if name not in {"row_id", "fired_rank"}]
    sql = published_sql(PublishedView(keys=keys, columns=columns), relation="panes", quote=quote_duckdb)
    found = query({"panes": pa.Table.from_pylist(placed, schema=schema)}, sql)
    return [{**row, "slice_no": HOURS.index(row["slice_id"])} for row in found.to_pylist()]


def lost_to_readers(case: Case, answer: Answer, seen: Sequence[Row]) -> str | None:
    """Compare the records that the view's panes hold with those that were fired; None where readers can count them all.

    It is asked where every fired record must be in what readers see: no evictor chose records, and no function of a
    user's decided whether a firing says anything.
    """
    if case.family not in OWN_WINDOWS or case.pipeline.process is not None or case.choice["evictor"] != "none":
        return None
    if case.choice["windows"] == "count-slide":
        return None  # these windows share records
    fired = sum(tally.count for hour in answer.hours for term, tally in hour.tallies.items() if term == "closed:fired")
    fired += sum(row.fired_count for row in answer.hours[-1].snapshot.windows)
    told = sum(row["record_count"] for row in seen)
    return None if told == fired else f"readers can count {told} records, and {fired} were fired"
