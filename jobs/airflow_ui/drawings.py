"""Drawings of the pages as SVG. Every text is escaped; colours are classes of the style sheet."""

from collections.abc import Sequence

from markupsafe import Markup, escape

from expectations.units import instant, spell
from jobs.plain_text import escaped
from jobs.review.pages.plots import Plot, PlotPoint

WIDTH, HEIGHT, PAD = 420, 110, 6


def plot_svg(plot: Plot) -> Markup:
    """Return a plot: the mean as a line, and the range from the least to the greatest value as a band."""
    points = plot.points
    low = min((point.least for point in points), default=0.0)
    high = max((point.most for point in points), default=1.0)
    spread = (high - low) or 1.0
    first, last = (points[0].at_ms, points[-1].at_ms) if points else (0, 1)

    def x_of(at_ms: int) -> str:
        return f"{PAD + (at_ms - first) / ((last - first) or 1) * (WIDTH - 2 * PAD):.1f}"

    def y_of(value: float) -> str:
        return f"{PAD + (high - value) / spread * (HEIGHT - 2 * PAD):.1f}"

    forth = [f"{x_of(point.at_ms)} {y_of(point.most)}" for point in points]
    back = [f"{x_of(point.at_ms)} {y_of(point.least)}" for point in reversed(points)]
    band = f'<path class="band" d="M{"L".join([*forth, *back])}Z"/>' if points else ""
    line = "L".join(f"{x_of(point.at_ms)} {y_of(point.mean)}" for point in points)
    curve = f'<path class="curve" d="M{line}{"h2" if len(points) == 1 else ""}"/>' if points else ""
    label = f"{escaped(plot.name)}: {_range(points, plot.name)}"
    return Markup(  # noqa: S704 -- numbers, fixed class names, and an escaped label
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{band}{curve}</svg>"
    )


def plot_caption(plot: Plot) -> str:
    """Return the range of a plot in words."""
    return _range(plot.points, plot.name)


def progress_svg(done: int, whole: int) -> Markup:
    """Return a bar of progress."""
    width = 600
    shown = min(1.0, done / whole) * width if whole else 0.0
    label = escape(f"{done:,} of {whole:,} slices are staged")
    return Markup(  # noqa: S704 -- numbers and an escaped label
        f'<svg class="progress" viewBox="0 0 {width} 12" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<rect class="f-none" width="{width}" height="12"/>'
        f'<rect class="f-assigned" width="{shown:.1f}" height="12"/></svg>'
    )


def _range(points: Sequence[PlotPoint], name: str) -> str:
    if not points:
        return "no number"
    least, most = min(point.least for point in points), max(point.most for point in points)
    span = f"{instant(points[0].at_ms)} to {instant(points[-1].at_ms)}"
    return f"from {spell(least, name)} to {spell(most, name)}; windows that start {span}"
