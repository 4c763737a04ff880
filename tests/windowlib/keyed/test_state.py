"""Users' keyed state: declarations, values, lists and maps, and the rows of a snapshot."""

import pytest

from windowlib.errors import CheckpointError, SpecError
from windowlib.keyed.state import KeyedState, StateSpec, UserStateRow
from windowlib.keyed.timers import KeyGroupRange, TimerService
from windowlib.records.plain_json import from_json, to_json


def test_a_declaration_needs_an_identifier_and_a_known_kind() -> None:
    with pytest.raises(SpecError, match=r"'no name'.* identifier"):
        StateSpec(name="no name")
    with pytest.raises(SpecError, match="'set'"):
        StateSpec(name="seen", kind="set")  # type: ignore[arg-type]


def test_clearing_or_removing_what_is_absent_changes_nothing() -> None:
    kinds = (StateSpec(name="v"), StateSpec(name="l", kind="list"), StateSpec(name="m", kind="map"))
    keyed = KeyedState(kinds, TimerService())
    view = keyed.view("a")
    view.value("v").clear()
    view.list("l").clear()
    view.map("m").remove("x")
    assert view.map("m").items() == ()
    assert view.map("m").get("x", 7) == 7
    view.map("m").put("x", 1)
    view.map("m").remove("y")
    assert view.map("m").items() == (("x", 1),)
    view.map("m").remove("x")
    assert keyed.rows() == []


def test_a_restored_map_has_its_tuple_keys_back_from_json() -> None:
    keyed = KeyedState((StateSpec(name="m", kind="map"),), TimerService())
    keyed.restore([UserStateRow(81, "a", (), "m", "map", [[["x", 1], 5], ["y", 6]])])
    assert keyed.view("a").map("m").items() == ((("x", 1), 5), ("y", 6))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (UserStateRow(81, "a", (), "other", "value", 1), "'other'"),
        (UserStateRow(81, "a", (), "seen", "list", [1]), "'seen'.* list.* value"),
    ],
    ids=["name", "kind"],
)
def test_state_of_an_undeclared_name_or_kind_is_refused(row: UserStateRow, message: str) -> None:
    keyed = KeyedState((StateSpec(name="seen"),), TimerService())
    with pytest.raises(CheckpointError, match=message):
        keyed.restore([row])


def test_rows_are_in_the_order_of_key_groups_namespaces_and_names() -> None:
    keyed = KeyedState((StateSpec(name="x"), StateSpec(name="y")), TimerService())
    for key in ("a", "b"):
        for name in ("y", "x"):
            keyed.view(key).value(name).set(1)
    assert [(row.key, row.name) for row in keyed.rows()] == [("b", "x"), ("b", "y"), ("a", "x"), ("a", "y")]


def test_a_snapshot_has_copies() -> None:
    kinds = (StateSpec(name="seen", kind="list"), StateSpec(name="value"), StateSpec(name="map", kind="map"))
    keyed = KeyedState(kinds, TimerService())
    view = keyed.view("a")
    view.list("seen").append([1])
    view.value("value").set({"n": [1]})
    view.map("map").put("x", {"n": 1})
    rows = keyed.rows()
    view.list("seen").get()[0].append(2)
    view.list("seen").append([2])
    view.value("value").get()["n"].append(2)
    view.map("map").get("x")["n"] = 2
    assert [row.content for row in rows] == [[["x", {"n": 1}]], [[1]], {"n": [1]}]


def test_a_dict_in_a_value_is_a_dict_after_a_restore() -> None:
    keyed, resumed = (KeyedState((StateSpec(name="v"),), TimerService()) for _ in range(2))
    keyed.view("a").value("v").set({"a": 1})
    resumed.restore(row._replace(content=from_json(to_json(row.content))) for row in keyed.rows())
    assert resumed.view("a").value("v").get() == {"a": 1}


def test_state_of_a_key_group_of_another_operator_is_refused() -> None:
    keyed = KeyedState((StateSpec(name="v"),), TimerService(groups=KeyGroupRange(0, 64)))
    with pytest.raises(CheckpointError, match=r"key_group .*81.*this operator owns"):
        keyed.restore([UserStateRow(81, "a", (), "v", "value", 1)])
