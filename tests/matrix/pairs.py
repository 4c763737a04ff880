"""Choices that cover every pair of values which the grammar allows: greedy, seeded, lazy."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Final

Choice = Mapping[str, str]
"""Factor -> value."""
Pair = tuple[tuple[str, str], tuple[str, str]]
BASES: Final = 200
"""In how many random combinations a pair is tried before it counts as refused."""
TRIES: Final = 4
"""How many values of a factor are tried. Values that cover most pairs come first."""


class Pairs:
    """All pairs of a set of factors, the covered ones, and those that were refused in every combination."""

    def __init__(
        self, factors: Mapping[str, Sequence[str]], is_allowed: Callable[[Choice], bool], rng: random.Random
    ) -> None:
        self._factors = {name: tuple(values) for name, values in factors.items()}
        self._is_allowed = is_allowed
        self._rng = rng
        self.refused: list[Pair] = []
        valued = [[(name, value) for value in values] for name, values in self._factors.items()]
        pairs = [pair for one, other in combinations(valued, 2) for pair in product(one, other)]
        self._waiting: dict[Pair, None] = dict.fromkeys(rng.sample(pairs, len(pairs)))

    def choices(self) -> Iterator[Choice]:
        """Yield choices until every pair is covered or refused."""
        while self._waiting:
            pair = next(iter(self._waiting))
            base = self._surroundings(pair)
            if base is None:
                del self._waiting[pair]
                self.refused.append(pair)
                continue
            choice = self._enriched(base, kept={name for name, _ in pair})
            for covered in _pairs_of(choice, tuple(self._factors)):
                self._waiting.pop(covered, None)
            yield choice

    def _surroundings(self, pair: Pair) -> dict[str, str] | None:
        """Return an allowed choice with this pair: the plain one, else one with few random values."""
        plain = {name: values[0] for name, values in self._factors.items()} | dict(pair)
        free = [name for name in self._factors if name not in dict(pair)]
        for attempt in range(BASES):
            changed = self._rng.sample(free, min(len(free), attempt and 1 + attempt % 4))
            found = plain | {name: self._rng.choice(self._factors[name]) for name in changed}
            if self._is_allowed(found):
                return found
        return None

    def _enriched(self, choice: dict[str, str], *, kept: set[str]) -> dict[str, str]:
        """Change the free factors to allowed values that cover most of the waiting pairs."""
        free = [name for name in self._factors if name not in kept]
        for name in self._rng.sample(free, len(free)):
            values = self._rng.sample(self._factors[name], len(self._factors[name]))
            values.sort(key=lambda value, name=name: self._gain(choice, name, value), reverse=True)  # type: ignore[misc]
            for value in values[:TRIES]:
                if value == choice[name] or self._is_allowed(choice | {name: value}):
                    choice[name] = value
                    break
        return choice

    def _gain(self, choice: Choice, name: str, value: str) -> int:
        """Count the waiting pairs that a value would cover."""
        names = tuple(self._factors)
        place = names.index(name)
        others = ((index, (other, choice[other])) for index, other in enumerate(names) if other != name)
        one = (name, value)
        return sum(((other, one) if index < place else (one, other)) in self._waiting for index, other in others)


def _pairs_of(choice: Choice, names: Sequence[str]) -> Iterator[Pair]:
    return combinations([(name, choice[name]) for name in names], 2)
