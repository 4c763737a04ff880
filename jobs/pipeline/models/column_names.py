"""Checks the names of key columns and outputs: they must differ from our tables' columns (docs/reference/tables.md)."""

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from windowlib.records.tables import side_outputs, timers, window_outputs, window_state

_TABLES = (window_outputs({}, {}), side_outputs("", {}, {}), window_state({}, {}), timers({}))
RESERVED = frozenset(name for table in _TABLES for name in table.stored_columns())
ACCUMULATOR_PREFIX = "acc_"

_OUTPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_ALLOWED_NAME = "is not a valid name; allowed: letters, digits and _, a letter or _ first, at most 64 characters"
_REFUSED_BY_DELTA = set(" ,;{}()\n\t=")
_REFUSED_RUNS = re.compile(r"[^A-Za-z0-9_]+")

_Value = TypeVar("_Value")


def _check_free(name: str, what: str, hint: str) -> None:
    if name.lower() in RESERVED:
        raise ValueError(f"{what} {name!r} has the name of a column of Hindcast's own tables; {hint}")
    if name.lower().startswith(ACCUMULATOR_PREFIX) or name.startswith("__"):
        raise ValueError(
            f"{what} {name!r} begins with {ACCUMULATOR_PREFIX} or __, like columns of Hindcast's own tables; {hint}"
        )


def check_key_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key columns if no name occurs twice or collides with a column of our tables.

    Spark ignores the case of column names, and so does this check.
    Raises ValueError: the message has the column and what to do.
    """
    seen: dict[str, str] = {}
    for column in columns:
        _check_free(column, "key column", f"derive another one in log.columns, such as {column.strip('_')}_key")
        if _REFUSED_BY_DELTA & set(column):
            raise ValueError(
                f"key column {column!r} has a character that Delta refuses in a column name; derive another one in "
                f"log.columns, such as {{{_REFUSED_RUNS.sub('_', column).strip('_')}: '\"{column}\"'}}"
            )
        if column.lower() in seen:
            raise ValueError(f"key column {column!r} is given twice ({seen[column.lower()]!r}; case is ignored)")
        seen[column.lower()] = column
    return columns


def check_output_names(named: Mapping[str, _Value], what: str) -> Mapping[str, _Value]:
    """Return the outputs if every name is a valid identifier that differs from the others and from our columns.

    `what` is the kind of output for the message, such as "aggregate". Case is ignored.
    Raises ValueError: a name is not allowed, or `named` is empty; the message has the name and what to do.
    """
    if not named:
        raise ValueError(f"needs at least one {what}")
    return _check_names(named, what, is_stored=True)


def check_derived_names(named: Mapping[str, _Value]) -> Mapping[str, _Value]:
    """Return the derived columns if every name is a valid identifier that differs from the others in more than case.

    Raises ValueError: a name is not allowed, or there is none; the message has the name and what to do.
    """
    if not named:
        raise ValueError("needs at least one column, such as {user_id: payload.user.id}")
    return _check_names(named, "derived column", is_stored=False)


def _check_names(named: Mapping[str, _Value], what: str, *, is_stored: bool) -> Mapping[str, _Value]:
    seen: dict[str, str] = {}
    for name in named:
        if not _OUTPUT_NAME.fullmatch(name):
            raise ValueError(f"{what} {name!r} {_ALLOWED_NAME}")
        if is_stored:
            _check_free(name, what, f"choose another name, such as {name.strip('_')}_value")
        if name.lower() in seen:
            raise ValueError(f"{what}s {seen[name.lower()]!r} and {name!r} differ in case only; rename one of them")
        seen[name.lower()] = name
    return named


def check_apart(key_columns: tuple[str, ...], named: Iterable[str], what: str) -> None:
    """Refuse an output that has the name of a key column.

    Raises ValueError: the message has the output and what to do.
    """
    keys = {column.lower() for column in key_columns}
    for name in named:
        if name.lower() in keys:
            raise ValueError(f"{what} {name!r} has the name of a key column; choose another name, such as {name}_value")
