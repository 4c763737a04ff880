"""The state of a user's function: values, lists and maps by (key, namespace, name). All of it is plain data.

The namespace is a window for the state of one window, and () for the state of a key.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from windowlib.errors import SpecError
from windowlib.keyed.key_order import group_of_order
from windowlib.keyed.state_rules import ONE_ROW, RowName, wrong_value
from windowlib.keyed.timer_owners import Namespace
from windowlib.keyed.timers import TimerService
from windowlib.records.plain_json import ATOMS, check_plain, has_nan, plain_copy
from windowlib.records.records import Value
from windowlib.records.tables import USER_STATE

Kind = Literal["value", "list", "map"]
KINDS: Final = ("value", "list", "map")
_NO_NAMESPACE: Final = ()
_SIMPLE_NAMES: Final = frozenset({str, int, bool, bytes})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec:
    """One piece of state that a function declares. `type` is the Spark type of the value, element or map value."""

    name: str
    kind: Kind = "value"
    type: str = "string"

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise SpecError(f"state {self.name!r}: the name must be an identifier")
        if self.kind not in KINDS:
            raise SpecError(f"state {self.name!r}: the kind must be one of {', '.join(KINDS)}, got {self.kind!r}")


class UserStateRow(NamedTuple):
    """One piece of users' state in a snapshot. `content` is a value, a list, or a map as a list of pairs."""

    key_group: int
    key: Hashable
    namespace: Any
    name: str
    kind: Kind
    content: Any


_Address = tuple[Hashable, Any, str]


class _Handle:
    """A handle on one piece of state.

    Whatever puts a value into the state stores a copy of it. `get` and `items` return the stored value itself, so that
    its changes are kept. Before the next call of the function, `KeyedState` separates it from all other values.
    """

    __slots__ = ("_address", "_cells", "_keyed")

    def __init__(self, keyed: "KeyedState", address: _Address) -> None:
        self._keyed = keyed
        self._cells = keyed.cells
        self._address = address

    def clear(self) -> None:
        self._cells.pop(self._address, None)


class ValueState(_Handle):
    """A handle on one value in KeyedState. Without a value, `get` returns None."""

    __slots__ = ()

    def get(self) -> Value:
        value = self._cells.get(self._address)
        if type(value) not in ATOMS:
            self._keyed.lend(self._address, self._cells)
        return value

    def set(self, value: Value) -> None:
        """Replace the value. None removes it."""
        if value is None:
            self.clear()
        else:
            self._cells[self._address] = plain_copy(value)
            self._keyed.take_back(self._address)


class ListState(_Handle):
    """A handle on one list in KeyedState. An empty list equals an absent one."""

    __slots__ = ()

    def get(self) -> tuple[Any, ...]:
        elements = self._cells.get(self._address, ())
        if not ATOMS.issuperset(map(type, elements)):
            self._keyed.lend(self._address, self._cells)
        return tuple(elements)

    def append(self, element: Value) -> None:
        """Add one element at the end."""
        self._cells.setdefault(self._address, []).append(plain_copy(element))

    def set(self, elements: Iterable[Any]) -> None:
        """Replace all elements."""
        elements = plain_copy(list(elements))
        if elements:
            self._cells[self._address] = elements
            self._keyed.take_back(self._address)
        else:
            self.clear()


class MapState(_Handle):
    """A handle on one map in KeyedState. An empty map equals an absent one."""

    __slots__ = ()

    def get(self, name: Hashable, default: Value = None) -> Value:
        cell = self._cells.get(self._address, {})
        value = cell.get(name, default)
        if type(value) not in ATOMS and name in cell:
            self._keyed.lend((self._address, name), cell)
        return value

    def put(self, name: Hashable, value: Value) -> None:
        """Set the value under `name`. Raises SpecError: the name or the value is not plain data, or the name is NaN."""
        if type(name) not in _SIMPLE_NAMES:
            check_plain(name)
            if has_nan(name):
                raise SpecError(
                    f"state {self._address[-1]!r}: NaN in the name {name!r} of a map; it is not equal to itself, so "
                    "that nothing finds its entry. Use another name for it, such as None"
                )
        self._cells.setdefault(self._address, {})[name] = plain_copy(value)
        self._keyed.take_back((self._address, name))

    def remove(self, name: Hashable) -> None:
        cell = self._cells.get(self._address)
        if cell is not None:
            cell.pop(name, None)
            if not cell:
                self.clear()

    def items(self) -> tuple[tuple[Hashable, Any], ...]:
        """Return all pairs, in the order in which their names were first set."""
        cell = self._cells.get(self._address, {})
        if not ATOMS.issuperset(map(type, cell.values())):
            for name in cell:
                self._keyed.lend((self._address, name), cell)
        return tuple(cell.items())

    def __contains__(self, name: Hashable) -> bool:
        return name in self._cells.get(self._address, {})


class StateView:
    """The declared state of one key, or of one window of a key, for a user's function."""

    __slots__ = ("_key", "_keyed", "_namespace")

    def __init__(self, keyed: "KeyedState", key: Hashable, namespace: Namespace) -> None:
        self._keyed = keyed
        self._key = key
        self._namespace = namespace

    def value(self, name: str) -> ValueState:
        """Return the value declared as `name`.

        Raises SpecError: the function does not declare it, or declares another kind. `list` and `map` raise it, too.
        """
        return ValueState(self._keyed, self._address(name, "value"))

    def list(self, name: str) -> ListState:
        return ListState(self._keyed, self._address(name, "list"))

    def map(self, name: str) -> MapState:
        return MapState(self._keyed, self._address(name, "map"))

    def _address(self, name: str, kind: Kind) -> _Address:
        self._keyed.check_declared(name, kind)
        return (self._key, self._namespace, name)


class KeyedState:
    """The whole state of one user's function, of the key groups that the timers of its operator have.

    Raises:
        SpecError: two pieces of state have the same name.
    """

    __slots__ = ("_groups", "_lent", "_order", "_specs", "cells")

    def __init__(self, specs: Iterable[StateSpec], timers: TimerService) -> None:
        self._specs: dict[str, StateSpec] = {}
        self._order, self._groups = timers.order, timers.groups
        self.cells: dict[_Address, Any] = {}
        self._lent: dict[Any, dict[Any, Any]] = {}
        """The values that the present call of the function got: the address, or (address, name), and the dict."""
        for spec in specs:
            if spec.name in self._specs:
                raise SpecError(f"state {spec.name!r} is declared twice; give each piece of state its own name")
            self._specs[spec.name] = spec

    def view(self, key: Hashable, namespace: Namespace = _NO_NAMESPACE) -> StateView:
        """Return the state of a key, or of one window of a key."""
        return StateView(self, key, namespace)

    def begin_call(self) -> None:
        """Begin another call of the function: values that the last call got share no list and no dict any more.

        Raises SpecError: the last call put something into such a value that is not plain data.
        """
        if self._lent:
            lent, self._lent = self._lent, {}
            for place, holder in lent.items():
                name = place if holder is self.cells else place[1]
                if name in holder:
                    holder[name] = plain_copy(holder[name])

    def lend(self, place: Hashable, holder: dict[Any, Any]) -> None:
        """Note that the function got the value itself: `holder` has it under `place`, or under its second part."""
        self._lent[place] = holder

    def take_back(self, place: Hashable) -> None:
        """Note that the value at a place is one that the function does not have."""
        self._lent.pop(place, None)

    def check_declared(self, name: str, kind: Kind) -> None:
        """Raise SpecError unless the function declared `name` as this kind."""
        spec = self._specs.get(name)
        if spec is None or spec.kind != kind:
            declared = ", ".join(f"{spec.kind} {spec.name}" for spec in self._specs.values()) or "none"
            raise SpecError(
                f"the function requests the {kind} state {name!r}, but declares {declared}; correct its `state`"
            )

    def clear(self, key: Hashable, namespace: Namespace, names: Iterable[str]) -> None:
        """Remove the named state of one window, if it is set."""
        for name in names:
            self.cells.pop((key, namespace, name), None)

    def rows(self) -> list[UserStateRow]:
        """Return all state in the order (key group, key, namespace, name)."""
        order, rows = self._order, list[UserStateRow]()
        for key, namespace, name in sorted(self.cells, key=lambda cell: (order(cell[0]), cell[1], cell[2])):
            kind, cell = self._specs[name].kind, self.cells[key, namespace, name]
            # A map becomes a list of pairs, because JSON's names are strings.
            content = plain_copy([[part, value] for part, value in cell.items()] if kind == "map" else cell)
            rows.append(UserStateRow(group_of_order(order(key)), key, namespace, name, kind, content))
        return rows

    def restore(self, rows: Iterable[UserStateRow]) -> None:
        """Add the state of one or more snapshots.

        Raises CheckpointError: the function does not declare the state, or declares another kind; or a row has a wrong
        key group, occurs twice, or has content of another kind.
        """
        for row in rows:
            spec, named = self._specs.get(row.name), (row.key, row.namespace)
            if spec is None or spec.kind != row.kind:
                declared = "none of that name" if spec is None else f"kind {spec.kind}"
                stored = f"the state {row.name!r:.100} of kind {row.kind}"
                allowed = (
                    f"state that the function declares, which is {declared}; replay from the start, or restore the "
                    "function that wrote it"
                )
                raise wrong_value(USER_STATE, "name", row=named, stored=stored, allowed=allowed)
            self._groups.check_row(USER_STATE, row.key_group, group_of_order(self._order(row.key)), row=named)
            if (row.key, row.namespace, row.name) in self.cells:
                raise wrong_value(USER_STATE, "name", row=named, stored=row.name, allowed=ONE_ROW)
            self.cells[row.key, row.namespace, row.name] = _cell(row, named)


def _cell(row: UserStateRow, named: RowName) -> Any:  # noqa: ANN401
    """Return the state of a row as `cells` has it."""
    content = plain_copy(row.content)
    try:
        match row.kind:
            case "value":
                return content
            case "list" if isinstance(content, list):
                return content
            case "map" if isinstance(content, list):
                return {_hashable(name): value for name, value in content}
    except (TypeError, ValueError):
        pass  # an element is no pair, or its name is a map
    allowed = "a list of pairs of a name and a value" if row.kind == "map" else "a list"
    raise wrong_value(USER_STATE, "content", row=named, stored=content, allowed=allowed)


def _hashable(name: Any) -> Hashable:  # noqa: ANN401
    return tuple(name) if isinstance(name, list) else name
