"""The rotating map compared with its definition, over random scripts."""

import pytest

from tests.support.fuzzing import chances
from windowlib.errors import SpecError
from windowlib.storm.acker.acker import RotatingMap


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_an_entry_lives_for_as_many_rotations_as_there_are_buckets(buckets: int) -> None:
    for rng in chances(40):
        entries = RotatingMap[str, int](buckets)
        put: dict[str, tuple[int, int]] = {}  # key -> (value, rotation in which it was put)
        rotation = 0
        for value in range(60):
            key = rng.choice("abcdef")
            match rng.choice(["put", "get", "remove", "rotate"]):
                case "put":
                    entries.put(key, value)
                    put[key] = (value, rotation)
                case "get":
                    assert entries.get(key) == put.get(key, (None, 0))[0]
                case "remove":
                    assert entries.remove(key) == put.pop(key, (None, 0))[0]
                case _:
                    rotation += 1
                    dead = {name: number for name, (number, since) in put.items() if rotation - since == buckets}
                    put = {name: entry for name, entry in put.items() if name not in dead}
                    assert entries.rotate() == dead
            assert len(list(entries.items())) == len(put)
            ages = {name: age for age, name, _ in entries.items()}
            assert ages == {name: rotation - since for name, (_, since) in put.items()}


@pytest.mark.parametrize("buckets", [1, 0, -1])
def test_fewer_than_two_buckets_are_refused(buckets: int) -> None:
    with pytest.raises(SpecError, match=f"at least 2 buckets, got {buckets}"):
        RotatingMap(buckets)
