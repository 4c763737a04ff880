"""The bounds of windows and intervals."""

import pytest

from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, TimeWindow
from windowlib.errors import SpecError
from windowlib.intervals import merge


def test_the_last_instant_of_a_window() -> None:
    assert TimeWindow(0, 10).last_ms == 9
    assert GLOBAL_WINDOW.last_ms == MAX_TIME_MS


def test_an_empty_or_reversed_interval_is_refused() -> None:
    for start, end in ((5, 5), (6, 5)):
        with pytest.raises(SpecError, match=rf"\[{start}, {end}\)"):
            merge([(start, end)])
