"""What the versions of logs that are no Delta table have in common: no settings, and columns by their own names."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from jobs.lake.deleted_rows import DeletedRows
from jobs.lake.delta_log import no_bounds
from windowlib.records.column_types import Node, spell_type

if TYPE_CHECKING:
    import pyarrow as pa


class PlainVersion:
    """A part of `LogVersion`. A class of a format has the rest, and `nodes`: column -> its type."""

    nodes: Mapping[str, Node]
    is_mapped: bool = False
    is_read_by_spark: bool = False

    @property
    def columns(self) -> dict[str, str]:
        """The columns with Spark's types."""
        return {name: spell_type(node) for name, node in self.nodes.items()}

    @property
    def configuration(self) -> Mapping[str, str | None]:
        """No settings of a Delta table."""
        return {}

    @property
    def physical(self) -> dict[str, str]:
        """The names of the columns, which the files have, too."""
        return {name: name for name in self.nodes}

    def upper_bounds(self, column: str, paths: Collection[str]) -> "Mapping[str, pa.Scalar[Any]]":  # noqa: ARG002
        """Return nothing: only the files tell it."""
        return {}

    def bounds(self, column: str) -> "pa.Table":  # noqa: ARG002 - only the files tell it
        """Return no bounds."""
        return no_bounds()

    def deleted_rows(self) -> Mapping[str, DeletedRows]:
        """Return nothing: no file of this version has deleted rows."""
        return {}

    def lost(self) -> Mapping[str, str]:
        """Return nothing: the records of all files are known."""
        return {}
