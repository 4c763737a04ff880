"""Which names a key column or an output may not have: those of our own tables' columns (DESIGN.md, section 5)."""

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from windowlib.records.tables import side_outputs, timers, window_outputs, window_state

_TABLES = (window_outputs({}, {}), side_outputs("", {}, {}), window_state({}, {}), timers({}))
RESERVED = frozenset(name for table in _TABLES for name in table.stored_columns())
ACCUMULATOR_PREFIX = "acc_"

_OUTPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_REFUSED_BY_DELTA = set(" ,;{}()\n\t=")

_Value = TypeVar("_Value")


def _check_free(name: str, what: str, hint: str) -> None:
    if name.lower() in RESERVED:
        raise ValueError(f"{what} {name!r} is named like a column of our own tables; {hint}")
    if name.lower().startswith(ACCUMULATOR_PREFIX) or name.startswith("__"):
        raise ValueError(
            f"{what} {name!r} begins like a column of our own tables ({ACCUMULATOR_PREFIX}… or __…); {hint}"
        )


def check_key_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The key columns, when none is given twice or collides with a column of ours; case does not count in Spark.

    Raises:
        ValueError: names the column and what to do.
    """
    seen: dict[str, str] = {}
    for column in columns:
        _check_free(column, "key column", f"rename it in the log, or add a copy such as {column.strip('_')}_key")
        if _REFUSED_BY_DELTA & set(column):
            raise ValueError(
                f"key column {column!r} holds a character that Delta refuses in a column name; rename it in the log"
            )
        if column.lower() in seen:
            raise ValueError(f"key column {column!r} is given twice ({seen[column.lower()]!r}; case does not count)")
        seen[column.lower()] = column
    return columns


def check_output_names(named: Mapping[str, _Value], what: str) -> Mapping[str, _Value]:
    """The outputs (`what`: aggregate, output column ..), when every name is a free identifier, case not counting.

    Raises:
        ValueError: names the output and what to do; or there is none.
    """
    if not named:
        raise ValueError(f"needs at least one {what}")
    seen: dict[str, str] = {}
    for name in named:
        if not _OUTPUT_NAME.fullmatch(name):
            raise ValueError(
                f"{what} {name!r} is no name: letters, digits and _, not beginning with a digit, at most 64 long"
            )
        _check_free(name, what, f"choose another name, such as {name.strip('_')}_value")
        if name.lower() in seen:
            raise ValueError(f"{what}s {seen[name.lower()]!r} and {name!r} differ in case only; rename one")
        seen[name.lower()] = name
    return named


def check_apart(key_columns: tuple[str, ...], named: Iterable[str], what: str) -> None:
    """Refuse an output that is named like a key column.

    Raises:
        ValueError: names the output and what to do.
    """
    keys = {column.lower() for column in key_columns}
    for name in named:
        if name.lower() in keys:
            raise ValueError(f"{what} {name!r} is named like a key column; choose another name, such as {name}_value")
