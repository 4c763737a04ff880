"""The calendar of slices: a table per month for days, a strip per year for many days, a grid for shorter slices."""

from calendar import Calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from markupsafe import Markup

from jobs.plain_text import counted
from jobs.review.report.model import MAX_LISTED_SLICES, ReportModel, SliceLine
from jobs.review.report.svg import CalendarGrid, cell_grid

PER_ROW = 96
_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One cell of a month: its date and the slice of that day; None before the first and after the last slice."""

    day: date
    line: SliceLine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """One month in weeks from Monday to Sunday; None for the days of the months before and after it."""

    label: str
    weeks: tuple[tuple[Day | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One drawing of slices as cells, with a label (a year, or empty)."""

    label: str
    drawing: Markup


def months(model: ReportModel) -> tuple[Month, ...]:
    """Return the months of a daily pipeline, oldest first; empty if slices are not days, or there are too many."""
    if not model.is_daily or not 0 < len(model.lines) <= MAX_LISTED_SLICES:
        return ()
    by_day = _by_day(model.lines)
    first, last = min(by_day), max(by_day)
    made, start = [], first.replace(day=1)
    while start <= last:
        made.append(_month(start, by_day))
        start = (start + timedelta(days=32)).replace(day=1)
    return tuple(made)


def strips(model: ReportModel) -> tuple[Strip, ...]:
    """Return the drawings for slices that `months` does not show.

    A daily pipeline has a strip per year. Other pipelines have one drawing with a row per date, or per 96 slices.
    """
    if not model.lines or months(model):
        return ()
    if model.is_daily:
        return _years(model.lines)
    rows = _rows(model)
    grid = CalendarGrid(
        cells=[(column, row, line) for row, lines in enumerate(rows) for column, line in enumerate(lines)],
        label=f"{counted(len(model.lines), 'slice')} in {counted(len(rows), 'row')}; the label of a row is its "
        "first slice",
        rows={row: lines[0].slice_id for row, lines in enumerate(rows)},
        columns={},
        left=128,
    )
    return (Strip(label="", drawing=cell_grid(grid)),)


def _by_day(lines: Sequence[SliceLine]) -> dict[date, SliceLine]:
    return {line.slice.day: line for line in lines if line.slice.day}


def _month(start: date, by_day: dict[date, SliceLine]) -> Month:
    weeks = (
        tuple(Day(day=day, line=by_day.get(day)) if day.month == start.month else None for day in week)
        for week in Calendar().monthdatescalendar(start.year, start.month)
    )
    return Month(label=start.strftime("%B %Y"), weeks=tuple(weeks))


def _years(lines: Sequence[SliceLine]) -> tuple[Strip, ...]:
    """Return one strip per year, newest first, with a column per week and a row per weekday."""
    by_year: dict[int, list[tuple[int, int, SliceLine]]] = {}
    for day, line in _by_day(lines).items():
        by_year.setdefault(day.year, []).append((_week(day), day.weekday(), line))
    return tuple(_year(year, by_year[year]) for year in sorted(by_year, reverse=True))


def _year(year: int, cells: Sequence[tuple[int, int, SliceLine]]) -> Strip:
    months = {_week(date(year, month, 1)): date(year, month, 1).strftime("%b") for month in range(1, 13)}
    last = max(column for column, _, _ in cells)
    grid = CalendarGrid(
        cells=cells,
        label=f"{counted(len(cells), 'day')} of {year}, a column per week from Monday to Sunday",
        rows={0: "Mo", 6: "Su"},
        columns={week: name for week, name in months.items() if week <= last},
        cell=9,
        left=22,
    )
    return Strip(label=str(year), drawing=cell_grid(grid))


def _week(day: date) -> int:
    """Return the column of a day in its year; weeks begin on Monday."""
    return (day.timetuple().tm_yday - 1 + date(day.year, 1, 1).weekday()) // _DAYS


def _rows(model: ReportModel) -> list[list[SliceLine]]:
    """Return a row per date if no date has more than 96 slices, otherwise rows of 96 slices."""
    by_date: dict[str, list[SliceLine]] = {}
    for line in model.lines:
        by_date.setdefault(line.slice_id[:10], []).append(line)
    if max(map(len, by_date.values())) <= PER_ROW:
        return list(by_date.values())
    return [list(model.lines[start : start + PER_ROW]) for start in range(0, len(model.lines), PER_ROW)]
