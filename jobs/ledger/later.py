"""Mappings and sequences whose values are made when they are first read.

A view of a ledger of years has ten thousands of values, and most commands read a few. Copies share the values.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from itertools import repeat
from typing import Any, TypeVar, overload

from typing_extensions import override

K = TypeVar("K")
V = TypeVar("V")


class Cell(list[tuple[Any, Callable[[Any], V] | None]]):
    """A value that `make` makes from `source` when it is first read. Two threads may both make it, and it is equal.

    Its only item is (source, make), and (value, None) afterwards. So `cells` makes many without a call of Python code.
    """

    __slots__ = ()

    @property
    def value(self) -> V:
        """The value. Its readers do not change it."""
        source, make = self[0]
        if make is None:
            made: V = source
            return made
        value = make(source)
        self[0] = value, None
        return value


def cells(sources: Iterable[Any], make: Callable[[Any], V]) -> Iterator[Cell[V]]:
    """Return a cell for each source."""
    return map(Cell, zip(zip(sources, repeat(make))))


class Later(MutableMapping[K, V]):
    """A mapping in the order of its keys. An item is a value, or a `Cell` of one."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[tuple[K, V | Cell[V]]] | dict[K, V | Cell[V]] = ()) -> None:
        self._items: dict[K, V | Cell[V]] = dict(items)

    def __getitem__(self, key: K) -> V:
        item = self._items[key]
        return item.value if isinstance(item, Cell) else item

    @override
    def get(self, key: K, default: Any = None) -> Any:
        item = self._items.get(key, default)
        return item.value if isinstance(item, Cell) else item

    def __setitem__(self, key: K, value: V) -> None:
        self._items[key] = value

    def __delitem__(self, key: K) -> None:
        del self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @override
    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> "Later[K, V]":
        """Return a mapping with the same values."""
        return Later(self._items)

    def sequence(self) -> "LaterSequence[V]":
        """Return the values in the order of the keys."""
        return LaterSequence([*self._items.values()])


class LaterSequence(Sequence[V]):
    """A sequence that does not change: of values and of `Cell`s of values, or made as a whole by one `Cell`."""

    __slots__ = ("_source",)

    def __init__(self, items: Sequence[V | Cell[V]] | Cell[Sequence[V]]) -> None:
        self._source = items

    @property
    def _items(self) -> Sequence[V | Cell[V]]:
        return self._source.value if isinstance(self._source, Cell) else self._source

    @overload
    def __getitem__(self, place: int) -> V: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[V, ...]: ...

    def __getitem__(self, place: int | slice) -> V | tuple[V, ...]:
        if isinstance(place, slice):
            return tuple(LaterSequence(self._items[place]))
        item = self._items[place]
        return item.value if isinstance(item, Cell) else item

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[V]:
        return (item.value if isinstance(item, Cell) else item for item in self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaterSequence | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
