"""The charts of the pages: axes, the value of each point on hover, gaps, and no hostile text."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from jobs.review.pages.plots import Plot, PlotPoint

pytestmark = pytest.mark.dags

HOUR_MS = 3_600_000
SVG = "{http://www.w3.org/2000/svg}"


def point(hour: int, mean: float = 1.0) -> PlotPoint:
    return PlotPoint(at_ms=hour * HOUR_MS, mean=mean, least=mean - 1, most=mean + 1, count=2)


def drawn(plot: Plot) -> ElementTree.Element:
    from jobs.airflow_ui.drawings import plot_svg

    return ElementTree.fromstring(str(plot_svg(plot)))  # noqa: S314 -- our own drawing


def curves(svg: ElementTree.Element) -> list[str]:
    return [one.attrib["d"] for one in svg.iter("path") if one.get("class") == "curve"]


def test_the_line_is_interrupted_where_no_window_starts() -> None:
    hours = [0, 1, 2, 10, 11, 20]
    svg = drawn(Plot(name="total", points=tuple(map(point, hours)), step_ms=HOUR_MS))
    assert [len(re.findall("[ML]", one)) for one in curves(svg)] == [3, 2, 1]
    whole = drawn(Plot(name="total", points=tuple(map(point, hours)), step_ms=100 * HOUR_MS))
    assert len(curves(whole)) == 1


def test_each_point_tells_its_values_and_the_axes_have_labels() -> None:
    svg = drawn(Plot(name="total", points=(point(0, 5), point(1, 7)), step_ms=HOUR_MS))
    tips = [one.text for one in svg.iter("title")]
    assert tips == [
        "1970-01-01 00:00 UTC: mean 5, from 4 to 6, 2 values",
        "1970-01-01 01:00 UTC: mean 7, from 6 to 8, 2 values",
    ]
    labels = [one.text for one in svg.iter("text")]
    assert labels == ["4", "6", "8", "1970-01-01 00:00", "1970-01-01 00:30", "1970-01-01 01:00"]
    hovers = [float(one.attrib["width"]) for one in svg.iter("rect") if one.get("class") == "hover"]
    assert sum(hovers) == pytest.approx(420), "the columns cover the whole width"


def test_a_hostile_name_is_escaped() -> None:
    from jobs.airflow_ui.drawings import plot_svg

    text = str(plot_svg(Plot(name='<script>"\u202e', points=(point(0),), step_ms=HOUR_MS)))
    assert "<script" not in text
    assert "\u202e" not in text


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(-1e12, 1e12)), max_size=30, unique_by=lambda one: one[0]))
def test_every_coordinate_is_inside_of_the_drawing(values: list[tuple[int, float]]) -> None:
    points = tuple(point(hour, mean) for hour, mean in sorted(values))
    svg = drawn(Plot(name="total", points=points, step_ms=HOUR_MS))
    for path in svg.iter("path"):
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attrib["d"]):
            assert 0 <= float(x) <= 420
            assert 0 <= float(y) <= 150
