"""The state that the builders of one pipeline share: its columns, its layout and its functions."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from jobs.engine.layout import Layout
from jobs.engine.placed_errors import PlacedSpecError
from jobs.engine.user_functions import Functions
from jobs.pipeline.models.grammar import FunctionGrammar
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.keyed.call_context import NO_CLOCK, Missing

_Kind = TypeVar("_Kind")
_CACHE: Final = type(cache(len))


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One pipeline over one log, while it is built. `columns` maps the log's columns to their Spark types."""

    pipeline: Pipeline
    columns: Mapping[str, str]
    functions: Functions
    layout: Layout

    @property
    def missing(self) -> Missing:
        """What users' functions cannot use, because the pipeline has no clock."""
        return NO_CLOCK if self.pipeline.log.arrival_time is None else ()

    def instance(self, grammar: FunctionGrammar, kind: type[_Kind], path: str) -> _Kind:
        """Return a user's object of a kind: the object that the file names, or a new instance of the class it names.

        Raises SpecError: the file names something else, or the class cannot be called without arguments.
        """
        attribute = self.functions.load(grammar, path)
        if isinstance(attribute, type) and issubclass(attribute, kind):
            try:
                return attribute()
            except TypeError as error:
                raise self._error(
                    path,
                    f"the class {grammar.name} cannot be called without arguments ({error}); name an object instead, "
                    "such as `mine = Mine(3)` in the module",
                ) from error
        if isinstance(attribute, kind):
            return attribute
        raise self._error(
            path,
            f"{grammar.name} is {_described(attribute)}; allowed: an object or a subclass of windowlib.{kind.__name__}",
        )

    def function(self, grammar: FunctionGrammar, path: str, parameters: str) -> Callable[..., Any]:
        """Return a user's function. `parameters` are the names of those with which it is called, by position.

        Raises SpecError: the file names something else, or a function that does not take these parameters.
        """
        function = self.functions.load(grammar, path)
        if not callable(function) or isinstance(function, type):
            raise self._error(path, f"{grammar.name} is {_described(function)}; allowed: a function")
        # A cache takes what its function takes. The wrapper of another decorator may give its function other arguments.
        own = inspect.unwrap(function, stop=lambda wrapper: not isinstance(wrapper, _CACHE))
        try:
            signature = inspect.signature(own, follow_wrapped=False)
        except ValueError:  # some functions of C have no signature
            return function
        try:
            signature.bind(*parameters.split(", "))
        except TypeError as error:
            problem = f"{grammar.name}{signature} is called with ({parameters}): {error}"
            raise self._error(path, problem) from error
        return function

    def _error(self, path: str, problem: str) -> PlacedSpecError:
        return PlacedSpecError.at(self.pipeline.source, path, problem)


def _described(attribute: object) -> str:
    return f"the class {attribute.__name__}" if isinstance(attribute, type) else f"of type {type(attribute).__name__}"
