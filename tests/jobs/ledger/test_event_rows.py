"""The rows that a writer hashes are those that the table returns, in their values and in their types."""

import numpy as np
import pyarrow as pa
import pytest

from jobs.ledger.events import EventKind, LedgerEvent, event_rows, ledger_schema, staged_event
from tests.jobs.ledger.test_ledger_view import a_result


def returned(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return rows as an Arrow table returns them."""
    table: list[dict[str, object]] = pa.Table.from_pylist(rows, schema=ledger_schema()).to_pylist()
    return table


def test_rows_have_the_values_and_types_that_the_table_returns() -> None:
    whole = LedgerEvent(kind=EventKind.STAGED, late=np.int64(3), panes=2**40, seconds=2)  # type: ignore[arg-type]
    events = [staged_event("r", a_result(1), is_chain_start=True), whole, LedgerEvent(kind=EventKind.NOTE)]
    rows = event_rows(events, commit_id="c")
    assert [list(row) for row in rows] == [ledger_schema().names] * 3
    assert repr(rows) == repr(returned(rows))


def test_a_number_of_another_type_is_refused() -> None:
    """Arrow would store 1 for 1.5, and the hash would be of 1.5."""
    event = LedgerEvent(kind=EventKind.STAGED, late=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        event_rows([event], commit_id="c")
