"""The ways in which a table could be cut into slices by arrival: by partition columns, by a time, or by commits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from zoneinfo import ZoneInfo

from jobs.doctor.table_facts import TableFacts
from jobs.doctor.yaml_text import spelled
from jobs.durations import UNIT_MS, format_duration, parse_duration
from jobs.lake.log_cut import slice_value, value_ms

_ZONE: Final = ZoneInfo("UTC")
SliceKind = Literal["partition", "time", "commits"]

_HOUR_DIGITS: Final = len("yyyyMMddHH")
_PARTS: Final = (
    ("year", ("year", "yyyy", "yr", "y")),
    ("month", ("month", "mm", "mon")),
    ("day", ("day", "dd")),
    ("hour", ("hour", "hh", "hr")),
)
_HOURS: Final = dict(_PARTS)["hour"]
_PERIODS_MS: Final = tuple(map(parse_duration, ("1d", "1h", "30m", "15m", "10m", "5m")))
"""The lengths of slices that are proposed for partitions by time, longest first; else a minute."""
_LONGEST_HOURLY_MS: Final = 2 * UNIT_MS["d"]
"""A log that is not longer is cut by hours, where that is a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCandidate:
    """One way to cut a table. `by` is the YAML of the keys `by` and `format`.

    `is_known`: the values of the columns in the table's partitions are times.
    """

    kind: SliceKind
    columns: tuple[str, ...]
    by: str
    every_ms: int
    is_known: bool = True

    @property
    def text(self) -> str:
        """The YAML of `log.slice`, without braces and without the first slice."""
        return self.by if self.every_ms == UNIT_MS["d"] else f"{self.by}, every: {format_duration(self.every_ms)}"

    def of_partition(self, partition: Mapping[str, str | None]) -> int | None:
        """Return the start of the slice of a file; None if a value is null or no time."""
        return _instant_ms(slice_value(partition, self.columns), len(self.columns)) if self.is_known else None


def slice_candidates(facts: TableFacts, times: Sequence[str], chosen: Sequence[str] = ()) -> list[SliceCandidate]:
    """Return the candidates, best first.

    `times` are columns that may say when a record arrived, best first. `chosen` are the columns that a person has
    named, or `commits`; all candidates if empty.
    """
    candidates = [*_by_partition(facts)]
    for name in times:
        every_ms = UNIT_MS["d"] if facts.columns[name] == "date" else _every_ms(facts.bounds_ms(name))
        candidates.append(SliceCandidate(kind="time", columns=(name,), by=f"by: {spelled(name)}", every_ms=every_ms))
    instants = [commit.at_ms for commit in facts.commits if commit.at_ms is not None]
    every_ms = _every_ms((min(instants), max(instants)) if instants else None)
    candidates.append(SliceCandidate(kind="commits", columns=(), by="by: commits", every_ms=every_ms))
    if not chosen:
        return candidates
    fitting = [candidate for candidate in candidates if candidate.columns == tuple(chosen)]
    if list(chosen) == ["commits"]:
        fitting = [candidate for candidate in candidates if candidate.kind == "commits"]
    by = f"by: {spelled(list(chosen)) if len(chosen) > 1 else spelled(chosen[0])}"
    return fitting or [
        SliceCandidate(kind="partition", columns=tuple(chosen), by=by, every_ms=UNIT_MS["d"], is_known=False)
    ]


def _by_partition(facts: TableFacts) -> Iterator[SliceCandidate]:
    columns = [name for name in facts.log.partition_columns if facts.columns[name] != "binary"]
    values = {name: sorted({text for file in facts.files if (text := file.partition[name])}) for name in columns}
    hour = next((name for name in columns if name.lower() in _HOURS), None)
    for name in columns:
        dates = _dates(name, facts.columns[name], values[name])
        if dates is None:
            continue
        if hour is not None and hour != name and dates.every_ms == UNIT_MS["d"]:
            yield _of_columns((name, hour), every_ms=UNIT_MS["h"])
        yield dates
    parts = [next((column for column in columns if column.lower() in names), None) for _, names in _PARTS]
    known = tuple(name for name in parts if name is not None)
    if None not in parts[:3]:
        yield _of_columns(known, every_ms=UNIT_MS["h" if len(known) > 3 else "d"])  # noqa: PLR2004


def _dates(name: str, kind: str, values: Sequence[str]) -> SliceCandidate | None:
    """Return the candidate of one column whose values are all dates or times; None if they are not."""
    is_digits = bool(values) and all(value.isdigit() for value in values)
    instants = [_instant_ms(value, 1) for value in values] if kind in {"date", "string"} or is_digits else [None]
    if None in instants or (not values and kind != "date"):
        return None
    if is_digits and {*map(len, values)} == {_HOUR_DIGITS}:
        return _of_columns((name,), every_ms=UNIT_MS["h"], own=", format: yyyyMMddHH" if kind == "string" else "")
    fitting = (every_ms for every_ms in _PERIODS_MS if all((at or 0) % every_ms == 0 for at in instants))
    every_ms = next(fitting, UNIT_MS["m"])
    return _of_columns((name,), every_ms=every_ms)


def _of_columns(columns: tuple[str, ...], *, every_ms: int, own: str = "") -> SliceCandidate:
    by = spelled(columns[0]) if len(columns) == 1 else spelled(list(columns))
    return SliceCandidate(kind="partition", columns=columns, by=f"by: {by}{own}", every_ms=every_ms)


def _instant_ms(value: str | None, columns: int) -> int | None:
    try:
        return None if value is None else value_ms(value, columns, pattern=None, zone=_ZONE)
    except ValueError:
        return None


def _every_ms(bounds: tuple[int, int] | None) -> int:
    is_short = bounds is not None and bounds[1] - bounds[0] < _LONGEST_HOURLY_MS
    return UNIT_MS["h" if is_short else "d"]
