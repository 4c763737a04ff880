"""The drawings of the report as SVG. `escape` is applied to every text; colours are CSS classes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from markupsafe import Markup, escape

from jobs.plain_text import counted
from jobs.review.report.checks import CheckTrend, Point
from jobs.review.report.model import SliceLine, Status, total
from jobs.runs import VERDICTS, Counts, Verdict, by_fate

MAX_BARS = 240
_CHARACTER = 6.5
"""The width of a character of a label at most, in pixels."""
MAX_POINTS = 160
MAX_MARKS = 600
_T = TypeVar("_T")
_WORST = (
    Status.MISSING, Status.AWAITED, Status.PASS, Status.EMPTY, Status.STAGED, Status.WARN, Status.WAIVED, Status.FAIL,
    Status.ERROR,
)  # fmt: skip


def stacked_bar(counts: Counts, *, width: int = 120, height: int = 10) -> Markup:
    """Return a bar with the fates of one slice; a fate with at least one record is at least one pixel wide."""
    parts, x = [], 0.0
    for fate, share in _shares(counts):
        shown = max(share * width, 1.0) if share else 0.0
        if shown:
            parts.append(
                f'<rect class="f-{fate}" x="{_n(min(x, width - shown))}" width="{_n(shown)}" height="{height}"/>'
            )
        x += share * width
    label = ", ".join(f"{fate} {share * 100:.3g} %" for fate, share in _shares(counts) if share) or "no record was read"
    body = "".join(parts) or f'<rect class="f-none" width="{width}" height="{height}"/>'
    return _svg(body, size=(width, height), label=label, kind="bar")


def overview(lines: Sequence[SliceLine], *, width: int = 1080, height: int = 170) -> Markup:
    """Return a bar chart: the records of every slice by fate, and below each bar the slice's status.

    For more than 240 slices, each bar is one of several consecutive slices (`_shown_of`).
    """
    groups = _grouped(lines, MAX_BARS)
    shown = [_shown_of(group) for group in groups]
    totals = [total([line.run.result.counts] if line.run else []) for line in shown]
    top = max((counts.read for counts in totals), default=0) or 1
    left, bottom = 56, 40
    step, plot = (width - left) / max(len(groups), 1), height - bottom
    body = [_grid(top, left=left, width=width, plot=plot)]
    for index, (group, line, counts) in enumerate(zip(groups, shown, totals, strict=True)):
        x, bar = left + index * step + step * 0.08, min(step * 0.84, 46)
        x += (step * 0.84 - bar) / 2
        among = f"; stands for {group[0].slice_id} to {group[-1].slice_id}" if len(group) > 1 else ""
        body.append(f"<g><title>{escape(line.tip + among)}</title>")
        body.append(_column(counts, x=x, bar=bar, scale=plot / top / 1.04, base=plot))
        body.append(
            f'<rect class="s-{line.status.value}" x="{_n(x)}" y="{plot + 4}" width="{_n(bar)}" height="8" rx="1.5"/>'
            "</g>"
        )
        if _is_labelled(index, groups):
            label = group[0].slice_id
            is_wide = x + _CHARACTER * len(label) > width
            place, at = ("tick end", x + bar) if is_wide else ("tick", x)
            body.append(f'<text class="{place}" x="{_n(at)}" y="{height - 12}">{escape(label)}</text>')
    most = slices_per_bar(lines)
    many = f", one bar for up to {counted(most, 'slice')}" if most > 1 else ""
    return _svg("".join(body), size=(width, height), label=f"records read per slice by fate{many}", kind="overview")


def sparkline(trend: CheckTrend, *, width: int = 300, height: int = 54) -> Markup:
    """Return the curve of one check: its numbers as a line, its limits dashed, and a mark where it did not pass."""
    points = _sampled(trend.points)
    values = [point.value for point in points if point.value is not None]
    bounds = [*values, *(limit for limit in (trend.low, trend.high) if limit is not None)]
    low, high = min(bounds, default=0.0), max(bounds, default=1.0)
    spread = (high - low) or abs(high) or 1.0
    pad = 9

    def y_of(value: float) -> float:
        return pad + (high - value) / spread * (height - 2 * pad)

    xs = [pad + index * (width - 2 * pad) / max(len(points) - 1, 1) for index in range(len(points))]
    limits = (limit for limit in (trend.low, trend.high) if limit is not None)
    body = [f'<path class="limit" d="M0 {_n(y_of(limit))}H{width}"/>' for limit in limits]
    body += [f'<path class="curve" d="{path}"/>' for path in _paths(points, xs, y_of)]
    for point, x in zip(points, xs, strict=True):
        if point.verdict is not Verdict.PASS:
            y = y_of(point.value) if point.value is not None else height / 2
            body.append(_mark(point, x, y))
    return _svg("".join(body), size=(width, height), label=_spark_label(trend, values), kind="spark")


def verdict_strip(trend: CheckTrend, *, width: int = 300, height: int = 12) -> Markup:
    """Return a strip for a check without a curve: one cell per slice, filled by its verdict.

    For more than 100 slices, each cell has the worst verdict of several consecutive slices.
    """
    groups = _grouped(trend.points, 100)
    step = width / max(len(groups), 1)
    cells = []
    for index, group in enumerate(groups):
        verdict = max((point.verdict for point in group), key=VERDICTS.index)
        size = max(step - 1, 0.6)
        cells.append(
            f'<rect class="s-{verdict.value}" x="{_n(index * step)}" width="{_n(min(size, 16))}" height="{height}"/>'
        )
    return _svg("".join(cells), size=(width, height), label=_spark_label(trend, []), kind="strip")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarGrid:
    """The cells as (column, row, slice). `rows` and `columns` map the number of a row or column to its label."""

    cells: Sequence[tuple[int, int, SliceLine]]
    label: str
    rows: Mapping[int, str]
    columns: Mapping[int, str]
    cell: int = 13
    left: int = 0


def cell_grid(grid: CalendarGrid) -> Markup:
    """Return slices as cells: one path per status, and a sign with a title on slices that need attention.

    A slice takes about 15 bytes, so a page can have ten thousand.
    """
    paths: dict[Status, list[str]] = {}
    marks: list[str] = []
    cell, inner, top = grid.cell, grid.cell - 2, 14
    for column, row, line in grid.cells:
        x, y = grid.left + column * cell, top + row * cell
        paths.setdefault(line.status, []).append(f"M{x} {y}h{inner}v{inner}h-{inner}z")
        if line.status is Status.EMPTY:
            paths[line.status].append(_hatch(x, y, inner))
        if line.status not in {Status.PASS, Status.MISSING} and len(marks) < MAX_MARKS:
            sign = f'<text class="sign s-{line.status.value}" x="{_n(x + inner / 2)}" y="{y + inner - 1}">'
            marks.append(f"<g><title>{escape(line.tip)}</title>{sign}{line.status.symbol}</text></g>")
    body = [f'<path class="s-{status.value}" d="{"".join(parts)}"/>' for status, parts in paths.items()]
    ticks = [(grid.left + column * cell, 10, text) for column, text in grid.columns.items()]
    ticks += [(0, top + (row + 1) * cell - 3, text) for row, text in grid.rows.items()]
    body += [f'<text class="tick" x="{x}" y="{y}">{escape(text)}</text>' for x, y, text in ticks]
    width = grid.left + (max(column for column, _, _ in grid.cells) + 1) * cell
    height = top + (max(row for _, row, _ in grid.cells) + 1) * cell
    return _svg("".join(body + marks), size=(width, height), label=grid.label, kind="cells")


def _hatch(x: int, y: int, size: int) -> str:
    """Return the part of a path that hatches a cell: three diagonal lines."""
    half = size // 2
    return f"M{x} {y + half}l{half} -{half}M{x} {y + size}l{size} -{size}M{x + size - half} {y + size}l{half} -{half}"


def _shares(counts: Counts) -> list[tuple[str, float]]:
    fates = by_fate(counts)
    whole = max(sum(fates.values()), 1)
    return [(fate, part / whole) for fate, part in fates.items()]


def _column(counts: Counts, *, x: float, bar: float, scale: float, base: int) -> str:
    parts, y = [], float(base)
    for fate, part in by_fate(counts).items():
        if part:
            tall = max(part * scale, 0.8)
            y -= tall
            parts.append(f'<rect class="f-{fate}" x="{_n(x)}" y="{_n(y)}" width="{_n(bar)}" height="{_n(tall)}"/>')
    return "".join(parts)


def _grid(top: int, *, left: int, width: int, plot: int) -> str:
    parts = []
    for value in _ticks(top):
        y = plot - value * plot / top / 1.04
        parts.append(f'<path class="grid" d="M{left} {_n(y)}H{width}"/>')
        parts.append(f'<text class="tick end" x="{left - 8}" y="{_n(y + 4)}">{value:,}</text>')
    return "".join(parts)


def _ticks(top: int) -> list[int]:
    """Return zero and at most four round numbers up to `top`."""
    step = 1
    while top / step > 4:  # noqa: PLR2004 -- lines
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return list(range(0, top + 1, step))


def _is_labelled(index: int, groups: Sequence[Sequence[SliceLine]]) -> bool:
    """Return whether a bar has a label: the first one, then one per tenth of the width (a label needs 80 pixels)."""
    every = max(1, -(-len(groups) // 10))
    return index % every == 0 and (index + every / 2 < len(groups) or index == 0)


def _shown_of(group: Sequence[SliceLine]) -> SliceLine:
    """Return the slice that stands for its group: the one with the worst status, then with the most records."""
    return max(group, key=lambda line: (_WORST.index(line.status), line.run.result.counts.read if line.run else 0))


def slices_per_bar(lines: Sequence[SliceLine]) -> int:
    """Return for how many slices at most a bar of `overview` stands."""
    return -(-len(lines) // MAX_BARS)


def _sampled(points: Sequence[Point]) -> list[Point]:
    """Return at most 160 points: of each group, the one with the worst verdict, then with the greatest value."""
    groups = _grouped(points, MAX_POINTS)
    return [max(group, key=lambda point: (VERDICTS.index(point.verdict), abs(point.value or 0.0))) for group in groups]


def _paths(points: Sequence[Point], xs: Sequence[float], y_of: Callable[[float], float]) -> list[str]:
    """Return polylines, interrupted at slices without a number; a single number is a short dash."""
    paths: list[str] = []
    pen = ""
    for point, x in zip(points, xs, strict=True):
        if point.value is None:
            paths += [pen] if pen else []
            pen = ""
        else:
            pen += f"{'L' if pen else 'M'}{_n(x)} {_n(y_of(point.value))}"
    paths += [pen] if pen else []
    return [path if "L" in path else f"{path}h2" for path in paths]


def _mark(point: Point, x: float, y: float) -> str:
    """Return a cross for fail, a triangle for warn, a square for error, so that colour is not needed."""
    shapes = {
        Verdict.FAIL: f"M{_n(x - 4)} {_n(y - 4)}l8 8m0 -8l-8 8",
        Verdict.WARN: f"M{_n(x)} {_n(y - 4.5)}l4.5 8h-9z",
        Verdict.ERROR: f"M{_n(x - 4)} {_n(y - 4)}h8v8h-8z",
    }
    title = f"<title>{escape(point.slice_id)}: {point.verdict.value}</title>"
    return f'<path class="mark m-{point.verdict.value}" d="{shapes[point.verdict]}">{title}</path>'


def _spark_label(trend: CheckTrend, values: Sequence[float]) -> str:
    verdicts = ", ".join(f"{count} {verdict.value}" for verdict, count in trend.counts.items() if count)
    slices = counted(len(trend.points), "slice")
    if not values:
        return f"{slices}: {verdicts}"
    return f"{slices}: {verdicts}; from {trend.spelled(min(values))} to {trend.spelled(max(values))}"


def _grouped(items: Sequence[_T], most: int) -> list[Sequence[_T]]:
    """Return at most `most` consecutive groups whose lengths differ by one at most."""
    groups = min(len(items), most)
    bounds = [number * len(items) // groups for number in range(groups + 1)] if groups else [0]
    return [items[start:end] for start, end in pairwise(bounds)]


def _svg(body: str, *, size: tuple[float, float], label: str, kind: str) -> Markup:
    width, height = (_n(length) for length in size)
    head = f'<svg class="{kind}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
    # The callers have escaped every text in `body`; the rest is numbers and fixed class names.
    return Markup(f'{head} aria-label="{escape(label)}">{body}</svg>')  # noqa: S704


def _n(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def share_bar(part: int, whole: int, *, width: int = 320, height: int = 10) -> Markup:
    """Return a bar that shows a count as a part of a whole."""
    shown = max(part / whole * width, 1.0) if part and whole else 0.0
    parts = (("f-none", width), ("f-late", shown))
    body = "".join(f'<rect class="{kind}" width="{_n(length)}" height="{height}"/>' for kind, length in parts)
    return _svg(body, size=(width, height), label=f"{part:,} of {whole:,}", kind="bar")
