"""Which names a key column or an aggregate may not have: those of our own tables' columns (DESIGN.md, section 5)."""

import re
from collections.abc import Mapping
from typing import TypeVar

from windowlib.tables import timers, window_outputs, window_state

RESERVED = frozenset(
    name for table in (window_outputs({}, {}), window_state({}, {}), timers({})) for name in table.stored_columns()
)
ACCUMULATOR_PREFIX = "acc_"

_AGGREGATE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
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


def check_aggregate_names(aggregates: Mapping[str, _Value]) -> Mapping[str, _Value]:
    """The aggregates, when there is one, and every name is a free identifier, case not counting.

    Raises:
        ValueError: names the aggregate and what to do.
    """
    if not aggregates:
        raise ValueError("needs at least one aggregate, such as {records: {count: {}}}")
    seen: dict[str, str] = {}
    for name in aggregates:
        if not _AGGREGATE_NAME.fullmatch(name):
            raise ValueError(
                f"aggregate {name!r} is no name: letters, digits and _, not beginning with a digit, at most 64 long"
            )
        _check_free(name, "aggregate", f"choose another name, such as {name.strip('_')}_value")
        if name.lower() in seen:
            raise ValueError(f"aggregates {seen[name.lower()]!r} and {name!r} differ in case only; rename one")
        seen[name.lower()] = name
    return aggregates


def check_apart(key_columns: tuple[str, ...], aggregates: Mapping[str, object]) -> None:
    """Refuse an aggregate that is named like a key column.

    Raises:
        ValueError: names the aggregate and what to do.
    """
    keys = {column.lower() for column in key_columns}
    for name in aggregates:
        if name.lower() in keys:
            raise ValueError(
                f"aggregate {name!r} is named like a key column; choose another name, such as {name}_value"
            )
