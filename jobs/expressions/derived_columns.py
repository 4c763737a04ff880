"""What a pipeline derives from each record of its log, as plain data: derived columns and the filter."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from windowlib.records.column_types import Node

WHERE: Final = "where"
"""The name of the filter in messages and in `Derived.failed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A value that expressions read: a column of the log, or a field of a struct in one. `node` is its type."""

    column: str
    fields: tuple[str, ...]
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedColumn:
    """A derived column and its type. `sql` reads leaves by their names; None if the column is the leaf `leaf`."""

    name: str
    node: Node
    leaf: str
    sql: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """What a pipeline derives from each record of its log: columns, and whether the record is kept (`where`)."""

    columns: tuple[DerivedColumn, ...] = ()
    where: str | None = None
    leaves: Mapping[str, Leaf] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[str, Node]:
        return {column.name: column.node for column in self.columns}

    def unfiltered(self) -> "Derivation":
        """Return the derived columns without the filter: the values of records that it does not keep as well."""
        return replace(self, where=None)

    def __bool__(self) -> bool:
        """Return whether anything is derived or filtered."""
        return bool(self.columns) or self.where is not None
