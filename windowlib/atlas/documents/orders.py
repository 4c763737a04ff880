"""Sort orders over documents: a list of fields, each ascending or descending in the order of BSON."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from windowlib.atlas.documents.documents import MISSING, Value, candidates, sort_key
from windowlib.atlas.documents.places import Json, Place


@dataclass(frozen=True, slots=True)
class SortOrder:
    """Paths with their directions, the most significant first. The sort is stable."""

    fields: tuple[tuple[tuple[str, ...], bool], ...]
    """(path, whether descending)."""

    @classmethod
    def read(cls, order: Json, place: Place) -> "SortOrder":
        """Return the order that a stage writes as `{field: 1, other.field: -1}`.

        Raises SpecError: there is no field, or a direction is not 1 or -1.
        """
        fields = []
        for name, direction in place.mapping(order).items():
            if isinstance(direction, bool) or not isinstance(direction, int | float) or direction not in {1, -1}:
                raise place.at(name).refused(direction, "1 (ascending) or -1 (descending)")
            fields.append((tuple(place.at(name).text(name).split(".")), direction == -1))
        if not fields:
            raise place.refused(order, "at least one field with 1 or -1")
        return cls(tuple(fields))

    def sorted(self, items: Iterable[Any], *, document_of: Callable[[Any], Value]) -> list[Any]:
        """Return the items, sorted by their documents."""
        ordered = list(items)
        for path, is_descending in reversed(self.fields):
            keys = [_key(document_of(item), path, is_descending=is_descending) for item in ordered]
            places = sorted(range(len(ordered)), key=keys.__getitem__, reverse=is_descending)
            ordered = [ordered[place] for place in places]
        return ordered


def _key(document: Value, path: tuple[str, ...], *, is_descending: bool) -> tuple[Any, ...]:
    """Return the sort key of a document's field. A missing field sorts as null, an empty array before null.

    An array sorts by its least element, or by its greatest in a descending order.
    """
    values: list[Value] = []
    for value in candidates(document, path) or [MISSING]:
        values += value if isinstance(value, list) else [value]
    if not values:
        return (-1,)
    keys = [sort_key(None if value is MISSING else value) for value in values]
    return max(keys) if is_descending else min(keys)
