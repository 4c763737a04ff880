"""The differences between two views for a page: computed once, if they are cheap or a person asks for them."""

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from jobs.comparing.compare import Comparison, compare
from jobs.comparing.views import Sides
from jobs.lake.lake import Lake
from jobs.review.compared import CHEAP_ROWS, MEMORY, Compared, compared, rows_to_read

if TYPE_CHECKING:
    from jobs.comparing.differences import Differences

SAMPLES = 20
MAX_KEPT = 16


class Comparisons:
    """The newest comparisons of this process. One is made at a time."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._lock = Lock()
        self._kept: OrderedDict[object, Differences] = OrderedDict()

    def compared(self, lake: Lake, pipeline: str, sides: Sides, *, is_asked: bool) -> Compared:
        """Return two views compared, if that is cheap, was done before, or was asked for.

        Raises:
            StoreError: a file cannot be read, or the rows differ from those that were written.
        """
        key = (lake.ledger(pipeline), sides.before.name, sides.after.name, _runs(sides))
        differences = self._kept.get(key)
        if differences is None and (is_asked or rows_to_read(sides) <= CHEAP_ROWS):
            with self._lock:
                differences = self._kept.get(key)
                if differences is None:
                    options = Comparison(samples=SAMPLES, limits=MEMORY)
                    differences = self._kept[key] = compare(lake, pipeline, sides, options=options)
                    while len(self._kept) > self._most:
                        self._kept.popitem(last=False)
        return compared(sides, differences)


def _runs(sides: Sides) -> object:
    pairs = [(side.runs.get(name)) for side in (sides.before, sides.after) for name in sides.slices]
    return tuple(None if run is None else run.result.attempt_id for run in pairs)
