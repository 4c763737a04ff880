"""Date operators. A time zone is a name of the time zone database or an offset; the default is UTC."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from windowlib.atlas.documents.documents import Date, Value, is_nothing
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.calendars import (
    MS,
    PARTS,
    UNITS_MONTHS,
    UNITS_MS,
    WEEKDAYS,
    boundaries,
    formatted,
    instant,
    local,
    moved,
    parsed,
    truncated,
    zone,
)
from windowlib.atlas.expressions.forms import (
    Compile,
    Expression,
    ExpressionFault,
    NamedCall,
    Operators,
    Scope,
    Special,
    fault,
)
from windowlib.atlas.expressions.numeric import integer_of

_ISO: Final = "%Y-%m-%dT%H:%M:%S.%LZ"


def _date_of(operator: str, value: Value) -> Date:
    if not isinstance(value, Date):
        raise fault(operator, value, "a date")
    return value


def _text_of(operator: str, value: Value, what: str) -> str:
    if not isinstance(value, str):
        raise fault(operator, value, what)
    return value


def _unit_of(operator: str, value: Value) -> str:
    if not isinstance(value, str) or (value not in UNITS_MS and value not in UNITS_MONTHS):
        raise fault(operator, value, "a unit of " + ", ".join((*UNITS_MONTHS, *UNITS_MS)))
    return value


def _weekday_of(operator: str, value: Value) -> str:
    name = _text_of(operator, value, "a weekday").lower()
    full = [day for day in WEEKDAYS if name in {day, day[:3]}]
    if not full:
        raise fault(operator, value, "a weekday")
    return full[0]


def _part(operator: str) -> Special:
    """Return the form of a part: `{$year: date}`, `{$year: [date]}` or `{$year: {date, timezone}}`."""
    part = PARTS[operator[1:]]

    def compile_part(operand: Json, place: Place, compile_: Compile) -> Expression:
        if isinstance(operand, dict) and "date" in operand:
            fields = place.fields(operand, required=("date",), optional=("timezone",))
            date = compile_(fields["date"], place.at("date"))
            in_zone = compile_(fields.get("timezone", "UTC"), place.at("timezone"))
        else:
            date = compile_(operand[0] if isinstance(operand, list) and len(operand) == 1 else operand, place)
            in_zone = compile_("UTC", place)

        def evaluate(scope: Scope) -> Value:
            at, name = date(scope), in_zone(scope)
            if is_nothing(at) or is_nothing(name):
                return None
            return part(local(_date_of(operator, at), zone(_text_of(operator, name, "a time zone"))))

        return evaluate

    return Special(compile_part)


def _any_nothing(*values: Value) -> bool:
    return any(map(is_nothing, values))


def _date_to_string(
    *,
    date: Value,
    format: Value = NotImplemented,  # noqa: A002 - the language's name
    timezone: Value = "UTC",
    on_null: Value = None,
) -> Value:
    if is_nothing(date):
        return on_null
    if _any_nothing(format, timezone):
        return None
    in_zone = zone(_text_of("$dateToString", timezone, "a time zone"))
    if format is NotImplemented:
        text = _ISO if in_zone == UTC else _ISO.removesuffix("Z")
    else:
        text = _text_of("$dateToString", format, "a format")
    return formatted(local(_date_of("$dateToString", date), in_zone), text)


def _date_from_string(
    *,
    date_string: Value,
    format: Value = None,  # noqa: A002 - the language's name
    timezone: Value = "UTC",
    on_error: Value = NotImplemented,
    on_null: Value = None,
) -> Value:
    if is_nothing(date_string):
        return on_null
    try:
        text = _text_of("$dateFromString", date_string, "a text")
        if not is_nothing(format):
            _text_of("$dateFromString", format, "a format")
        return parsed(
            text, None if is_nothing(format) else format, zone(_text_of("$dateFromString", timezone, "a time zone"))
        )
    except (ExpressionFault, ValueError) as error:
        if on_error is not NotImplemented:
            return on_error
        raise ExpressionFault(f"$dateFromString: {error}") from error


_FROM_PARTS: Final = ("month", "day", "hour", "minute", "second", "millisecond")


def _date_from_parts(*, year: Value, timezone: Value = "UTC", **parts: Value) -> Value:
    """Return the date of the parts. A part beyond its range carries over into the next larger part."""
    if _any_nothing(year, timezone, *parts.values()):
        return None
    numbers = {name: integer_of("$dateFromParts", value) for name, value in parts.items()}
    months = integer_of("$dateFromParts", year) * 12 + numbers.pop("month", 1) - 1
    days = numbers.pop("day", 1) - 1
    rest_ms = sum(UNITS_MS[name] * number for name, number in numbers.items())
    try:
        at = datetime(months // 12, months % 12 + 1, 1) + timedelta(days=days) + rest_ms * MS  # noqa: DTZ001 - local
    except (OverflowError, ValueError):
        raise ExpressionFault("$dateFromParts: the date lies outside the years 1 to 9999") from None
    return instant(at, zone(_text_of("$dateFromParts", timezone, "a time zone")))


def _moved(
    operator: str, sign: int, *, start_date: Value, unit: Value, amount: Value, timezone: Value = "UTC"
) -> Value:
    if _any_nothing(start_date, unit, amount, timezone):
        return None
    count = sign * integer_of(operator, amount)
    in_zone = zone(_text_of(operator, timezone, "a time zone"))
    return moved(_date_of(operator, start_date), _unit_of(operator, unit), count, in_zone=in_zone)


def _date_diff(
    *, start_date: Value, end_date: Value, unit: Value, timezone: Value = "UTC", start_of_week: Value = "sunday"
) -> Value:
    if _any_nothing(start_date, end_date, unit, timezone, start_of_week):
        return None
    return boundaries(
        _date_of("$dateDiff", start_date),
        _date_of("$dateDiff", end_date),
        _unit_of("$dateDiff", unit),
        in_zone=zone(_text_of("$dateDiff", timezone, "a time zone")),
        first_day=_weekday_of("$dateDiff", start_of_week),
    )


def _date_trunc(
    *, date: Value, unit: Value, bin_size: Value = 1, timezone: Value = "UTC", start_of_week: Value = "sunday"
) -> Value:
    if _any_nothing(date, unit, bin_size, timezone, start_of_week):
        return None
    size = integer_of("$dateTrunc", bin_size)
    if size <= 0:
        raise fault("$dateTrunc", bin_size, "a positive binSize")
    return truncated(
        _date_of("$dateTrunc", date),
        _unit_of("$dateTrunc", unit),
        bin_size=size,
        in_zone=zone(_text_of("$dateTrunc", timezone, "a time zone")),
        first_day=_weekday_of("$dateTrunc", start_of_week),
    )


_MOVE: Final = (("startDate", "unit", "amount"), ("timezone",))

OPERATORS: Final[Operators] = {
    **{f"${name}": _part(f"${name}") for name in PARTS},
    "$dateToString": NamedCall(_date_to_string, ("date",), ("format", "timezone", "onNull")),
    "$dateFromString": NamedCall(_date_from_string, ("dateString",), ("format", "timezone", "onError", "onNull")),
    "$dateFromParts": NamedCall(_date_from_parts, ("year",), (*_FROM_PARTS, "timezone")),
    "$dateAdd": NamedCall(partial(_moved, "$dateAdd", 1), *_MOVE),
    "$dateSubtract": NamedCall(partial(_moved, "$dateSubtract", -1), *_MOVE),
    "$dateDiff": NamedCall(_date_diff, ("startDate", "endDate", "unit"), ("timezone", "startOfWeek")),
    "$dateTrunc": NamedCall(_date_trunc, ("date", "unit"), ("binSize", "timezone", "startOfWeek")),
}
