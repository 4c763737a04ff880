"""The calendar of slices: months with week rows for days, a strip per year for many days, a grid for shorter slices."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from markupsafe import Markup

from jobs.report_model import ReportModel, SliceLine
from jobs.report_svg import cell_grid

MAX_MONTH_CELLS = 800
PER_ROW = 96
_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One cell of a month: its date, and the slice of that day, None before the first and after the last."""

    day: date
    line: SliceLine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """One month: weeks from Monday to Sunday; None for days of the months beside it."""

    label: str
    weeks: tuple[tuple[Day | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One drawn block of cells, with what its rows and columns are."""

    label: str
    drawing: Markup


def months(model: ReportModel) -> tuple[Month, ...]:
    """The months of a daily pipeline, oldest first; none where slices are not days, or too many."""
    if not model.is_daily or not 0 < len(model.lines) <= MAX_MONTH_CELLS:
        return ()
    by_day = _by_day(model.lines)
    first, last = min(by_day), max(by_day)
    found, start = [], first.replace(day=1)
    while start <= last:
        found.append(_month(start, by_day))
        start = (start + timedelta(days=32)).replace(day=1)
    return tuple(found)


def strips(model: ReportModel) -> tuple[Strip, ...]:
    """Everything that `months` does not show: a strip per year for days, else one row per day or per 96 slices."""
    if not model.lines or months(model):
        return ()
    if model.is_daily:
        return _years(model.lines)
    rows = _rows(model)
    label = f"{len(model.lines):,} slices, {len(rows)} rows; each row begins at the time beside it"
    placed = [(column, row, line) for row, lines in enumerate(rows) for column, line in enumerate(lines)]
    widest = max(map(len, rows))
    return (Strip(label=f"from {model.lines[0].slice_id}", drawing=cell_grid(placed, size=(widest, len(rows)), label=label)),)


def _by_day(lines: Sequence[SliceLine]) -> dict[date, SliceLine]:
    return {date.fromisoformat(line.slice_id): line for line in lines}


def _month(start: date, by_day: dict[date, SliceLine]) -> Month:
    monday = start - timedelta(days=start.weekday())
    weeks = []
    while monday < (start + timedelta(days=32)).replace(day=1):
        week = [monday + timedelta(days=offset) for offset in range(_DAYS)]
        weeks.append(tuple(Day(day=day, line=by_day.get(day)) if day.month == start.month else None for day in week))
        monday += timedelta(days=_DAYS)
    return Month(label=start.strftime("%B %Y"), weeks=tuple(weeks))


def _years(lines: Sequence[SliceLine]) -> tuple[Strip, ...]:
    by_year: dict[int, list[tuple[int, int, SliceLine]]] = {}
    for day, line in _by_day(lines).items():
        week = (day.timetuple().tm_yday - 1 + date(day.year, 1, 1).weekday()) // _DAYS
        by_year.setdefault(day.year, []).append((week, day.weekday(), line))
    return tuple(
        Strip(label=str(year), drawing=cell_grid(placed, size=(54, _DAYS), label=f"{len(placed)} days of {year}, a column per week"))
        for year, placed in by_year.items()
    )


def _rows(model: ReportModel) -> list[list[SliceLine]]:
    """A row per date where a day has at most 96 slices, else rows of 96."""
    by_date: dict[str, list[SliceLine]] = {}
    for line in model.lines:
        by_date.setdefault(line.slice_id[:10], []).append(line)
    if max(map(len, by_date.values())) <= PER_ROW:
        return list(by_date.values())
    return [list(model.lines[start : start + PER_ROW]) for start in range(0, len(model.lines), PER_ROW)]
