"""The columns that a pipeline derives from those of its log, and its filter, as SQL of DuckDB over known types."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from jobs.expressions.derived_columns import WHERE, Derivation, DerivedColumn, Leaf
from jobs.pipeline.models.expressions.syntax import BEFORE_US, Path, path_of, quoted, written
from jobs.pipeline.models.suggestions import did_you_mean
from windowlib.errors import SpecError
from windowlib.records.column_types import Node, decimal_of, parse_type

_NODES: Final[Mapping[str, Node]] = {
    "BOOLEAN": "boolean", "TINYINT": "byte", "SMALLINT": "short", "INTEGER": "integer", "BIGINT": "long",
    "FLOAT": "float", "DOUBLE": "double", "VARCHAR": "string", "JSON": "string", "DATE": "date",
    "TIMESTAMP": "timestamp_ntz", "TIMESTAMP WITH TIME ZONE": "timestamp",
}  # fmt: skip

_FIRST_US: Final = BEFORE_US - (1 << 63)
"""DuckDB's first time."""


class Resolver:
    """Finds the names of expressions among the columns of a log. `columns` has their types in Spark's spelling."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = columns
        self.leaves: dict[str, Leaf] = {}
        self.derived: dict[str, str] = {}

    def has_path(self, name: str) -> bool:
        """Return whether a name with dots is a path into a column of the log."""
        return self._find(tuple(name.split("."))) is not None

    def leaf(self, path: Path) -> str:
        """Return the name of the leaf at a path. Raises ValueError: the log has no such column or field."""
        name = ".".join(path)
        leaf = self._find(path)
        if leaf is None:
            raise ValueError(self._absent(path))
        self.leaves[name] = leaf
        return name

    def sql(self, text: str) -> str:
        """Return an expression as SQL over leaves.

        Raises ValueError: the expression is not allowed, or names a column that the log does not have.
        """
        return written(text, self._sql_of, are_bytes=self._is_binary)

    def _sql_of(self, path: Path) -> str:
        derived = self.derived.get(path[0]) if len(path) == 1 else None
        return f"({derived})" if derived is not None else self.read(self.leaf(path))

    def read(self, leaf: str) -> str:
        """Return a leaf as SQL. A TIMESTAMP_NTZ before DuckDB's first time overflows (`BEFORE_US`)."""
        name = quoted((leaf,))
        if self.leaves[leaf].node != "timestamp_ntz":
            return name
        is_before = f"{name} < make_timestamp({_FIRST_US}) and {name} <> '-infinity'"
        return f"(case when {is_before} then make_timestamp(epoch_us({name}) - {BEFORE_US}) else {name} end)"

    def _is_binary(self, path: Path) -> bool:
        leaf = self._find(path)
        return leaf is not None and leaf.node == "binary"

    def _find(self, path: Path) -> Leaf | None:
        """Return the leaf at a path. The column with the most dots in its name wins."""
        for count in range(len(path), 0, -1):
            column = ".".join(path[:count])
            if column in self.columns:
                node: Node | None = parse_type(self.columns[column]) if count < len(path) else None
                for name in path[count:]:
                    node = _field(node, name)
                if count == len(path):
                    node = _leaf_type(self.columns[column])
                return None if node is None else Leaf(column=column, fields=path[count:], node=node)
        return None

    def _absent(self, path: Path) -> str:
        name = ".".join(path)
        known = [*self.columns, *self.derived]
        for count in range(len(path) - 1, 0, -1):
            column = ".".join(path[:count])
            if column in self.columns:
                kind, absent = self.columns[column], ".".join(path[count:])
                return f"column {column!r} of the log is {kind} and has no field {absent!r}"
        there = ", ".join(f"{column} {kind}" for column, kind in self.columns.items())
        return f"the log has no column {name!r}; it has {there}{did_you_mean(name, known)}"


def _leaf_type(spelling: str) -> Node:
    try:
        return parse_type(spelling)
    except SpecError:  # a VARIANT or an interval, which no expression can read
        return spelling


def _field(node: Node | None, name: str) -> Node | None:
    if isinstance(node, Mapping) and node["type"] == "struct":
        return next((field["type"] for field in node["fields"] if field["name"] == name), None)
    return None


@lru_cache(maxsize=64)
def derivation_of(
    columns: tuple[tuple[str, str], ...], expressions: tuple[tuple[str, str], ...], where: str | None
) -> Derivation:
    """Return what expressions derive from a log with these columns.

    `columns` are pairs of a name and a Spark simple type. `expressions` are pairs of the name of a derived column and
    its expression, which names columns of the log. The filter `where` names derived columns as well.
    Raises SpecError: an expression is not allowed, names a column that the log does not have, or has a type that no
    column can have. The message has the name of the derived column.
    """
    resolver = Resolver(dict(columns))
    made = [_derived(resolver, name, text) for name, text in expressions]
    resolver.derived = {
        column.name: resolver.read(column.leaf) if column.sql is None else column.sql for column in made
    }
    try:
        kept = None if where is None else resolver.sql(where)
    except ValueError as error:
        raise SpecError(f"log.where: {error}") from error
    asked = {column.name: column.sql for column in made if column.sql is not None}
    asked |= {} if kept is None else {WHERE: kept}
    if not asked:
        return Derivation(columns=tuple(made), leaves=resolver.leaves)
    nodes = _types(asked, resolver.leaves)
    if kept is not None and nodes[WHERE] != "boolean":
        raise SpecError(f"log.where: expected a condition (BOOLEAN), such as topic = 'clicks'; found {nodes[WHERE]}")
    columns_made = tuple(column if column.sql is None else replace(column, node=nodes[column.name]) for column in made)
    return Derivation(columns=columns_made, where=kept, leaves=resolver.leaves)


def path_expressions(columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the names that are paths into columns of the log, each with its expression."""
    resolver = Resolver(columns)
    return {name: quoted(tuple(name.split("."))) for name in names if resolver.has_path(name)}


def _derived(resolver: Resolver, name: str, text: str) -> DerivedColumn:
    """Return a derived column. The type of an expression is not known yet."""
    try:
        path = path_of(text)
        if path is not None:
            leaf = resolver.leaf(path)
            return DerivedColumn(name=name, node=resolver.leaves[leaf].node, leaf=leaf)
        return DerivedColumn(name=name, node="", leaf="", sql=resolver.sql(text))
    except ValueError as error:
        raise SpecError(f"log.columns.{name}: {error}") from error


def _types(asked: Mapping[str, str], leaves: Mapping[str, Leaf]) -> dict[str, Node]:
    """Return the type of each expression, as DuckDB finds it for an empty table with the types of the leaves."""
    from jobs.expressions.evaluation import result_types

    nodes: dict[str, Node] = {}
    for name, kind in result_types(asked, {leaf: own.node for leaf, own in leaves.items()}).items():
        key = f"log.{WHERE}" if name == WHERE else f"log.columns.{name}"
        node = _NODES.get(kind) or (kind.lower() if decimal_of(kind.lower()) else None)
        if node is None:
            raise SpecError(
                f"{key}: the expression has DuckDB's type {kind}, which no column of a log has; write cast(... as TYPE)"
            )
        nodes[name] = node
    return nodes
