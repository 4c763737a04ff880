"""The number of random cases of a test: few in `make test`, `HINDCAST_FUZZ` in `make fuzz`.

All random tests get their number of cases from this module: Hypothesis through its profile, a test with `@settings`
through `cases`, a test with a loop of its own through `seeds`.
"""

import os
from collections.abc import Iterator
from random import SystemRandom
from typing import Final

ASKED: Final = int(os.environ.get("HINDCAST_FUZZ", "0"))
"""The number of cases that `make fuzz` asks of each random test; 0 means that the test decides."""
DEFAULT_SEED: Final = 20130208


def first_seed() -> int:
    """Return the seed of this run: `HINDCAST_SEED`, which is a number or `random`."""
    asked = os.environ.get("HINDCAST_SEED", str(DEFAULT_SEED))
    return SystemRandom().randrange(2**32) if asked == "random" else int(asked)


def cases(usual: int, *, among: int = 1) -> int:
    """Return the number of cases of a test; `usual` is the number in `make test`.

    `among`: the number of parametrised tests of one property, which share the cases of `make fuzz`.
    """
    return max(ASKED // among, usual) if ASKED and among > 1 else ASKED or usual


def seeds(usual: int, *, among: int = 1) -> Iterator[int]:
    """Yield a seed for each case of a test with a loop of its own.

    `make fuzz` runs every test that calls this function. The last printed line has the seed of a failing case; if
    `HINDCAST_SEED` is set to that seed, the case runs first.
    """
    first = first_seed()
    for seed in range(first, first + cases(usual, among=among)):
        print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
        yield seed
