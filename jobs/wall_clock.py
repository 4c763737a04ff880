"""The wall clock, for the edges: commands and tasks. Everything else is told the time."""

import time


def now_ms() -> int:
    """Epoch milliseconds. Code below the edges takes a function like this one as a parameter."""
    return time.time_ns() // 1_000_000  # noqa: TID251  (the one place in jobs that reads it)
