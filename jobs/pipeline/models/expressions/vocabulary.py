"""What an expression may use: functions, types and parts of dates. All else is refused.

docs/reference/pipelines.md lists it.

Each function gives the same result for the same arguments: none reads a clock, a locale, a setting or a file.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Function(NamedTuple):
    """How many arguments a function takes. The arguments at the places `literal` must be literals.

    `takes_bytes`: the first argument may be a BINARY column, whose bytes are then read as a UTF-8 text.
    """

    least: int
    most: int
    literal: tuple[int, ...] = ()
    takes_bytes: bool = False


_ANY: Final = 50

FUNCTIONS: Final[Mapping[str, Function]] = {
    "abs": Function(1, 1),
    "ceil": Function(1, 1),
    "coalesce": Function(1, _ANY),
    "concat": Function(1, _ANY),
    "contains": Function(2, 2),
    "date_trunc": Function(2, 2, (0,)),
    "decode": Function(1, 1, (), takes_bytes=True),
    "epoch_ms": Function(1, 1),
    "floor": Function(1, 1),
    "greatest": Function(1, _ANY),
    "json_extract": Function(2, 2, (1,), takes_bytes=True),
    "json_extract_string": Function(2, 2, (1,), takes_bytes=True),
    "least": Function(1, _ANY),
    "left": Function(2, 2),
    "length": Function(1, 1),
    "lower": Function(1, 1),
    "ltrim": Function(1, 2),
    "make_date": Function(3, 3),
    "make_timestamp": Function(1, 6),
    "nullif": Function(2, 2),
    "regexp_extract": Function(2, 3, (1, 2)),
    "regexp_matches": Function(2, 2, (1,)),
    "replace": Function(3, 3),
    "right": Function(2, 2),
    "round": Function(1, 2, (1,)),
    "rtrim": Function(1, 2),
    "split_part": Function(3, 3),
    "starts_with": Function(2, 2),
    "strptime": Function(2, 2, (1,)),
    "substring": Function(2, 3),
    "trim": Function(1, 2),
    "try_strptime": Function(2, 2, (1,)),
    "upper": Function(1, 1),
}

DATE_PARTS: Final = (
    "year", "quarter", "month", "week", "day", "dayofweek", "dayofyear", "isoyear", "isodow", "hour", "minute",
    "second", "millisecond", "microsecond", "epoch",
)  # fmt: skip
TRUNCATED_TO: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")

TYPES: Final[Mapping[str, str]] = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DECIMAL": "decimal",
    "TEXT": "varchar",
    "DATE": "date",
    "TIMESTAMPNTZ": "timestamp",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamptz",
}
"""sqlglot's name of a type -> DuckDB's."""

CLOCKS: Final = frozenset({
    "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "now", "today",
    "get_current_time", "transaction_timestamp", "random", "uuid", "gen_random_uuid",
})  # fmt: skip
"""Words of SQL whose value is another one at each reading: a record must have the same values in every replay."""
