"""The rule of the published view, in DuckDB, against the rule spelt out in Python."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.published import PublishedView, published_sql, quote_duckdb, quote_spark
from jobs.store import query

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
            [pane(1), pane(0, kind="superseded", fired_rank=1), pane(3, fired_rank=2)], [3], id="and may come back"
        ),
        pytest.param([pane(1, mode="discarding"), pane(2, mode="discarding", pane_index=1)], [1, 2], id="discarding"),
        pytest.param(
            [pane(1), pane(1, kind="retraction", fired_rank=1, pane_index=1), pane(2, fired_rank=1, pane_index=2)], [2],
            id="a retraction is no result",
        ),
        pytest.param([], [], id="nothing"),
    ],
)  # fmt: skip
def test_the_rule(rows: list[dict[str, Any]], seen: list[int]) -> None:
    assert show(rows) == seen
    assert show(rows, all_panes=True) == sorted(row["total"] for row in rows)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y", None]),
            st.sampled_from(["2024-01-01", "2024-01-02"]),
            st.integers(0, 2),
            st.integers(0, 2),
            st.sampled_from(["result", "superseded", "retraction"]),
            st.booleans(),
        ),
        max_size=12,
        unique_by=lambda row: row[:4],
    )
)
def test_it_is_what_the_words_say(rows: list[tuple[Any, ...]]) -> None:
    modes = {key: discarding for key, *_, discarding in rows}
    panes = [
        pane(index, **{KEY: key}, slice_id=slice_id, fired_rank=rank, pane_index=number, kind=kind,
             mode="discarding" if modes[key] else "accumulating")
        for index, (key, slice_id, rank, number, kind, _) in enumerate(rows)
    ]  # fmt: skip
    expected = []
    for key in modes:
        own = sorted(
            (one for one in panes if one[KEY] == key),
            key=lambda one: (one["slice_id"], one["fired_rank"], one["pane_index"]),
        )
        if own[-1]["kind"] == "result":
            expected += [one["total"] for one in own if one["kind"] == "result"] if modes[key] else [own[-1]["total"]]
    assert show(panes) == sorted(expected)


def test_quoting_leaves_nothing_to_execute() -> None:
    assert quote_duckdb('a"b') == '"a""b"'
    assert quote_spark("a`b; drop") == "`a``b; drop`"
