"""Drawings of the pages as SVG. Every text is escaped; colours are classes of the style sheet."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from expectations.formatting import instant, spell
from jobs.plain_text import counted, escaped
from jobs.review.pages.check_history import CheckPast
from jobs.review.pages.plots import Plot, PlotPoint
from jobs.runs import Verdict

WIDTH, HEIGHT = 420, 150
TOP, BOTTOM, SIDE = 14, 20, 6
"""The space around the points: BOTTOM has the labels of the horizontal axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPoint:
    """A point of a chart: its place from 0 to 1, its value (None: a gap), the text on hover, and the range around it.

    `is_after_gap`: no line leads to this point. `verdict` marks the point if it is not PASS.
    """

    place: float
    value: float | None
    tip: str
    least: float | None = None
    most: float | None = None
    is_after_gap: bool = False
    verdict: Verdict = Verdict.PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A line over places from 0 to 1, with axes. `marks` are (place, label) of the horizontal axis, from the left.

    `usual` is a range that is drawn over the whole width, `limits` are dashed lines, `spelled` labels the values.
    """

    points: Sequence[ChartPoint]
    label: str
    spelled: Callable[[float], str]
    marks: Sequence[tuple[float, str]]
    usual: tuple[float, float] | None = None
    limits: Sequence[float] = ()


def chart_svg(chart: Chart) -> Markup:
    """Return a chart: axes with labels, a line with gaps, ranges as bands, and the value of each point on hover."""
    points = chart.points
    known = [value for point in points for value in (point.value, point.least, point.most) if value is not None]
    bounds = [*known, *chart.limits, *(chart.usual or ())]
    low, high = min(bounds, default=0.0), max(bounds, default=1.0)
    spread = (high - low) or 1.0

    def x_of(place: float) -> str:
        return _n(SIDE + place * (WIDTH - 2 * SIDE))

    def y_of(value: float) -> str:
        return _n(TOP + (high - value) / spread * (HEIGHT - TOP - BOTTOM))

    labelled = [low, (low + high) / 2, high] if high > low else [low]
    lines, labels = _axes(chart, [(value, y_of(value)) for value in labelled], x_of)
    body = [lines]
    if chart.usual is not None:
        tall = _n(abs(float(y_of(chart.usual[0])) - float(y_of(chart.usual[1]))) or 1)
        body.append(f'<rect class="usual" x="0" y="{y_of(chart.usual[1])}" width="{WIDTH}" height="{tall}"/>')
    body += [f'<path class="limit" d="M0 {y_of(limit)}H{WIDTH}"/>' for limit in chart.limits]
    for part in _parts(points):
        forth = [f"{x_of(point.place)} {y_of(point.most)}" for point in part if point.most is not None]
        back = [f"{x_of(point.place)} {y_of(point.least)}" for point in reversed(part) if point.least is not None]
        if forth:
            body.append(f'<path class="band" d="M{"L".join([*forth, *back])}Z"/>')
        line = "L".join(f"{x_of(point.place)} {y_of(point.value)}" for point in part if point.value is not None)
        body.append(f'<path class="curve" d="M{line}{"h2" if len(part) == 1 else ""}"/>')
    body += [f'<circle class="mark m-{point.verdict.value}" cx="{x_of(point.place)}" cy="{y_of(point.value)}" r="4"/>'
             for point in points if point.value is not None and point.verdict is not Verdict.PASS]  # fmt: skip
    body += [labels, *_hover(points, x_of)]
    label = escape(escaped(chart.label))
    return Markup(  # noqa: S704 -- numbers, fixed class names, and escaped texts
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(body)}</svg>'
    )


def _axes(chart: Chart, heights: Sequence[tuple[float, str]], x_of: Callable[[float], str]) -> tuple[str, str]:
    """Return the lines of some values, which have these heights, and the marks of the places; and all labels."""
    lines, labels = [], []
    for value, y in heights:
        lines.append(f'<path class="grid" d="M0 {y}H{WIDTH}"/>')
        labels.append(f'<text class="tick" x="0" y="{_n(float(y) - 3)}">{escape(escaped(chart.spelled(value)))}</text>')
    for number, (place, text) in enumerate(chart.marks):
        side = "" if not number else " end" if number == len(chart.marks) - 1 else " middle"
        x = "0" if not number else str(WIDTH) if number == len(chart.marks) - 1 else x_of(place)
        lines.append(f'<path class="grid" d="M{x_of(place)} {HEIGHT - BOTTOM}v4"/>')
        labels.append(f'<text class="tick{side}" x="{x}" y="{HEIGHT - 4}">{escape(escaped(text))}</text>')
    return "".join(lines), "".join(labels)


def _parts(points: Sequence[ChartPoint]) -> Iterator[list[ChartPoint]]:
    """Yield the consecutive points that a line connects."""
    part: list[ChartPoint] = []
    for point in points:
        if part and (point.value is None or point.is_after_gap):
            yield part
            part = []
        if point.value is not None:
            part.append(point)
    if part:
        yield part


def _hover(points: Sequence[ChartPoint], x_of: Callable[[float], str]) -> Iterator[str]:
    """Yield a transparent column for each point. The browser shows its title."""
    xs = [float(x_of(point.place)) for point in points]
    for number, point in enumerate(points):
        left = 0.0 if not number else (xs[number - 1] + xs[number]) / 2
        right = WIDTH if number == len(xs) - 1 else (xs[number] + xs[number + 1]) / 2
        tip = escape(escaped(point.tip))
        yield (
            f'<rect class="hover" x="{_n(left)}" y="0" width="{_n(right - left)}" height="{HEIGHT - BOTTOM}">'
            f"<title>{tip}</title></rect>"
        )


def plot_svg(plot: Plot) -> Markup:
    """Return the plot of an output: the mean as a line, and a band from the least to the greatest value."""
    points, name = plot.points, plot.name
    first, last = (points[0].at_ms, points[-1].at_ms) if points else (0, 1)
    span = (last - first) or 1
    shown = [
        ChartPoint(
            place=(point.at_ms - first) / span,
            value=point.mean,
            least=point.least,
            most=point.most,
            is_after_gap=number > 0 and point.at_ms - points[number - 1].at_ms > plot.step_ms,
            tip=_point_text(point, name),
        )
        for number, point in enumerate(points)
    ]
    marks = [(place, instant(first + place * span).removesuffix(" UTC")) for place in (0.0, 0.5, 1.0)]
    return chart_svg(
        Chart(
            points=shown,
            label=f"{name}: {plot_caption(plot)}",
            spelled=lambda value: spell(value, name),
            marks=marks if last > first else marks[:1],
        )
    )


def past_svg(past: CheckPast) -> Markup:
    """Return the plot of a check's history: a point for each slice, the usual range as a band, limits dashed."""
    trend = past.trend
    count = len(trend.points)
    places = [number / max(count - 1, 1) for number in range(count)]
    shown = [
        ChartPoint(
            place=place,
            value=point.value,
            verdict=point.verdict,
            tip=f"{point.slice_id}: {past.shown(point.value)}, {point.verdict.value}",
        )
        for place, point in zip(places, trend.points, strict=True)
    ]
    usual = past.usual[0] if past.usual else None
    ids = [point.slice_id for point in trend.points]
    return chart_svg(
        Chart(
            points=shown,
            label=f"{counted(count, 'slice')}, {' '.join(past.sentences())}",
            spelled=trend.spelled,
            marks=[(0.0, ids[0]), (1.0, ids[-1])] if count > 1 else [(0.0, ids[0])],
            usual=None if usual is None else (usual.low, usual.high),
            limits=[limit for limit in (trend.low, trend.high) if limit is not None],
        )
    )


def progress_svg(done: int, whole: int) -> Markup:
    """Return a bar of progress."""
    width = 600
    shown = min(1.0, done / whole) * width if whole else 0.0
    label = escape(f"{done:,} of {counted(whole, 'slice')} staged")
    return Markup(  # noqa: S704 -- numbers and an escaped label
        f'<svg class="progress" viewBox="0 0 {width} 12" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<rect class="f-none" width="{width}" height="12"/>'
        f'<rect class="f-assigned" width="{shown:.1f}" height="12"/></svg>'
    )


def _point_text(point: PlotPoint, name: str) -> str:
    mean, least, most = (spell(value, name) for value in (point.mean, point.least, point.most))
    values = mean if point.count == 1 else f"mean {mean}, from {least} to {most}, {counted(point.count, 'value')}"
    return f"{instant(point.at_ms)}: {values}"


def plot_caption(plot: Plot) -> str:
    """Return the range of a plot in words."""
    points, name = plot.points, plot.name
    if not points:
        return "no number"
    least, most = min(point.least for point in points), max(point.most for point in points)
    span = f"{instant(points[0].at_ms)} to {instant(points[-1].at_ms)}"
    return f"from {spell(least, name)} to {spell(most, name)}; windows that start {span}"


def _n(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
