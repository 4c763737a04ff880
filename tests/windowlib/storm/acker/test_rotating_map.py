"""The rotating map against what its words say, over random scripts."""

from random import Random

import pytest

from tests.support.fuzzing import seeds
from windowlib.errors import CheckpointError, SpecError
from windowlib.storm.acker.rotating_map import RotatingMap


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_an_entry_lives_for_as_many_rotations_as_there_are_buckets(buckets: int) -> None:
    for seed in seeds(40):
        rng = Random(seed)
        found = RotatingMap[str, int](buckets)
        put: dict[str, tuple[int, int]] = {}  # key -> (value, rotation in which it was put)
        rotation = 0
        for value in range(60):
            key = rng.choice("abcdef")
            match rng.choice(["put", "get", "remove", "rotate"]):
                case "put":
                    found.put(key, value)
                    put[key] = (value, rotation)
                case "get":
                    assert found.get(key) == put.get(key, (None, 0))[0]
                case "remove":
                    assert found.remove(key) == put.pop(key, (None, 0))[0]
                case _:
                    rotation += 1
                    dead = {name: one for name, (one, since) in put.items() if rotation - since == buckets}
                    put = {name: one for name, one in put.items() if name not in dead}
                    assert found.rotate() == dead
            assert len(found) == len(put)
            ages = {name: age for age, name, _ in found.items()}
            assert ages == {name: rotation - since for name, (_, since) in put.items()}


def test_it_is_restored_from_its_items() -> None:
    found = RotatingMap[str, int](3)
    found.put("old", 1)
    found.rotate()
    found.put("b", 2)
    found.put("a", 3)
    items = list(found.items())
    assert items == [(0, "b", 2), (0, "a", 3), (1, "old", 1)]
    again = RotatingMap[str, int](3)
    again.restore(items)
    assert list(again.items()) == items
    with pytest.raises(CheckpointError, match="use a fresh map"):
        again.restore(items)
    with pytest.raises(CheckpointError, match="'a' occurs twice"):
        RotatingMap[str, int](3).restore([(0, "a", 1), (1, "a", 2)])
    with pytest.raises(CheckpointError, match="ages 0 to 1"):
        RotatingMap[str, int](2).restore([(2, "a", 1)])


@pytest.mark.parametrize("buckets", [1, 0, -1])
def test_fewer_than_two_buckets_are_refused(buckets: int) -> None:
    with pytest.raises(SpecError, match=f"at least 2 buckets, got {buckets}"):
        RotatingMap(buckets)
