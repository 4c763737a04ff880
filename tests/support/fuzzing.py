"""The number of random cases of a test: few in `make test`, `HINDCAST_FUZZ` in `make fuzz`.

All random tests get their number of cases from this module: Hypothesis through its profile, a test with `@settings`
through `cases`, a test with a loop of its own through `seeds` or `chances`.
"""

import os
import time
from collections.abc import Callable, Iterator
from functools import wraps
from random import Random, SystemRandom
from typing import Any, Final

from hypothesis.errors import HypothesisException, StopTest

ASKED: Final = int(os.environ.get("HINDCAST_FUZZ", "0"))
"""The number of cases that `make fuzz` asks of each random test; 0 means that the test decides."""
DEFAULT_SEED: Final = 20130208


class TimeOver(BaseException):
    """Ends a test of Hypothesis whose time is over, before Hypothesis draws further cases. The test has passed."""


class Budget:
    """The time of one test for its random cases. A test that has used it up plays no further case and passes."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.start()

    def start(self) -> None:
        """Begin another test."""
        self._ends = time.monotonic() + self._seconds
        self._has_failed = False
        self.played = 0
        self.is_cut = False

    def allows(self, usual: int) -> bool:
        """Return whether the test plays a further case; it plays at least the `usual` number. Count the case."""
        if self.played >= usual and time.monotonic() > self._ends and not self._has_failed:
            self.is_cut = True
            return False
        self.played += 1
        return True

    def limit(self, handle: Any, usual: int) -> None:  # noqa: ANN401 - Hypothesis exports no type for it
        """Give a test of Hypothesis this limit. After a failure it has none, because the case is shrunk.

        `handle` is the attribute `hypothesis` of the test. All parameters of a test share it.
        """
        test: Callable[..., Any] = handle.inner_test
        if getattr(test, "is_limited", False):
            return

        @wraps(test)
        def body(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - those of the test
            if not self.allows(usual):
                raise TimeOver
            try:
                return test(*args, **named)
            except (HypothesisException, StopTest):
                raise
            except BaseException:  # `pytest.fail` and `pytest.raises` raise no Exception
                self._has_failed = True
                raise

        body.is_limited = True  # type: ignore[attr-defined]
        handle.inner_test = body


BUDGET: Final = Budget(float(os.environ.get("HINDCAST_FUZZ_SECONDS", "inf")))
"""The limit of `make fuzz` for the test that runs: a test that writes tables needs hours for 10,000 cases."""


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

    `make fuzz` runs every test that calls this function, and ends it early if its time is over. The last printed line
    has the seed of a failing case; if `HINDCAST_SEED` is set to that seed, the case runs first.
    """
    first = first_seed()
    for seed in range(first, first + cases(usual, among=among)):
        if not BUDGET.allows(usual):
            return
        print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
        yield seed


def chances(usual: int, *, among: int = 1) -> Iterator[Random]:
    """Yield a generator of random numbers for each case, with the seed that `seeds` gives it."""
    return map(Random, seeds(usual, among=among))
