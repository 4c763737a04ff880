"""The points of a plot, and where its line is interrupted."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import given, strategies as st

from jobs.review.pages.plots import newest_panes, plots_of

HOUR_MS = 3_600_000
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


def panes(hours: list[int]) -> pa.Table:
    starts = [BEGIN + timedelta(hours=hour) for hour in hours]
    return pa.table(
        {
            "window_start": pa.array(starts, pa.timestamp("us", "UTC")),
            "kind": ["result"] * len(hours),
            "total": hours,
        }
    )


def test_the_newest_pane_of_a_window_replaces_the_panes_before() -> None:
    rows = panes([0, 0, 0, 0, 1]).append_column("key", pa.array(["a", "a", "a", "b", "a"]))
    rows = rows.set_column(rows.column_names.index("total"), "total", pa.array([1, 2, 3, 10, 5]))
    rows = rows.append_column("pane_index", pa.array([0, 2, 1, 0, 0])).append_column(
        "fired_rank", pa.array([1, 9, 5, 1, 1])
    )
    rows = rows.append_column("window_end", rows["window_start"])
    newest = newest_panes(rows, ["key", "window_start", "window_end"])
    [plot] = plots_of(newest, ["total"], every_ms=HOUR_MS, most=120)
    assert [(point.mean, point.least, point.most, point.count) for point in plot.points] == [
        (6, 2, 10, 2),
        (5, 5, 5, 1),
    ]


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
