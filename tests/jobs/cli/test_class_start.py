"""Dataclasses whose methods are made late are those of `dataclasses`."""

import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from jobs.cli import class_start
from jobs.cli.class_start import make_methods_late
from tests.architecture.test_imports import loaded_by


def _make() -> tuple[type[Any], type[Any], type[Any]]:
    @dataclasses.dataclass(frozen=True, slots=True, order=True)
    class Place:
        line: int
        column: int = dataclasses.field(default=0, compare=False)

    @dataclasses.dataclass(frozen=True)
    class Named(Place):
        name: str = "a"
        note: str = dataclasses.field(default="", repr=False)

    @dataclasses.dataclass
    class Mutable:
        inside: Any

    return Place, Named, Mutable


@pytest.fixture(params=[False, True], ids=["at once", "late"])
def classes(request: pytest.FixtureRequest) -> Iterator[tuple[type[Any], type[Any], type[Any]]]:
    ours = (__name__,) if request.param else ()
    with patch.dict(vars(dataclasses)), patch.object(class_start, "OURS", ours):
        make_methods_late()
        yield _make()


@pytest.mark.parametrize("times", [1, 2], ids=["first call", "later calls"])
def test_methods_are_those_of_dataclasses(classes: tuple[type[Any], type[Any], type[Any]], times: int) -> None:
    """The first call of each method compiles it; the later ones are of the compiled one."""
    place, named, mutable = classes
    for _ in range(times):
        assert (place(1, 2) == place(1, 3), place(1) == place(2), place(1) == named(1)) == (True, False, False)
        assert (place(1) < place(2), place(2) >= place(1), place(1) != 1) == (True, True, True)
        assert len({place(1, 2), place(1, 3), place(2), named(1), named(1, name="b")}) == 4
        assert repr(place(1)).endswith("<locals>.Place(line=1, column=0)")
        assert repr(named(1)).endswith("<locals>.Named(line=1, column=0, name='a')")
        assert mutable([1]) == mutable([1])
        around = mutable(None)
        around.inside = around
        assert repr(around).endswith("Mutable(inside=...)")
        with pytest.raises(dataclasses.FrozenInstanceError):
            named(1).name = "b"
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(named(1), "line")
        with pytest.raises(TypeError, match="unhashable"):
            hash(around)
        with pytest.raises(TypeError, match="not supported"):
            assert place(1) < 1
    assert named.__eq__.__qualname__.endswith("Named.__eq__")
    assert dataclasses.replace(named(1), name="b").name == "b"


def test_commands_make_the_methods_of_our_classes_late_and_those_of_users_at_once() -> None:
    """Spark's workers get the classes of users with their methods."""
    code = """
        from jobs.cli.main import main
        from dataclasses import dataclass
        from jobs.planning.plan import Plan
        assert Plan.__eq__.__module__ == "jobs.cli.class_start"
        assert dataclass(type("OfAUser", (), {}), repr=False).__eq__.__module__ == __name__
    """
    loaded_by("\n".join(line.strip() for line in code.splitlines()))
