"""What an operator of the expression language is: a function of values, of named values, or a form of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from windowlib.atlas.documents.documents import Document, Value
from windowlib.atlas.documents.json_documents import described
from windowlib.atlas.documents.places import Json, Place


class ExpressionFault(Exception):  # noqa: N818 - it is a document that is at fault, and that goes to the dead letters
    """An expression has no value for this document; the text is the reason in the dead letter."""


def fault(operator: str, value: Value, needed: str) -> ExpressionFault:
    """Return the fault of an operator that cannot take a value."""
    return ExpressionFault(f"{operator} needs {needed}, got {described(value)}")


class Scope(NamedTuple):
    """What an expression sees: the document, the stream's metadata, the clock, and variables."""

    root: Value
    meta: Document
    now_ms: int
    variables: Mapping[str, Value] = MappingProxyType({})

    def knowing(self, **variables: Value) -> "Scope":
        """Return the same scope with more variables."""
        return self._replace(variables={**self.variables, **variables})


Expression = Callable[[Scope], Value]
"""Returns the expression's value, MISSING for none; raises ExpressionFault."""
Compile = Callable[[Json, Place], Expression]


@dataclass(frozen=True, slots=True)
class Call:
    """An operator over a list of arguments: from `least` to `most` of them (None: any number)."""

    function: Callable[..., Any]
    least: int = 1
    most: int | None = 1


@dataclass(frozen=True, slots=True)
class NamedCall:
    """An operator over named arguments; Python's name of `binSize` is `bin_size`. Absent ones are not passed."""

    function: Callable[..., Any]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Special:
    """An operator that does not just evaluate all of its arguments first."""

    compile: Callable[[Json, Place, Compile], Expression]


Form = Call | NamedCall | Special

Operators = Mapping[str, Form]
NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})
