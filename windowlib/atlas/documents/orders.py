"""Sort orders over documents: fields, each ascending or descending, in the order of BSON."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from windowlib.atlas.documents.documents import MISSING, Value, candidates, sort_key
from windowlib.atlas.documents.places import Json, Place


@dataclass(frozen=True, slots=True)
class SortOrder:
    """Paths with their directions, the first one first. Equal documents keep their order."""

    fields: tuple[tuple[tuple[str, ...], bool], ...]
    """(path, whether descending)."""

    @classmethod
    def read(cls, found: Json, place: Place) -> "SortOrder":
        """Read `{field: 1, other.field: -1}`.

        Raises:
            SpecError: no field, or a direction that is neither 1 nor -1.
        """
        fields = []
        for name, direction in place.mapping(found).items():
            if isinstance(direction, bool) or not isinstance(direction, int | float) or direction not in {1, -1}:
                raise place.at(name).refused(direction, "1 (ascending) or -1 (descending)")
            fields.append((tuple(place.at(name).text(name).split(".")), direction == -1))
        if not fields:
            raise place.refused(found, "at least one field with 1 or -1")
        return cls(tuple(fields))

    def sorted(self, items: Iterable[Any], *, document_of: Callable[[Any], Value]) -> list[Any]:
        """Return items in the order of their documents."""
        ordered = list(items)
        for path, is_descending in reversed(self.fields):
            keys = [_key(document_of(item), path, is_descending=is_descending) for item in ordered]
            places = sorted(range(len(ordered)), key=keys.__getitem__, reverse=is_descending)
            ordered = [ordered[place] for place in places]
        return ordered


def _key(document: Value, path: tuple[str, ...], *, is_descending: bool) -> tuple[Any, ...]:
    """Return what a document is sorted by: null where the field is missing; of an array its least or greatest element.

    An empty array comes before null.
    """
    values: list[Value] = []
    for value in candidates(document, path) or [MISSING]:
        values += value if isinstance(value, list) else [value]
    if not values:
        return (-1,)
    keys = [sort_key(None if value is MISSING else value) for value in values]
    return max(keys) if is_descending else min(keys)
