"""The wall clock, for commands and tasks only. All other code gets the time as a parameter."""

import time


def now_ms() -> int:
    """Return the present time in epoch milliseconds. Commands and tasks pass this function to other code."""
    return time.time_ns() // 1_000_000
