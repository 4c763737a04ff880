"""The step that reaches an instant, for many instants in any order."""

from typing import Final

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Int64s

ROUNDS_MAX: Final = 8
"""The default of `rounds_max`: an instant that needs more rounds is found by binary search."""
_BUCKETS_PER_STEP: Final = 4
_SPAN_MAX: Final = 1 << 62


class StepSearch:
    """Finds the first step whose watermark reaches an instant, among the steps that a block takes.

    The range of the watermarks is cut into buckets of equal width, about four per step. A table has the first step of
    each bucket, and a search goes on from there step by step. A binary search costs five times as much, because its
    memory accesses are random.
    """

    def __init__(self, watermark_ms: Int64s, first_step: int, *, rounds_max: int = ROUNDS_MAX) -> None:
        """Prepare the search.

        `watermark_ms` has the watermarks of consecutive steps, ascending. A search goes on for `rounds_max` steps from
        the table. That changes the speed only.
        """
        self._watermark_ms = watermark_ms
        self.first_step = first_step
        self._rounds_max = rounds_max
        count = len(watermark_ms)
        self.until_step = first_step + count
        self._span = int(watermark_ms[-1]) - int(watermark_ms[0]) if count else _SPAN_MAX
        if self._span < _SPAN_MAX:
            self._shift = max(self._span.bit_length() - (_BUCKETS_PER_STEP * count).bit_length(), 0)
            buckets = (watermark_ms - watermark_ms[0]) >> self._shift
            sizes = np.bincount(buckets, minlength=(self._span >> self._shift) + 1)
            self._table = np.zeros(len(sizes) + 1, dtype=np.int64)
            np.cumsum(sizes, out=self._table[1:])

    def step_of(self, instant_ms: Int64s) -> Int64s:
        """Return the first step whose watermark reaches each instant; the step after the last one if none does."""
        watermark_ms = self._watermark_ms
        if self._span >= _SPAN_MAX or not self._rounds_max:
            return self.first_step + np.searchsorted(watermark_ms, instant_ms, side="left")
        first_ms, last_ms = int(watermark_ms[0]), int(watermark_ms[-1])
        buckets = np.minimum(np.maximum(instant_ms, first_ms), last_ms)
        buckets -= first_ms
        buckets >>= self._shift
        places = self._table.take(buckets)
        ahead = np.flatnonzero(watermark_ms[places] < instant_ms)
        for _ in range(self._rounds_max):
            if not len(ahead):
                break
            places[ahead] += 1
            ahead = ahead[places[ahead] < len(watermark_ms)]
            ahead = ahead[watermark_ms[places[ahead]] < instant_ms[ahead]]
        places[ahead] = np.searchsorted(watermark_ms, instant_ms[ahead], side="left")
        places += self.first_step
        return places
