"""What must become of the records of a hostile log: fates and windows, record by record in plain Python.

Only the draw's own values are used: neither Arrow nor code of Hindcast computes an instant, a window or an aggregate.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from tests.support.other_log import exact_sum
from tests.zoo.entries import in_order
from tests.zoo.hostile.logs import Aggregate, Column, HostileLog, Row, Windows
from tests.zoo.hostile.values import Broken

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MS: Final = timedelta(milliseconds=1)
FIRST_INSTANT_MS: Final = -62_135_596_800_000
LAST_INSTANT_MS: Final = 253_402_300_799_999
_BEGINNING: Final = -(1 << 63)
NOT_UTF8: Final = "not_utf8"
_WIDE: Final = Context(prec=400)
_BIGINT: Final = 1 << 63


class DoesNotFit(Exception):  # noqa: N818 - an expected answer, no error of a test
    """The sum of an aggregate does not fit its type, so the replay must be refused."""


@dataclass(slots=True)
class Expected:
    """What must be published.

    `fates` is day -> fate -> number of records. `late` has the numbers of the records that missed a window, and
    `invalid` the reason of each invalid record, by number. `windows` is (key, start) -> the values of the aggregates.
    """

    fates: dict[date, Counter[str]] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    unassigned: set[int] = field(default_factory=set)
    duplicates: set[int] = field(default_factory=set)
    invalid: dict[int, str] = field(default_factory=dict)
    windows: dict[tuple[object, ...], tuple[object, ...]] = field(default_factory=dict)


def expected(log: HostileLog) -> Expected:
    """Return what must be published after all slices of a log.

    Raises:
        DoesNotFit: a sum does not fit.
    """
    answer, seq = Expected(), log.of("seq").name
    watermark_ms = _BEGINNING
    windows: dict[tuple[object, ...], list[_Window]] = {}
    earlier: dict[str, date] = {}
    for number, row in enumerate(records_in_order(log)):
        fates = answer.fates.setdefault(row[log.of("day").name], Counter())
        at_ms, fate = _outside(log, row, answer, earlier=earlier)
        if fate is not None:
            fates[fate] += 1
            continue
        own = windows.setdefault(tuple(plain(row[name]) for name in log.keys), [])
        assigned, missed = _assign(_Record(number, at_ms, row), own, log.windows, watermark_ms=watermark_ms)
        if missed:
            answer.late.add(row[seq])
        elif not assigned:
            answer.unassigned.add(row[seq])
        fates["assigned" if assigned else "late" if missed else "unassigned"] += 1
        watermark_ms = max(watermark_ms, at_ms - log.bound_ms - 1)
    for key, own in windows.items():
        for window in own:
            if window.end_ms - 1 <= watermark_ms:
                rows = [record.row for record in sorted(window.records, key=lambda record: record.number)]
                answer.windows[key, window.start_ms] = tuple(_result(aggregate, rows) for aggregate in log.aggregates)
    return answer


def _outside(log: HostileLog, row: Row, answer: Expected, *, earlier: dict[str, date]) -> tuple[int, str | None]:
    """Return the event time of a record, and its fate if no window is asked about it: `answer` notes it then."""
    seq, time = log.of("seq").name, log.of("time")
    at_ms, problem = _instant(row[time.name], time)
    problem = _problem(log, row) or problem
    if problem != NOT_UTF8 and not log.keeps(row):
        return 0, "filtered"
    if at_ms is None or problem is not None:
        answer.invalid[row[seq]] = str(problem)
        return 0, "invalid"
    if log.distinct is not None and _repeats(row[log.distinct], row[log.of("day").name], earlier):
        answer.duplicates.add(row[seq])
        return 0, "duplicate"
    return at_ms, None


def _repeats(value: object, day: date, earlier: dict[str, date]) -> bool:
    """Return whether an earlier record of the day, or of the day before, has the value. `earlier` gets the value."""
    if value is None:
        return False
    text = repr(value)
    last = earlier.get(text)
    earlier[text] = day
    return last is not None and day - last <= timedelta(days=1)


class _Record(NamedTuple):
    number: int
    at_ms: int
    row: Row


@dataclass(slots=True)
class _Window:
    """A window of a key. A session is replaced when it is merged."""

    start_ms: int
    end_ms: int
    records: list[_Record]


def _assign(record: _Record, own: list[_Window], spec: Windows, *, watermark_ms: int) -> tuple[int, int]:
    """Add a record to windows of its key. Return in how many windows it is, and how many it has missed."""

    def is_open(end_ms: int) -> bool:
        return end_ms - 1 + spec.lateness_ms > watermark_ms

    if not spec.slide_ms:
        start_ms, end_ms = record.at_ms, record.at_ms + spec.size_ms
        met = [one for one in own if is_open(one.end_ms) and one.start_ms <= end_ms and one.end_ms >= start_ms]
        if not met and not is_open(end_ms):
            return 0, 1
        own[:] = [one for one in own if not any(one is other for other in met)]
        records = [record, *(other for one in met for other in one.records)]
        start_ms, end_ms = min([start_ms, *(one.start_ms for one in met)]), max([end_ms, *(one.end_ms for one in met)])
        own.append(_Window(start_ms, end_ms, records))
        return 1, 0
    starts = _starts(record.at_ms - spec.offset_ms, spec.size_ms, spec.slide_ms)
    kept = [start + spec.offset_ms for start in starts if is_open(start + spec.offset_ms + spec.size_ms)]
    known = {window.start_ms: window for window in own}
    for start in kept:
        if start not in known:
            own.append(_Window(start, start + spec.size_ms, []))
            known[start] = own[-1]
        known[start].records.append(record)
    return len(kept), len(starts) - len(kept)


def records_in_order(log: HostileLog) -> list[Row]:
    """Return the records in the order of the log: by day, then as the pipeline says."""
    rows = [row for commit in log.commits for row in commit]
    if log.order:
        rows = in_order(rows, log.order)
    return sorted(rows, key=lambda row: row[log.of("day").name])


def plain(value: Any) -> object:  # noqa: ANN401 - a value of any type
    """Return a value in a form that is equal exactly if the value is. NaNs are equal, and so are -0.0 and 0.0."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else ("double", value + 0.0)
        case bool() | int() | str() | None:
            return type(value).__name__, value
        case Decimal():
            return "decimal", value or Decimal(0)
        case dict():
            return tuple((name, plain(one)) for name, one in value.items())
        case list() | tuple():
            return [plain(one) for one in value]
        case _:
            return type(value).__name__, str(value)


def _starts(at_ms: int, size_ms: int, slide_ms: int) -> list[int]:
    last = at_ms - at_ms % slide_ms
    return [start for start in range(last, at_ms - size_ms, -slide_ms) if start + size_ms > at_ms]


def _problem(log: HostileLog, row: Row) -> str | None:
    if any(isinstance(value, Broken) for value in row.values()):
        return NOT_UTF8
    return "null_key" if any(row[name] is None for name in log.keys) else None


def _instant(value: Any, column: Column) -> tuple[int | None, str | None]:  # noqa: ANN401 - a value of any type
    """Return the epoch ms of a value, rounded down, or the reason why it has none."""
    match value:
        case None:
            return None, "null_time"
        case float() if not math.isfinite(value):
            return None, "nan_time" if math.isnan(value) else "infinite_time"
        case str():
            return _of_text(value)
        case datetime():
            ms = (value.replace(tzinfo=UTC) - EPOCH) // MS
        case date():
            ms = (value - EPOCH.date()) // MS
        case _:
            ms = _of_number(value, column)
    return (ms, None) if FIRST_INSTANT_MS <= ms <= LAST_INSTANT_MS else (None, "time_out_of_range")


def _of_text(text: str) -> tuple[int | None, str | None]:
    """The draw has only instants of Python's `isoformat` and texts that are no times."""
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", text, re.ASCII) is None:
        return None, "wrong_type"
    return (datetime.fromisoformat(text) - EPOCH) // MS, None


def _of_number(value: float | Decimal, column: Column) -> int:
    """Nine digits after the point count, as in decimal(38,9) of Spark."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    rounded = number.quantize(Decimal("1e-9"), rounding=ROUND_HALF_UP, context=_WIDE)
    per_ms = {"s": Decimal("0.001"), "us": Decimal(1000)}[column.kind.unit or ""]
    return math.floor(_WIDE.divide(rounded, per_ms))


def _result(aggregate: Aggregate, rows: Sequence[Row]) -> object:
    if aggregate.column is None:
        return plain(len(rows))
    values = [row[aggregate.column.name] for row in rows]
    present = [value for value in values if value is not None]
    match aggregate.kind:
        case "first" | "last":
            return plain(values[0 if aggregate.kind == "first" else -1])
        case "collect_list":
            return plain(present)
        case "sum" | "avg":
            return plain((_sum if aggregate.kind == "sum" else _mean)(present, aggregate.column))
        case "variance":
            return plain(_variance(present))
        case _:
            ordered = in_order([{"": value} for value in present], [""])
            return plain(ordered[-1 if aggregate.kind == "max" else 0][""] if ordered else None)


def _sum(values: Sequence[Any], column: Column) -> object:
    if not values:
        return None
    if isinstance(values[0], float):
        return exact_sum(values)
    total: Any = values[0]
    for value in values[1:]:
        total = _WIDE.add(total, value) if isinstance(total, Decimal) else total + value
    if isinstance(total, Decimal):
        arrow = column.kind.arrow
        digits = min(arrow.precision + 10, 38) - arrow.scale
        if total.copy_abs() >= Decimal(10) ** digits:  # `abs` rounds to 28 digits
            raise DoesNotFit
    elif not -_BIGINT <= total < _BIGINT:
        raise DoesNotFit
    return total


def _mean(values: Sequence[Any], column: Column) -> object:
    if not values or isinstance(values[0], float):
        total = exact_sum(values)
        if total is None or not all(map(math.isfinite, values)):
            return total
        return float(sum(map(Fraction, values)) / len(values))
    mean = sum(map(Fraction, values)) / len(values)
    if isinstance(values[0], int):
        return float(mean)
    digits = 10 ** (column.kind.arrow.scale + 4)
    rounded = math.floor(abs(mean) * digits + Fraction(1, 2))  # half up, away from zero
    return _WIDE.divide(Decimal(rounded if mean >= 0 else -rounded), Decimal(digits))


def _variance(values: Sequence[Any]) -> float | None:
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    numbers = [*map(Fraction, values)]
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)
    try:
        return float(variance)
    except OverflowError:
        return math.inf
