"""How many random cases a test plays: few in `make test`, `HINDCAST_FUZZ` of them in `make fuzz`.

All random tests take their number from here, so one variable raises them all: Hypothesis through its profile, a test
with `@settings` through `cases`, a test with its own loop through `seeds`.
"""

import os
from collections.abc import Iterator
from random import SystemRandom
from typing import Final

ASKED: Final = int(os.environ.get("HINDCAST_FUZZ", "0"))
"""The number of cases for each random test. With 0, each test plays its usual number."""
DEFAULT_SEED: Final = 20130208


def first_seed() -> int:
    """The seed of this run: `HINDCAST_SEED`, a number or `random`."""
    asked = os.environ.get("HINDCAST_SEED", str(DEFAULT_SEED))
    return SystemRandom().randrange(2**32) if asked == "random" else int(asked)


def cases(usual: int, *, among: int = 1) -> int:
    """Return how many cases a test plays that plays `usual` in `make test`.

    `among`: how many parametrised tests of one property share the cases that are asked for.
    """
    return max(ASKED // among, usual) if ASKED and among > 1 else ASKED or usual


def seeds(usual: int, *, among: int = 1) -> Iterator[int]:
    """Yield a seed for each case of a test with a loop of its own; `make fuzz` finds such tests by this name.

    The last line that it prints names the case that failed; with `HINDCAST_SEED` set to it, that case comes first.
    """
    first = first_seed()
    for seed in range(first, first + cases(usual, among=among)):
        print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
        yield seed
