"""Where in a stage something stands, and the checked reading of its options; every refusal names its place."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from windowlib.errors import SpecError

Json = Any
"""What a JSON text holds, or a YAML file."""

_SHOWN_MAX: Final = 80
SYSTEM_VARIABLES: Final = frozenset({"ROOT", "CURRENT", "NOW", "REMOVE"})


@dataclass(frozen=True, slots=True)
class Place:
    """A path inside a stage, `$tumblingWindow.pipeline[0].$group`, and the variables that are known there."""

    path: str
    variables: frozenset[str] = SYSTEM_VARIABLES

    def at(self, name: str) -> "Place":
        """Return the place of a field."""
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> "Place":
        """Return the place of an element."""
        return replace(self, path=f"{self.path}[{index}]")

    def knowing(self, *names: str) -> "Place":
        """Return the same place with more variables."""
        return replace(self, variables=self.variables | set(names))

    def refused(self, found: Json, allowed: str) -> SpecError:
        """Return the error that says what was found and what is allowed."""
        return SpecError(f"{self.path}: found {_shown(found)}; allowed is {allowed}")

    def mapping(self, found: Json) -> Mapping[str, Json]:
        """Return `found` as an object."""
        if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
            raise self.refused(found, "an object")
        return found

    def fields(self, found: Json, *, required: Sequence[str] = (), optional: Sequence[str] = ()) -> Mapping[str, Json]:
        """Return `found` as an object that has all of the required fields, and no others than these."""
        fields = self.mapping(found)
        known = (*required, *optional)
        for name in fields:
            if name not in known:
                raise SpecError(f"{self.at(name).path}: there is no such option; allowed are {', '.join(known)}")
        for name in required:
            if name not in fields:
                raise SpecError(f"{self.path}: {name} is missing; needed are {', '.join(required)}")
        return fields

    def array(self, found: Json) -> Sequence[Json]:
        """Return `found` as an array."""
        if not isinstance(found, list | tuple):
            raise self.refused(found, "an array")
        return found

    def text(self, found: Json) -> str:
        """Return `found` as a text that is not empty."""
        if not isinstance(found, str) or not found:
            raise self.refused(found, "a text that is not empty")
        return found

    def integer(self, found: Json, *, at_least: int | None = None) -> int:
        """Return `found` as an integer."""
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if not isinstance(found, int) or isinstance(found, bool) or (at_least is not None and found < at_least):
            raise self.refused(found, "an integer" if at_least is None else f"an integer of at least {at_least}")
        return found

    def one_of(self, found: Json, allowed: Collection[str]) -> str:
        """Return `found` if it is one of the allowed texts."""
        if not isinstance(found, str) or found not in allowed:
            raise self.refused(found, "one of " + ", ".join(allowed))
        return found

    def single(self, found: Json, what: str) -> tuple[str, Json]:
        """Return the only field of an object."""
        fields = self.mapping(found)
        if len(fields) != 1:
            raise self.refused(found, f"an object with one field, {what}")
        return next(iter(fields.items()))


def _shown(found: Json) -> str:
    text = repr(found)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
