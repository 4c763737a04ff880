"""The ways in which a table could be cut into slices by arrival: by partition columns, by a time, or by commits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal
from zoneinfo import ZoneInfo

from jobs.doctor.table_facts import TableFacts
from jobs.doctor.yaml_text import spelled
from jobs.durations import UNIT_MS, format_duration
from jobs.pipeline.slices import local_ms

_ZONE: Final = ZoneInfo("UTC")
SliceKind = Literal["partition", "time", "commits"]
Values = tuple[str | None, ...]

_FORMATS: Final = (("yyyyMMddHH", "%Y%m%d%H", "h"), ("yyyyMMdd", "%Y%m%d", "d"))
_PARTS: Final = (
    ("year", ("year", "yyyy", "yr", "y")),
    ("month", ("month", "mm", "mon")),
    ("day", ("day", "dd")),
    ("hour", ("hour", "hh", "hr")),
)
_HOURS: Final = dict(_PARTS)["hour"]
_LONGEST_HOURLY_MS: Final = 2 * UNIT_MS["d"]
"""A log that is not longer is cut by hours, where that is a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCandidate:
    """One way to cut a table. `by` is the YAML of the keys `by` and `format`.

    `instant_ms` maps the texts of the columns in a file's partition to the instant at which the slice begins; None if
    they are none. Only a candidate of kind `partition` has it.
    """

    kind: SliceKind
    columns: tuple[str, ...]
    by: str
    every_ms: int
    instant_ms: Callable[[Values], int | None] | None = None

    @property
    def text(self) -> str:
        """The YAML of `log.slice`, without braces and without the first slice."""
        return self.by if self.every_ms == UNIT_MS["d"] else f"{self.by}, every: {format_duration(self.every_ms)}"

    def of_partition(self, partition: Mapping[str, str | None]) -> int | None:
        """Return the start of the slice of a file; None if a value is null or no time."""
        values = tuple(partition.get(name) for name in self.columns)
        return None if self.instant_ms is None or None in values else self.instant_ms(values)


def slice_candidates(facts: TableFacts, times: Sequence[str], chosen: Sequence[str] = ()) -> list[SliceCandidate]:
    """Return the candidates, best first.

    Args:
        facts: the table.
        times: columns that may say when a record arrived, best first.
        chosen: the columns that a person has named, or `commits`; all candidates if empty.
    """
    candidates = [*_by_partition(facts), *_by_time(facts, times), _by_commits(facts)]
    if not chosen:
        return candidates
    fitting = [candidate for candidate in candidates if candidate.columns == tuple(chosen)]
    if list(chosen) == ["commits"]:
        fitting = [candidate for candidate in candidates if candidate.kind == "commits"]
    by = f"by: {spelled(list(chosen)) if len(chosen) > 1 else spelled(chosen[0])}"
    return fitting or [SliceCandidate(kind="partition", columns=tuple(chosen), by=by, every_ms=UNIT_MS["d"])]


def _by_partition(facts: TableFacts) -> Iterator[SliceCandidate]:
    columns = [name for name in facts.log.partition_columns if facts.columns[name] != "binary"]
    values = {name: sorted({text for file in facts.files if (text := file.partition[name])}) for name in columns}
    hour = next((name for name in columns if name.lower() in _HOURS), None)
    for name in columns:
        dates = _dates(name, facts.columns[name], values[name])
        if dates is None:
            continue
        if hour is not None and hour != name and dates.every_ms == UNIT_MS["d"]:
            yield _with_hour(dates, hour)
        yield dates
    parts = [next((column for column in columns if column.lower() in names), None) for _, names in _PARTS]
    known = tuple(name for name in parts if name is not None)
    if None not in parts[:3]:
        yield _of_columns(known, _from_parts, every_ms=UNIT_MS["h" if len(known) > 3 else "d"])  # noqa: PLR2004


def _dates(name: str, kind: str, values: Sequence[str]) -> SliceCandidate | None:
    """Return the candidate of one column whose values are all dates or times; None if they are not."""
    if not values:
        is_date = kind == "date"
        return _of_columns((name,), lambda own: _iso_ms(own[0]), every_ms=UNIT_MS["d"]) if is_date else None
    for pattern, code, unit in _FORMATS:
        if kind != "date" and all(value.isdigit() and _read(value, code) is not None for value in values):
            own = f", format: {pattern}" if kind == "string" and unit == "h" else ""
            return _of_columns((name,), partial(_of_code, code), every_ms=UNIT_MS[unit], own=own)
    instants = [_iso_ms(value) for value in values] if kind in {"date", "string"} else [None]
    if None in instants:
        return None
    unit = next((unit for unit in ("d", "h") if all((at or 0) % UNIT_MS[unit] == 0 for at in instants)), "m")
    return _of_columns((name,), lambda parts: _iso_ms(parts[0]), every_ms=UNIT_MS[unit])


def _of_columns(
    columns: tuple[str, ...], instant_ms: Callable[[Values], int | None], *, every_ms: int, own: str = ""
) -> SliceCandidate:
    by = spelled(columns[0]) if len(columns) == 1 else spelled(list(columns))
    return SliceCandidate(
        kind="partition", columns=columns, by=f"by: {by}{own}", every_ms=every_ms, instant_ms=instant_ms
    )


def _with_hour(dates: SliceCandidate, hour: str) -> SliceCandidate:
    def instant_ms(values: Values) -> int | None:
        day = None if dates.instant_ms is None else dates.instant_ms(values[:1])
        number = values[1] or ""
        return None if day is None or not number.isdigit() else day + int(number) * UNIT_MS["h"]

    return _of_columns((*dates.columns, hour), instant_ms, every_ms=UNIT_MS["h"])


def _from_parts(values: Values) -> int | None:
    try:
        year, month, day, hour = (int(value or "") for value in (*values, "0")[:4])
        return local_ms(datetime(year, month, day, hour, tzinfo=UTC), _ZONE)
    except ValueError:
        return None


def _iso_ms(value: str | None) -> int | None:
    try:
        at = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return local_ms(at if at.tzinfo else at.replace(tzinfo=UTC), _ZONE)


def _of_code(code: str, values: Values) -> int | None:
    return _read(values[0], code)


def _read(value: str | None, code: str) -> int | None:
    try:
        at = datetime.strptime(value or "", code).replace(tzinfo=UTC)
    except ValueError:
        return None
    return local_ms(at, UTC) if at.strftime(code) == value else None  # type: ignore[arg-type]


def _by_time(facts: TableFacts, times: Sequence[str]) -> Iterator[SliceCandidate]:
    for name in times:
        every_ms = UNIT_MS["d"] if facts.columns[name] == "date" else _every_ms(facts.bounds_ms(name))
        yield SliceCandidate(kind="time", columns=(name,), by=f"by: {spelled(name)}", every_ms=every_ms)


def _by_commits(facts: TableFacts) -> SliceCandidate:
    times = [commit.at_ms for commit in facts.commits if commit.at_ms is not None]
    return SliceCandidate(
        kind="commits",
        columns=(),
        by="by: commits",
        every_ms=_every_ms((min(times), max(times)) if times else None),
    )


def _every_ms(bounds: tuple[int, int] | None) -> int:
    is_short = bounds is not None and bounds[1] - bounds[0] < _LONGEST_HOURLY_MS
    return UNIT_MS["h" if is_short else "d"]
