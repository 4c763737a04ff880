"""The bounds of windows."""

from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, TimeWindow


def test_the_last_instant_of_a_window() -> None:
    assert TimeWindow(0, 10).last_ms == 9
    assert GLOBAL_WINDOW.last_ms == MAX_TIME_MS
