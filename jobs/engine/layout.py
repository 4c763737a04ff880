"""The columns of the log that a pipeline's records carry, and the place of each column in a record's value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from jobs.engine.engine import ValueLayout
from jobs.pipeline.models.grammar import FunctionGrammar
from windowlib.windows.record_readers import ColumnsOf, Measure, Place


@dataclass(slots=True, kw_only=True)
class Layout:
    """Collects the columns that the parts of a pipeline read, while the pipeline is built.

    A record's value is a tuple or a mapping, by `kind`. A 'tuple' begins with one place per aggregate (None: the
    aggregate reads no column), a 'mapping' with the columns of a user's function. `log_columns` are all columns of
    the log. A tuple ends with a mapping of the columns `shown` to users' functions, if there are any.
    """

    kind: Literal["tuple", "mapping"]
    log_columns: tuple[str, ...]
    columns: list[str | None] = field(default_factory=list)
    shown: dict[str, None] = field(default_factory=dict)

    def place(self, column: str) -> Place:
        """Add the column if it is new. Return its place in a record's value: an index, or its name in a mapping."""
        if column not in self.columns:
            self.columns.append(column)
        return self.columns.index(column) if self.kind == "tuple" else column

    def measure(self, column: str) -> Measure:
        """Return a reader that gives the column of a record as a number."""
        return Measure(self.place(column))

    def shown_to(self, function: FunctionGrammar) -> ColumnsOf:
        """Return the columns of a record that a user's function gets: those that the file lists, else all."""
        names = function.columns or self.log_columns
        if self.kind == "tuple":
            self.shown |= dict.fromkeys(names)
            return ColumnsOf(tuple((name, name) for name in names), within=-1)
        return ColumnsOf(tuple((name, self.place(name)) for name in names))

    def built(self) -> ValueLayout:
        return ValueLayout(kind=self.kind, columns=tuple(self.columns), shown=tuple(self.shown))


def mapping_layout(names: Iterable[str], log_columns: Mapping[str, str]) -> Layout:
    """Return the layout of a pipeline without aggregates: a mapping that begins with the columns in `names`."""
    return Layout(kind="mapping", log_columns=tuple(log_columns), columns=list(names))
