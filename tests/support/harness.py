"""A harness for tests whose subject is not the window function."""

from typing import Any

from windowlib.testkit.contracts import LIST
from windowlib.testkit.harness import Harness
from windowlib.windows.spec import WindowSpec


def window_harness(**parts: Any) -> Harness:  # noqa: ANN401 - arguments of WindowSpec
    """Return a harness for a `WindowSpec` of these arguments; by default a pane lists the values of its records."""
    return Harness(WindowSpec(**{"function": LIST, **parts}))
