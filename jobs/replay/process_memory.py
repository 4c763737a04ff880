"""The memory of a process that replays many chunks, one after the other, in threads."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from windowlib.libraries import pa

_ARENA_MAX: Final = -8
"""M_ARENA_MAX of mallopt(3) of the GNU C library."""


def share_one_heap() -> None:
    """Let Arrow and all threads allocate from one heap of the C library. Arrow reads that at its first allocation.

    Each chunk has threads of its own. Arrow's own allocator and the C library keep what a thread has freed for that
    thread, so each chunk of many had more memory than the one before. With one heap they have less of it, at equal CPU
    time (figures in docs/decisions/031-cold-start.md).
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have one heap
        mallopt(_ARENA_MAX, 1)


@contextmanager
def giving_memory_back() -> Iterator[None]:
    """Return the freed memory to the system at the end of a chunk, or of a job of tasks in threads.

    Between large blocks that are in use, one heap has free ones, which the next job would not fit into.
    """
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()
