"""Rows built by column name: the order of a table's columns does not matter to the caller."""

import pytest

from windowlib.errors import InvariantBroken
from windowlib.records import tables
from windowlib.records.named_rows import RowBuilder, content_id, tally_content
from windowlib.records.row_ids import IdSum

TIMERS = tables.timers({"k": "string"})
VALUES = {"at_ms": 4, "domain": "event", "k": "a", "key_group": 7, "window_end_ms": 5, "window_start_ms": 0}


def test_a_row_is_in_the_order_of_the_tables_columns() -> None:
    for names in (tuple(VALUES), tuple(reversed(VALUES))):
        name, row = RowBuilder(TIMERS, names).row(tuple(VALUES[name] for name in names))
        assert (name, dict(zip(TIMERS.columns(), row, strict=True))) == ("timers", VALUES)


@pytest.mark.parametrize("names", [[*VALUES, "other"], [name for name in VALUES if name != "k"], [*VALUES, "k"]])
def test_names_that_are_not_the_tables_columns_are_refused(names: list[str]) -> None:
    with pytest.raises(InvariantBroken, match="table timers"):
        RowBuilder(TIMERS, names)


@pytest.mark.parametrize("count", [5, 7])
def test_too_few_or_too_many_values_are_refused(count: int) -> None:
    with pytest.raises(InvariantBroken, match=f"{count} values for 6 columns"):
        RowBuilder(TIMERS, VALUES).row((1,) * count)


def test_the_id_of_content_depends_on_names_and_not_on_their_order() -> None:
    table = tables.tallies()
    content = tally_content("rows", "timers", IdSum.of([1, 2]))
    assert list(content) == list(table.content)
    assert content_id(table, dict(reversed(content.items()))) == content_id(table, content)
    assert content_id(table, content | {"other": 1}) == content_id(table, content)
    assert content_id(table, content | {"term": "panes"}) != content_id(table, content)
