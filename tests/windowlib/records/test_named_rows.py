"""The ids of rows of plain values."""

from windowlib.records import tables
from windowlib.records.named_rows import content_id, tally_content
from windowlib.records.row_ids import IdSum


def test_the_id_of_content_depends_on_names_and_not_on_their_order() -> None:
    table = tables.tallies()
    content = tally_content("rows", "timers", IdSum.of([1, 2]))
    assert list(content) == list(table.content)
    assert content_id(table, dict(reversed(content.items()))) == content_id(table, content)
    assert content_id(table, content | {"other": 1}) == content_id(table, content)
    assert content_id(table, content | {"term": "panes"}) != content_id(table, content)
