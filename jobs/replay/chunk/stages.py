"""How long the stages of a replay take: logged, and collected for a caller that measures."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

log = logging.getLogger(__name__)


class Stage(NamedTuple):
    """A stage of a chunk and its wall time."""

    name: str
    seconds: float


_collected: ContextVar[list[Stage] | None] = ContextVar("stages", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Measure the context as one stage."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds = time.monotonic() - started
        log.info("stage=%s seconds=%.3f", name, seconds)
        collected = _collected.get()
        if collected is not None:
            collected.append(Stage(name, seconds))


@contextmanager
def collected_stages() -> Iterator[list[Stage]]:
    """Give the list of the stages that end during the context."""
    found: list[Stage] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
