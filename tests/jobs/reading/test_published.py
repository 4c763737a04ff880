"""The query of the published view, run by DuckDB and compared with a model in Python."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from jobs.lake.arrow_sql import query
from jobs.reading.published import PublishedView, published_sql, quote_duckdb, quote_spark
from tests.support.fuzzing import cases
from tests.support.visible_panes import visible_by_order

KEY = 'a "key"; --'
SCHEMA = pa.schema(
    [
        (KEY, pa.string()),
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("window_end", pa.timestamp("us", tz="UTC")),
        ("pane_index", pa.int32()),
        ("mode", pa.string()),
        ("kind", pa.string()),
        ("total", pa.int64()),
        ("fired_rank", pa.int64()),
        ("slice_id", pa.string()),
    ]
)


def pane(total: int, **changes: object) -> dict[str, Any]:
    row = {
        KEY: "k",
        "window_start": datetime(1969, 12, 31, tzinfo=UTC),
        "window_end": None,
        "pane_index": 0,
        "mode": "accumulating",
        "kind": "result",
        "total": total,
        "fired_rank": 0,
        "slice_id": "2024-01-01",
    }
    return row | changes


def show(rows: list[dict[str, Any]], *, all_panes: bool = False) -> list[int]:
    view = PublishedView(keys=[KEY], columns=["total"], all_panes=all_panes)
    sql = published_sql(view, relation="panes", quote=quote_duckdb)
    return sorted(query({"panes": pa.Table.from_pylist(rows, schema=SCHEMA)}, sql)["total"].to_pylist())


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        pytest.param([pane(1), pane(2, pane_index=1)], [2], id="the last pane of a window"),
        pytest.param([pane(1, fired_rank=9), pane(2, slice_id="2024-01-02")], [2], id="a later slice counts first"),
        pytest.param([pane(1, fired_rank=2), pane(2, fired_rank=10)], [2], id="positions are numbers"),
        pytest.param([pane(1), pane(2, **{KEY: None})], [1, 2], id="a null key is a key"),
        pytest.param([pane(1), pane(0, kind="superseded", slice_id="2024-01-02")], [], id="superseded is hidden"),
        pytest.param(
            [
                pane(1),
                pane(0, kind="superseded", pane_index=1),
                pane(3, slice_id="2024-01-02"),
            ],
            [3],
            id="a superseded window may return, with panes numbered from 0",
        ),
        pytest.param([pane(1, mode="discarding"), pane(2, mode="discarding", pane_index=1)], [1, 2], id="discarding"),
        pytest.param(
            [pane(1), pane(1, kind="retraction", fired_rank=1, pane_index=1), pane(2, fired_rank=1, pane_index=2)], [2],
            id="a retraction is not a result",
        ),
        pytest.param(
            [pane(1, fired_rank=9), pane(2, pane_index=1), pane(3, pane_index=2)], [3],
            id="the highest index, whatever its position",
        ),
        pytest.param(
            [pane(1), pane(2, pane_index=1, mode="discarding"), pane(5, pane_index=2), pane(3, pane_index=3)], [1, 3],
            id="a pane replaces only the panes that it repeats",
        ),
        pytest.param(
            [pane(1), pane(2, pane_index=1, mode="discarding"), pane(0, pane_index=2, kind="superseded")], [1],
            id="a withdrawal removes the last pane",
        ),
        pytest.param(
            [pane(1), pane(2), pane(3, pane_index=1), pane(4, pane_index=1)], [3, 4],
            id="all rows of the last firing are shown",
        ),
        pytest.param([], [], id="no rows"),
    ],
)  # fmt: skip
def test_the_view_shows_the_last_pane_of_each_window(rows: list[dict[str, Any]], seen: list[int]) -> None:
    assert show(rows) == seen
    assert show(rows, all_panes=True) == sorted(row["total"] for row in rows)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y", None]),
            st.sampled_from(["2024-01-01", "2024-01-02"]),
            st.integers(0, 3),
            st.integers(0, 1),
            st.sampled_from(["result", "result", "superseded", "retraction"]),
            st.sampled_from(["accumulating", "discarding"]),
        ),
        max_size=12,
    )
)
@settings(max_examples=cases(40))
def test_the_query_equals_the_model(rows: list[tuple[Any, ...]]) -> None:
    panes = [
        pane(index, **{KEY: key}, slice_id=slice_id, pane_index=number, fired_rank=rank, kind=kind, mode=mode)
        for index, (key, slice_id, number, rank, kind, mode) in enumerate(rows)
    ]
    keys = {one[KEY] for one in panes}
    expected = [row for key in keys for row in visible_by_order([one for one in panes if one[KEY] == key])]
    assert show(panes) == sorted(row["total"] for row in expected)


def test_quoted_identifiers_cannot_contain_sql() -> None:
    assert quote_duckdb('a"b') == '"a""b"'
    assert quote_spark("a`b; drop") == "`a``b; drop`"
