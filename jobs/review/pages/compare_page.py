"""The differences between two views for a page: computed once, if they are cheap or a person asks for them."""

from contextlib import nullcontext
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from jobs.comparing.compare import Comparison, compare
from jobs.comparing.views import Sides
from jobs.lake.lake import Lake
from jobs.review.compared import CHEAP_ROWS, MEMORY, Compared, compared, rows_to_read

if TYPE_CHECKING:
    from jobs.comparing.differences import Differences

SAMPLES = 20
MAX_KEPT = 16


class Comparisons:
    """The newest comparisons of this process. One that is not cheap is made at a time, and cheap ones beside it."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._lock, self._large = Lock(), Lock()
        self._kept: LRUCache[object, Differences] = LRUCache(most)

    def compared(self, lake: Lake, pipeline: str, sides: Sides, *, is_asked: bool) -> Compared:
        """Return two views compared, if that is cheap, was done before, or was asked for.

        Raises StoreError: a file cannot be read, or the rows differ from those that were written.
        """
        runs = [side.runs.get(name) for side in (sides.before, sides.after) for name in sides.slices]
        attempts = tuple(None if run is None else run.result.attempt_id for run in runs)
        key = (lake.ledger(pipeline), sides.before.name, sides.after.name, attempts)
        is_cheap = rows_to_read(sides) <= CHEAP_ROWS
        differences = self._find(key)
        if differences is None and (is_cheap or is_asked):
            with nullcontext() if is_cheap else self._large:
                differences = self._find(key)
                if differences is None:
                    options = Comparison(samples=SAMPLES, limits=MEMORY)
                    differences = compare(lake, pipeline, sides, options=options)
            with self._lock:
                self._kept[key] = differences
        return compared(sides, differences)

    def _find(self, key: object) -> "Differences | None":
        with self._lock:
            return self._kept.get(key)
