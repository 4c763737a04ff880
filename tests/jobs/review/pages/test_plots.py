"""The points of a plot, and where its line is interrupted."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import given, strategies as st

from jobs.review.pages.plots import plots_of, shown_panes

HOUR_MS = 3_600_000
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


def panes(hours: list[int]) -> pa.Table:
    starts = [BEGIN + timedelta(hours=hour) for hour in hours]
    return pa.table(
        {"window_start": pa.array(starts, pa.timestamp("us", "UTC")), "kind": ["result"] * len(hours), "total": hours}
    )


def fired(*values: int, kind: str = "result", window: int = 0, mode: str = "accumulating", pane: int = 0) -> pa.Table:
    """Return the rows of one firing of a window of one key."""
    count = len(values)
    rows = panes([window] * count).drop_columns(["kind", "total"])
    for name, word in (("key", "a"), ("slice_id", "2024-01-01"), ("kind", kind), ("mode", mode)):
        rows = rows.append_column(name, pa.array([word] * count))
    for name in ("pane_index", "fired_rank"):
        rows = rows.append_column(name, pa.array([pane] * count))
    return rows.append_column("window_end", rows["window_start"]).append_column("total", pa.array(values))


def test_the_panes_are_those_that_readers_see() -> None:
    """A withdrawn window has none, a later firing replaces an earlier one, and a discarding one adds to it."""
    rows = pa.concat_tables(
        [
            fired(1), fired(3, 4, pane=1),
            fired(5, window=1), fired(5, window=1, pane=1, kind="superseded"),
            fired(7, window=2, mode="retracting"), fired(7, window=2, pane=1, kind="retraction"),
            fired(8, window=3, mode="discarding"), fired(9, window=3, mode="discarding", pane=1),
        ]
    )  # fmt: skip
    shown = shown_panes(rows.take([*reversed(range(len(rows)))]), ["key"])
    assert sorted(shown["total"].to_pylist()) == [3, 4, 8, 9]


@given(st.sets(st.integers(0, 400), min_size=1), st.integers(2, 120))
def test_regular_windows_have_a_gap_exactly_where_an_interval_has_no_window(hours: set[int], most: int) -> None:
    [plot] = plots_of(panes(sorted(hours)), ["total"], every_ms=HOUR_MS, most=most)
    assert len(plot.points) <= most
    assert sum(point.count for point in plot.points) == len(hours)
    first, step = min(hours), round(plot.step_ms / HOUR_MS)
    filled = {(hour - first) // step for hour in hours}
    places = [round((point.at_ms - plot.points[0].at_ms) / plot.step_ms) for point in plot.points]
    assert places == sorted(filled)
    for before, after, place, following in zip(plot.points, plot.points[1:], places, places[1:], strict=False):
        assert (after.at_ms - before.at_ms > plot.step_ms) == (following - place > 1)


def test_sessions_are_neighbours_up_to_three_usual_distances() -> None:
    [plot] = plots_of(panes([0, 2, 3, 5, 6, 40, 42]), ["total"], every_ms=None, most=120)
    gaps = [
        after.at_ms - before.at_ms > plot.step_ms for before, after in zip(plot.points, plot.points[1:], strict=False)
    ]
    assert gaps == [False, False, False, False, True, False]


def test_a_single_window_is_a_plot() -> None:
    [plot] = plots_of(panes([5]), ["total"], every_ms=HOUR_MS, most=120)
    assert [(point.mean, point.count) for point in plot.points] == [(5.0, 1)]
