"""How long the stages of a replay take: logged."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Log the wall time of the context as one stage."""
    started = time.monotonic()
    try:
        yield
    finally:
        log.info("stage=%s seconds=%.3f", name, time.monotonic() - started)
