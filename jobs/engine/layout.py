"""Which columns of the log a pipeline's records carry, and where each part of the pipeline finds its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from jobs.engine.engine import ValueLayout
from jobs.pipeline.models.grammar import FunctionGrammar
from windowlib.windows.record_readers import ColumnsOf, Measure, Place


@dataclass(slots=True, kw_only=True)
class Layout:
    """Collects the columns that are asked for while a pipeline is built.

    `kind` 'tuple' begins with one place per aggregate (None: it reads nothing), 'mapping' with the columns of a user's
    function. `log_columns` are all there are.
    """

    kind: Literal["tuple", "mapping"]
    log_columns: tuple[str, ...]
    columns: list[str | None] = field(default_factory=list)

    def place(self, column: str) -> Place:
        """Return where the value of a column is found in a record's value."""
        if column not in self.columns:
            self.columns.append(column)
        return self.columns.index(column) if self.kind == "tuple" else column

    def measure(self, column: str) -> Measure:
        """Return the reader of a column as a number."""
        return Measure(self.place(column))

    def shown_to(self, function: FunctionGrammar) -> ColumnsOf:
        """Return what a user's function sees of a record: the columns that it names, or all of them."""
        names = function.columns or self.log_columns
        return ColumnsOf(tuple((name, self.place(name)) for name in names))

    def built(self) -> ValueLayout:
        """Return what was collected."""
        return ValueLayout(kind=self.kind, columns=tuple(self.columns))


def mapping_layout(names: Iterable[str], log_columns: Mapping[str, str]) -> Layout:
    """Return the layout of a pipeline without aggregates: a dict of these columns, and of what is asked for later."""
    return Layout(kind="mapping", log_columns=tuple(log_columns), columns=list(names))
