"""String operators. Positions count code points (CP) or UTF-8 bytes. Regular expressions have Python's syntax."""

import re
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Final

from windowlib.atlas.documents.documents import Date, Value, is_nothing, is_number
from windowlib.atlas.expressions.calendars import date_text
from windowlib.atlas.expressions.forms import Call, ExpressionFault, NamedCall, Operators, fault
from windowlib.atlas.expressions.numeric import integer_of

_WHITESPACE: Final = "\x00\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_MOST_LEVELS: Final = 200
"""Python compiles a group by recursion. Without a limit, the calls above it would decide about a record."""
_BRACKET: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\\?\Z)|[()]", re.DOTALL)


def _texts(operator: str, *values: Value) -> bool:
    """Tell whether all values are texts: False if one is null or missing. Raise a fault for any other value."""
    for value in values:
        if not is_nothing(value) and not isinstance(value, str):
            raise fault(operator, value, "texts")
    return not any(map(is_nothing, values))


def _concat(*values: Value) -> Value:
    return "".join(values) if _texts("$concat", *values) else None


def _lenient(operator: str, value: Value) -> str:
    """Return a value as text, as the older string operators do: null as the empty text, numbers and dates as text."""
    if is_nothing(value):
        return ""
    if isinstance(value, str):
        return value
    if is_number(value):
        return format(value, "g") if isinstance(value, float) else str(value)
    if isinstance(value, Date):
        return date_text(value)
    raise fault(operator, value, "a text, number or date")


def _cased(operator: str, change: Callable[[str], str], value: Value) -> str:
    # As in MongoDB, only the letters a to z change their case.
    return "".join(change(letter) if letter.isascii() else letter for letter in _lenient(operator, value))


def _substr_cp(text: Value, start: Value, length: Value) -> str:
    begin, count = integer_of("$substrCP", start), integer_of("$substrCP", length)
    if begin < 0 or count < 0:
        raise ExpressionFault("$substrCP needs a start and a length that are not negative")
    return _lenient("$substrCP", text)[begin : begin + count]


def _substr_bytes(text: Value, start: Value, length: Value) -> str:
    begin, count = integer_of("$substrBytes", start), integer_of("$substrBytes", length)
    octets = _lenient("$substrBytes", text).encode()
    if begin < 0:
        raise ExpressionFault("$substrBytes needs a start that is not negative")
    try:
        return (octets[begin:] if count < 0 else octets[begin : begin + count]).decode()
    except UnicodeDecodeError:
        raise ExpressionFault("$substrBytes would cut a character in two; use $substrCP") from None


def _length(operator: str, measure: Callable[[str], int], value: Value) -> int:
    if not isinstance(value, str):
        raise fault(operator, value, "a text")
    return measure(value)


def _split(text: Value, delimiter: Value) -> Value:
    if not _texts("$split", text, delimiter):
        return None
    if not delimiter:
        raise ExpressionFault("$split needs a delimiter that is not empty")
    return text.split(delimiter)


def _trimmed(operator: str, trim: Callable[[str, str], str], *, input: Value, chars: Value = _WHITESPACE) -> Value:  # noqa: A002
    return trim(input, chars) if _texts(operator, input, chars) else None


def _index_of(operator: str, text: Value, sought: Value, *range_: Value, in_bytes: bool) -> Value:
    if is_nothing(text):
        return None
    if not isinstance(text, str) or not isinstance(sought, str):
        raise fault(operator, sought if isinstance(text, str) else text, "texts")
    begin = integer_of(operator, range_[0]) if range_ else 0
    limit = integer_of(operator, range_[1]) if len(range_) > 1 else None
    if begin < 0 or (limit is not None and limit < 0):
        raise ExpressionFault(f"{operator} needs positions that are not negative")
    return text.encode().find(sought.encode(), begin, limit) if in_bytes else text.find(sought, begin, limit)


def _replaced(operator: str, count: int, *, input: Value, find: Value, replacement: Value) -> Value:  # noqa: A002
    return input.replace(find, replacement, count) if _texts(operator, input, find, replacement) else None


def pattern(regex: str, options: str = "") -> re.Pattern[str]:
    """Return a compiled regular expression with the options i, m, s, x.

    Raises ValueError: the regular expression is not valid, or an option is unknown.
    """
    flags = 0
    for letter in options:
        if letter not in _FLAGS:
            raise ValueError(f"option {letter!r} of a regular expression is not one of i, m, s, x")
        flags |= _FLAGS[letter]
    if regex.count("(") > _MOST_LEVELS:
        steps = ((part == "(") - (part == ")") for part in _BRACKET.findall(regex))
        if max(accumulate(steps)) > _MOST_LEVELS:
            raise ValueError(
                f"{regex!r} is no regular expression: it has more than {_MOST_LEVELS} groups in each other"
            )
    try:
        return re.compile(regex, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{regex!r} is no regular expression: {error}") from error


def _compiled(operator: str, regex: Value, options: Value) -> re.Pattern[str] | None:
    if not _texts(operator, regex):
        return None
    if not _texts(operator, options):
        options = ""
    try:
        return pattern(regex, options)
    except ValueError as error:
        raise ExpressionFault(f"{operator}: {error}") from error


def _found(match: re.Match[str]) -> Value:
    return {"match": match[0], "idx": match.start(), "captures": list(match.groups())}


def _regex_match(*, input: Value, regex: Value, options: Value = "") -> bool:  # noqa: A002 - its name in the language
    compiled = _compiled("$regexMatch", regex, options)
    return compiled is not None and _texts("$regexMatch", input) and compiled.search(input) is not None


def _regex_find(*, input: Value, regex: Value, options: Value = "") -> Value:  # noqa: A002 - its name in the language
    compiled = _compiled("$regexFind", regex, options)
    match = compiled.search(input) if compiled is not None and _texts("$regexFind", input) else None
    return _found(match) if match else None


def _regex_find_all(*, input: Value, regex: Value, options: Value = "") -> list[Value]:  # noqa: A002 - its name in the language
    compiled = _compiled("$regexFindAll", regex, options)
    if compiled is None or not _texts("$regexFindAll", input):
        return []
    return [_found(match) for match in compiled.finditer(input)]


def _strcasecmp(left: Value, right: Value) -> int:
    first, second = (_cased("$strcasecmp", str.upper, value) for value in (left, right))
    return (first > second) - (first < second)


_REGEX: Final = (("input", "regex"), ("options",))

OPERATORS: Final[Operators] = {
    "$concat": Call(_concat, 0, None),
    "$toLower": Call(partial(_cased, "$toLower", str.lower)),
    "$toUpper": Call(partial(_cased, "$toUpper", str.upper)),
    "$strcasecmp": Call(_strcasecmp, 2, 2),
    "$substrCP": Call(_substr_cp, 3, 3),
    "$substrBytes": Call(_substr_bytes, 3, 3),
    "$substr": Call(_substr_bytes, 3, 3),
    "$strLenCP": Call(partial(_length, "$strLenCP", len)),
    "$strLenBytes": Call(partial(_length, "$strLenBytes", lambda text: len(text.encode()))),
    "$split": Call(_split, 2, 2),
    "$trim": NamedCall(partial(_trimmed, "$trim", str.strip), ("input",), ("chars",)),
    "$ltrim": NamedCall(partial(_trimmed, "$ltrim", str.lstrip), ("input",), ("chars",)),
    "$rtrim": NamedCall(partial(_trimmed, "$rtrim", str.rstrip), ("input",), ("chars",)),
    "$indexOfCP": Call(partial(_index_of, "$indexOfCP", in_bytes=False), 2, 4),
    "$indexOfBytes": Call(partial(_index_of, "$indexOfBytes", in_bytes=True), 2, 4),
    "$replaceOne": NamedCall(partial(_replaced, "$replaceOne", 1), ("input", "find", "replacement")),
    "$replaceAll": NamedCall(partial(_replaced, "$replaceAll", -1), ("input", "find", "replacement")),
    "$regexMatch": NamedCall(_regex_match, *_REGEX),
    "$regexFind": NamedCall(_regex_find, *_REGEX),
    "$regexFindAll": NamedCall(_regex_find_all, *_REGEX),
}
