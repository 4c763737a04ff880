"""Checks the values of the arguments of an expectation.

A judge takes a JSON value and returns None if the value is allowed, otherwise the problem as the end of a sentence that
begins with the value ("is not a number").
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime

# Python's own parser of regular expressions. It has no public name since Python 3.11.
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

from windowlib.libraries import pa, pc

EXACT_LIMIT = 2**53
"""Great Expectations may compare as doubles. A bound below this limit is exact for every 64-bit integer."""

ISO_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
"""The form of a time that every parser reads in the same way. Great Expectations refuses some other ISO forms."""

Problem = str | None
Judge = Callable[[Any], Problem]

_INEXACT = (
    f"is not below 2^53 = {EXACT_LIMIT:,}; Great Expectations compares as doubles, which are not exact there: compare "
    "a difference or a share instead"
)
_MAX_CONDITIONS = 100
"""Great Expectations refuses a row condition with more comparisons."""
_MAX_GROUPS = 100
"""Python compiles a group by recursion."""
_MAX_REGEX = 10_000
"""The time of `_POSIX` and `_CLASS` grows with the square of the length."""

_ESCAPED = re.compile(r"\\.", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?[^\]]*\]")
_POSIX = re.compile(r"\[[^\]]*\[:\^?\w+:\]")
_OPEN_COUNT = re.compile(r"\{,\d*\}")
_ONLY_PYTHON = re.compile(r"\bASSERT|\bGROUPREF,|\bCATEGORY_(NOT_)?SPACE")
"""Parts of a syntax tree for which pandas asks Python. Source: pandas/core/arrays/_arrow_string_mixins.py."""
_ONLY_PYTHON_ESCAPES = frozenset({r"\u", r"\U", r"\N"})

_OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "IN", "NOT_IN")
_OF_PANDAS = frozenset({"datetime", "inf", "Inf"})
"""Names that a query of pandas takes for its own values. Source: pandas/core/computation/scope.py."""
_PRINTABLE_FROM = ord(" ")


def number(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow an integer that a double represents exactly, or a double."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is not a number"
    return _INEXACT if isinstance(value, int) and abs(value) >= EXACT_LIMIT else None


def bound(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a number, or a UTC time in ISO form for a TIMESTAMP column."""
    if not isinstance(value, str):
        return number(value)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return "is not a number or an ISO time such as 2013-02-08T05:00:00"
    if at.tzinfo:
        return "has an offset; times in suites are UTC, so write the time without an offset"
    return None if ISO_TIME.fullmatch(value) else "is not a date with a time in a form such as 2013-02-08T00:00:00"


def count(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a whole number, 0 or more. 3.0 is allowed, because Great Expectations writes numbers as floats."""
    problem = number(value)
    if problem is None and (value < 0 or value != int(value)):
        return "is not a count: a whole number, 0 or more"
    return problem


def index(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a count from 1 on."""
    return count(value) or ("is ignored by Great Expectations; leave it out" if value == 0 else None)


def share(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a number from 0 to 1."""
    return None if number(value) is None and 0 <= value <= 1 else "is not a share: a number from 0 to 1"


def flag(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a boolean. 0 and 1 are not booleans."""
    return None if isinstance(value, bool) else "is not true or false"


def name(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow the name of a column."""
    if not isinstance(value, str) or not value:
        return "is not the name of a column"
    if "`" in value or any(ord(character) < _PRINTABLE_FROM for character in value):
        return "has a backtick or a control character, which Great Expectations cannot use in the name of a column"
    return None


def names(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a list of one or more different columns."""
    if not isinstance(value, list) or not value:
        return "is not a list of column names"
    if len({str(item) for item in value}) != len(value):
        return "names a column twice"
    return next((f"has the item {item!r}, which {problem}" for item in value if (problem := name(item))), None)


def several_names(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a list of two or more different columns."""
    return "names only one column; two are needed" if isinstance(value, list) and len(value) == 1 else names(value)


def values(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a list of values of one kind, because the engines compare a text with a number differently."""
    if not isinstance(value, list) or not value:
        return "is not a list of values"
    if any(not isinstance(item, str | int | float) for item in value):
        return "has an item that is not a text, number or boolean"
    if len({type(item) if isinstance(item, str | bool) else float for item in value}) > 1:
        return "mixes texts, numbers and booleans, which the two engines compare differently"
    numbers = (item for item in value if not isinstance(item, str | bool))
    return next((f"has the item {item}, which {problem}" for item in numbers if (problem := number(item))), None)


def regex(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a regular expression that Python and RE2 can compile and read in the same way."""
    if not isinstance(value, str):
        return "is not a regular expression"
    if len(value) > _MAX_REGEX:
        return f"has {len(value):,} characters; at most {_MAX_REGEX:,} are allowed"
    if value.count("(") > _MAX_GROUPS:
        return f"has more than {_MAX_GROUPS} opening brackets"
    problem = _read_otherwise(value)
    if problem is None:
        try:
            re.compile(value)
        except (re.error, OverflowError, ValueError) as error:
            return f"is not a regular expression: {error}"
    return problem or _unlike_re2(value, syntax_tree(value))


def syntax_tree(value: str) -> str:
    """Return Python's syntax tree of a regular expression as text, in which the names of its parts are found."""
    return repr(sre_parser.parse(value))


def is_only_python(value: str, tree: str) -> bool:
    """Return whether pandas asks Python alone about an expression with this syntax tree."""
    return bool(_ONLY_PYTHON.search(tree) or _ONLY_PYTHON_ESCAPES & {*_ESCAPED.findall(value)})


def spelled_for_re2(value: str) -> str:
    r"""Return an expression as pandas writes it for RE2: the end of the text is `\z` there."""
    return _ESCAPED.sub(lambda part: r"\z" if part[0] == r"\Z" else part[0], value)


def _read_otherwise(value: str) -> Problem:
    """Refuse what both Python and RE2 accept, and read in different ways."""
    plain = _ESCAPED.sub("", value)
    if _POSIX.search(plain):
        return "has a POSIX class, which Python reads as single characters; write [0-9], [A-Z] or the like"
    return "has {,n}, which RE2 reads as a text; write {0,n}" if _OPEN_COUNT.search(_CLASS.sub("", plain)) else None


def _unlike_re2(value: str, tree: str) -> Problem:
    """Refuse what RE2 refuses, if Great Expectations may ask it."""
    if "AT_NON_BOUNDARY" in tree:
        return r"has \B, which RE2 finds in an empty text and Python does not; write the characters"
    return None if is_only_python(value, tree) else _refused_by_re2(value)


def _refused_by_re2(value: str) -> Problem:
    try:
        pc.match_substring_regex(pa.nulls(1, pa.string()), spelled_for_re2(value))
    except ValueError as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        return f"is refused by RE2, which Great Expectations asks about most texts: {reason}"
    return None


def regexes(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a list of one or more regular expressions."""
    if not isinstance(value, list) or not value:
        return "is not a list of regular expressions"
    return next((f"has the item {item!r}, which {problem}" for item in value if (problem := regex(item))), None)


def one_of(*allowed: str) -> Judge:
    """Return a judge that allows only the given words."""
    return lambda value: None if value in allowed else f"is not one of {', '.join(allowed)}"


def condition(value: Any) -> Problem:  # noqa: ANN401 -- any JSON value
    """Allow a condition for rows that is written as data. A text would be code: SQL on Spark, Python on pandas."""
    if isinstance(value, str):
        return (
            "is code for one engine (SQL for Spark, Python for pandas), which a suite may not have; write it as data: "
            '{"type": "comparison", "column": {"name": "kind"}, "operator": "==", "parameter": "result"}'
        )
    if not isinstance(value, dict):
        return "is not a condition object"
    return _one_condition(value) or _few_conditions(value)


def _few_conditions(value: Mapping[str, Any]) -> Problem:
    count = _comparisons(value)
    return f"has {count} conditions; at most {_MAX_CONDITIONS} are allowed" if count > _MAX_CONDITIONS else None


def _comparisons(value: Mapping[str, Any]) -> int:
    return sum(map(_comparisons, value["conditions"])) if "conditions" in value else 1


def _one_condition(value: Mapping[str, Any]) -> Problem:
    match value.get("type"):
        case "comparison":
            return _keys(value, "type", "column", "operator", "parameter") or _column(value) or _comparison(value)
        case "nullity":
            return _keys(value, "type", "column", "is_null") or _column(value) or _nullity(value)
        case "and" | "or" as kind:
            return _keys(value, "type", "conditions") or _group(value["conditions"], kind)
        case other:
            return f"has the type {other!r}; allowed are comparison, nullity, and, or"


def _keys(value: Mapping[str, Any], *wanted: str) -> Problem:
    return None if set(value) == set(wanted) else f"has the keys {sorted(value)}; exactly {sorted(wanted)} are allowed"


def _column(value: Mapping[str, Any]) -> Problem:
    column = value["column"]
    if not isinstance(column, dict) or set(column) != {"name"}:
        return 'needs a column, written {"name": "..."}'
    problem = name(column["name"])
    if column["name"] in _OF_PANDAS:
        problem = "pandas takes for its own value of this name; select the rows by another column"
    return f"names the column {column['name']!r}, which {problem}" if problem else None


def _nullity(value: Mapping[str, Any]) -> Problem:
    problem = flag(value["is_null"])
    return f"has is_null {value['is_null']!r}, which {problem}" if problem else None


def _comparison(value: Mapping[str, Any]) -> Problem:
    operator, parameter = value["operator"], value["parameter"]
    if operator not in _OPERATORS:
        return f"has the operator {operator!r}; allowed are {', '.join(_OPERATORS)}"
    if operator in {"IN", "NOT_IN"}:
        problem = values(parameter) or _no_flags(parameter)
    elif isinstance(parameter, str) and bound(parameter) is None:
        problem = "is a time, which the two engines read in different zones; compare a column of milliseconds instead"
    else:
        problem = None if isinstance(parameter, str | bool) else number(parameter)
    return f"compares with {parameter!r}, which {problem}" if problem else None


def _no_flags(parameter: list[Any]) -> Problem:
    has_flags = any(isinstance(item, bool) for item in parameter)
    return "has booleans, which Great Expectations does not allow in a list; use ==" if has_flags else None


def _group(parts: object, kind: str) -> Problem:
    if not isinstance(parts, list) or not parts:
        return "has no list of conditions"
    # Great Expectations allows an or of ands, and no deeper nesting.
    if any(isinstance(part, dict) and part.get("type") == "or" for part in parts):
        return f"has an or inside an {kind}; write it as an or of and conditions"
    return next((f"has a part that {problem}" for part in parts if (problem := condition(part))), None)
