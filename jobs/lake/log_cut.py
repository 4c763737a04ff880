"""Assigns values of the log's slice columns to slices. Values are compared as instants, never as text."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from jobs.durations import UNIT_MS, format_duration
from jobs.pipeline.models.log import DATE_AND_HOUR, SliceGrammar
from jobs.pipeline.slices import local_ms
from jobs.runs import Slice
from windowlib.errors import LogError

KNOWN_VALUES = 20_000
"""The instants of so many values are kept: a process reads the same log several times."""
SEPARATOR: Final = "/"
"""Between the values of several slice columns."""
FIRST_YEAR, LAST_YEAR = 1970, 2199
"""A value of 10 or 12 digits is a date and a time in these years; other numbers, such as seconds, have other years."""
_DAY_DIGITS, _YEAR_DIGITS = 8, 4
_INFERRED: Final = {_DAY_DIGITS: "yyyyMMdd", 10: "yyyyMMddHH", 12: "yyyyMMddHHmm"}
"""Digits of a value without separators -> its format."""
FINEST: Final = "m"
"""The unit of the shortest slices."""
_WHOLE: Final = re.compile(
    r"[0-9]{4}-?(?:[0-9]{2}-?[0-9]{2}|W[0-9]{2}-?[0-9])(?P<hour>.?[0-9]{2}(?:Z|[+-].*)?)?", re.ASCII
)
"""A value without a format that names a whole day, or a whole hour."""
_WEEK: Final = re.compile(r"[0-9]{4}-?W[0-9]{2}", re.ASCII)
_HOUR: Final = re.compile(r"[0-9]{1,2}", re.ASCII)
_FIELDS: Final = {"yyyy": r"(?P<Y>[0-9]{4})", "MM": r"(?P<M>[0-9]{2})", "dd": r"(?P<D>[0-9]{2})"} | {
    "HH": r"(?P<h>[0-9]{2})",
    "mm": r"(?P<m>[0-9]{2})",
}


def slice_value(partition: Mapping[str, str | None], columns: Sequence[str]) -> str | None:
    """Return the values of the slice columns as one text; None if one of them is null. An empty text is a null."""
    if len(columns) == 1:
        return partition[columns[0]] or None
    values = [partition[name] or "" for name in columns]
    return SEPARATOR.join(values) if all(values) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Assigns partition values to slices, which are ascending. Each distinct value is parsed once."""

    uri: str
    by: SliceGrammar
    slices: tuple[Slice, ...]
    _starts: list[int] = field(init=False, default_factory=list)
    _instants: "_Instants" = field(init=False)

    def __post_init__(self) -> None:
        self._starts.extend(slice_.start_ms for slice_ in self.slices)
        object.__setattr__(self, "_instants", _Instants(self.by))

    def slice_id(self, value: str | None) -> str | None:
        """Return the slice of a value; None without a value, and outside the slices."""
        return None if value is None or not self.slices else self.slice_of(self.instant_ms(value))

    def slice_of(self, at_ms: int) -> str | None:
        """Return the slice that contains an instant; None outside the slices."""
        index = bisect_right(self._starts, at_ms) - 1
        return self.slices[index].slice_id if index >= 0 and at_ms < self.slices[index].end_ms else None

    def is_instant(self, value: str | None) -> bool:
        try:
            return value is not None and self.instant_ms(value) is not None
        except LogError:
            return False

    def instant_ms(self, value: str) -> int:
        """Return the instant at which a value of `slice_value` begins, in ms.

        A time without an offset is local to the zone of the slices.
        Raises LogError: the value is no date or time of the format.
        """
        try:
            return self._instants[value]
        except ValueError as error:
            raise LogError(self._refusal(value)) from error

    def refuse_longer(self, value: str) -> None:
        """Refuse a value of `slice_value` that names a time longer than a slice. `by` tells that of the other forms.

        Raises LogError: the value is a week, a day or an hour, and slices are shorter.
        """
        by = self.by
        unit = named_unit(value) if len(by.columns) == 1 and by.format is None else FINEST
        if len(by.columns) == 1 and by.format is None and _WEEK.fullmatch(value):
            raise LogError(
                f"slice column {by.columns[0]!r} of event log {self.uri} has the value {value!r}, which is a whole "
                "week, and a slice is a day at most. Name a column with days in `log.slice.by`"
            )
        if by.every_ms < UNIT_MS[unit]:
            raise LogError(
                f"slice column {by.columns[0]!r} of event log {self.uri} has the value {value!r}, which is a whole "
                f"{'hour' if unit == 'h' else 'day'}, and slices of {format_duration(by.every_ms)} would be complete "
                f"before it is over. Write every: 1{unit} in `log.slice`, or name columns that tell the slices of "
                f"{format_duration(by.every_ms)} in `log.slice.by`"
            )

    def _refusal(self, value: str) -> str:
        columns = self.by.columns
        if len(columns) > 1:
            named = f"slice columns {', '.join(map(repr, columns))} of event log {self.uri} have the values"
            whole = "a date and an hour" if len(columns) == DATE_AND_HOUR else "numbers of a year, a month, a day"
            wrong = f"{value.split(SEPARATOR)!r}, which are not {whole}"
        else:
            named = f"slice column {columns[0]!r} of event log {self.uri} has the value"
            wrong = f"{value!r}, which is not an ISO date or time such as 2013-02-08 or 2013-02-08T05, nor 2013020805"
        if self.by.format is not None:
            wrong += f" (log.slice.format: {self.by.format})" if len(columns) > 1 else ""
            wrong = wrong if len(columns) > 1 else f"{value!r}, which is not of log.slice.format {self.by.format}"
        return (
            f"{named} {wrong}. Remove the records with that value (DELETE), and append them again with the right one, "
            "or name another partition column in `log.slice.by`"
        )


class _Instants(dict[str, int]):
    """Value of the slice columns -> the instant at which it begins, computed when it is first asked for."""

    def __init__(self, by: SliceGrammar) -> None:
        super().__init__()
        self._columns, self._pattern, self._zone = len(by.columns), by.format, by.zone

    def __missing__(self, value: str) -> int:
        at_ms = self[value] = value_ms(value, self._columns, pattern=self._pattern, zone=self._zone)
        return at_ms


def named_unit(text: str) -> str:
    """Return the unit of the time that a text without a format names as a whole: `d`, `h` or `m`."""
    whole = _WHOLE.fullmatch(text)
    return FINEST if whole is None else "h" if whole["hour"] else "d"


@lru_cache(maxsize=KNOWN_VALUES)
def value_ms(value: str, columns: int, *, pattern: str | None, zone: ZoneInfo) -> int:
    """Return the instant at which a value of `slice_value` begins, which has so many columns.

    Raises ValueError: the value is no date or time of the pattern; None: of a form that tells itself.
    """
    if columns == 1:
        return local_ms(_time(value, pattern), zone)
    parts = value.split(SEPARATOR)
    if columns == DATE_AND_HOUR:
        *day, hour = parts  # a date may have the separator, too
        at = _time(SEPARATOR.join(day), pattern)
        if at != datetime(at.year, at.month, at.day) or not _HOUR.fullmatch(hour):  # noqa: DTZ001 - local to the zone
            raise ValueError(value)
        return local_ms(at.replace(hour=int(hour)), zone)
    is_number = all(part.isascii() and part.isdigit() for part in parts)
    if len(parts) != columns or not is_number or len(parts[0]) != _YEAR_DIGITS:
        raise ValueError(value)
    return local_ms(datetime(*map(int, parts)), zone)  # type: ignore[arg-type]  # noqa: DTZ001 - local to the zone


def _time(text: str, pattern: str | None) -> datetime:
    """Return the time that a text names, by its pattern, or by its form if there is no pattern."""
    if pattern is not None:
        return _by_pattern(text, pattern)
    if not (text.isascii() and text.isdigit()):
        return datetime.fromisoformat(text)
    if len(text) not in _INFERRED:
        raise ValueError(text)
    at = _by_pattern(text, _INFERRED[len(text)])
    if len(text) != _DAY_DIGITS and not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise ValueError(text)
    return at


def _by_pattern(text: str, pattern: str) -> datetime:
    match = _regex(pattern).fullmatch(text)
    if match is None:
        raise ValueError(text)
    return datetime(*(int(part) for part in match.groups()))  # type: ignore[arg-type]  # noqa: DTZ001 - local


@lru_cache
def _regex(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a `log.slice.format`; its groups are the numbers from the year on."""
    pieces = re.split("(yyyy|MM|dd|HH|mm)", pattern)
    return re.compile("".join(_FIELDS.get(piece) or re.escape(piece) for piece in pieces), re.ASCII)
