"""`Place`, a path inside a stage: reads and checks the options there; each error has the path."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from windowlib.errors import SpecError

Json = Any
"""A value from a JSON text or a YAML file."""

_SHOWN_MAX: Final = 80
SYSTEM_VARIABLES: Final = frozenset({"ROOT", "CURRENT", "NOW", "REMOVE"})


@dataclass(frozen=True, slots=True)
class Place:
    """A path inside a stage, such as `$tumblingWindow.pipeline[0].$group`, and the variables that are defined there.

    The methods that read an option raise a SpecError if the option has another type.
    """

    path: str
    variables: frozenset[str] = SYSTEM_VARIABLES

    def at(self, name: str) -> "Place":
        """Return the place of the field `name`."""
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> "Place":
        return replace(self, path=f"{self.path}[{index}]")

    def with_variables(self, *names: str) -> "Place":
        """Return the same place with `names` as additional variables."""
        return replace(self, variables=self.variables | set(names))

    def refused(self, value: Json, allowed: str) -> SpecError:
        """Return an error with the path, the value that was found, and the allowed values."""
        return SpecError(f"{self.path}: found {_shown(value)}; allowed is {allowed}")

    def mapping(self, value: Json) -> Mapping[str, Json]:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise self.refused(value, "an object")
        return value

    def fields(self, value: Json, *, required: Sequence[str] = (), optional: Sequence[str] = ()) -> Mapping[str, Json]:
        """Return `value` as an object that has all required fields, and no fields except required and optional ones."""
        fields = self.mapping(value)
        known = (*required, *optional)
        for name in fields:
            if name not in known:
                raise SpecError(f"{self.at(name).path}: there is no such option; allowed are {', '.join(known)}")
        for name in required:
            if name not in fields:
                raise SpecError(f"{self.path}: {name} is missing; needed are {', '.join(required)}")
        return fields

    def array(self, value: Json) -> Sequence[Json]:
        if not isinstance(value, list | tuple):
            raise self.refused(value, "an array")
        return value

    def text(self, value: Json) -> str:
        """Return `value` as a non-empty text."""
        if not isinstance(value, str) or not value:
            raise self.refused(value, "a text that is not empty")
        return value

    def integer(self, value: Json, *, at_least: int | None = None) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or (at_least is not None and value < at_least):
            raise self.refused(value, "an integer" if at_least is None else f"an integer of at least {at_least}")
        return value

    def one_of(self, value: Json, allowed: Collection[str]) -> str:
        """Return `value` if it is one of the allowed texts."""
        if not isinstance(value, str) or value not in allowed:
            raise self.refused(value, "one of " + ", ".join(allowed))
        return value

    def single(self, value: Json, what: str) -> tuple[str, Json]:
        """Return the name and the value of the only field of an object; `what` describes the field in the error."""
        fields = self.mapping(value)
        if len(fields) != 1:
            raise self.refused(value, f"an object with one field, {what}")
        return next(iter(fields.items()))


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
