"""The forms of operators (a function of values, a function of named values, or a special form) and their scope."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from windowlib.atlas.documents.documents import Document, Value
from windowlib.atlas.documents.json_documents import described
from windowlib.atlas.documents.places import Json, Place


class ExpressionFault(Exception):  # noqa: N818 - the document is at fault, and becomes a dead letter
    """An expression has no value for a document. The message is stored as the reason in the dead letter."""


def fault(operator: str, value: Value, needed: str) -> ExpressionFault:
    """Return the fault of an operator that does not accept a value."""
    return ExpressionFault(f"{operator} needs {needed}, got {described(value)}")


class Scope(NamedTuple):
    """The input of an expression: the document, the stream's metadata, the clock, and the variables."""

    root: Value
    meta: Document
    now_ms: int
    variables: Mapping[str, Value] = MappingProxyType({})

    def with_variables(self, **variables: Value) -> "Scope":
        return self._replace(variables={**self.variables, **variables})


Expression = Callable[[Scope], Value]
"""Returns the expression's value, or MISSING if it has none; raises ExpressionFault."""
Compile = Callable[[Json, Place], Expression]


@dataclass(frozen=True, slots=True)
class Call:
    """An operator over a list of `least` to `most` arguments; None is no upper limit."""

    function: Callable[..., Any]
    least: int = 1
    most: int | None = 1


@dataclass(frozen=True, slots=True)
class NamedCall:
    """An operator over named arguments. `binSize` is passed as `bin_size`. Absent arguments are not passed."""

    function: Callable[..., Any]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Special:
    """An operator that compiles its own arguments, because it does not evaluate all of them first."""

    compile: Callable[[Json, Place, Compile], Expression]


Form = Call | NamedCall | Special

Operators = Mapping[str, Form]
