"""What the builders of a pipeline share: its columns, its functions, and errors that name the file and the key."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from jobs.engine.layout import Layout
from jobs.engine.user_functions import Functions
from jobs.pipeline.models.grammar import FunctionGrammar
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.errors import SpecError

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One pipeline over one log, while it is built. `columns` maps the log's columns to their Spark types."""

    pipeline: Pipeline
    columns: Mapping[str, str]
    functions: Functions
    layout: Layout

    def instance(self, grammar: FunctionGrammar, kind: type[_Kind], path: str) -> _Kind:
        """Return a user's object of a kind: the object itself, or what its class makes without arguments.

        Raises:
            SpecError: it is of another kind; what was found and what is allowed.
        """
        found = self.functions.load(grammar, path)
        if isinstance(found, type) and issubclass(found, kind):
            try:
                return found()
            except TypeError as error:
                raise SpecError(
                    f"{self.pipeline.source}: {path}: {grammar.name} cannot be made without arguments ({error}); name "
                    "an object instead, such as `mine = Mine(3)` in the module"
                ) from error
        if isinstance(found, kind):
            return found
        raise SpecError(
            f"{self.pipeline.source}: {path}: {grammar.name} is {_described(found)}; allowed: {kind.__module__}."
            f"{kind.__name__}, an object or a class of it"
        )

    def function(self, grammar: FunctionGrammar, path: str) -> Callable[..., Any]:
        """Return a user's function.

        Raises:
            SpecError: it is none.
        """
        found = self.functions.load(grammar, path)
        if not callable(found) or isinstance(found, type):
            raise SpecError(
                f"{self.pipeline.source}: {path}: {grammar.name} is {_described(found)}; allowed: a function"
            )
        return found


def _described(found: object) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"of type {type(found).__name__}"


@contextmanager
def naming(pipeline: Pipeline, path: str) -> Iterator[None]:
    """Let an error of windowlib say where in the file it comes from."""
    try:
        yield
    except SpecError as error:
        if str(error).startswith(pipeline.source):
            raise
        raise SpecError(f"{pipeline.source}: {path}: {error}") from error
