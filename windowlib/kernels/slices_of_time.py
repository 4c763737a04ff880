"""Slices of time, whose instants have the same tumbling or sliding windows.

Source of the idea: Krishnamurthy, Wu, Franklin, "On-the-fly sharing for streamed aggregation", SIGMOD 2006.
"""

from dataclasses import dataclass
from math import gcd

from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.windows.assigners import Sliding, Tumbling


@dataclass(frozen=True, slots=True)
class SlicesOfTime:
    """Slice number n is from `offset_ms + n * slice_ms`; its length is gcd(size, slide).

    The slices of tumbling windows are the windows.
    """

    slice_ms: int
    size_ms: int
    slide_ms: int
    offset_ms: int

    @classmethod
    def of(cls, assigner: Tumbling | Sliding) -> "SlicesOfTime":
        slide_ms = assigner.slide_ms if isinstance(assigner, Sliding) else assigner.size_ms
        return cls(gcd(assigner.size_ms, slide_ms), assigner.size_ms, slide_ms, assigner.offset_ms)

    def numbers(self, event_time_ms: Int64s) -> Int64s:
        return (event_time_ms - self.offset_ms) // self.slice_ms

    def are_before_end(self, number: Int64s, watermark_ms: Int64s | int) -> Bools:
        """Return which slices have a window, and only windows whose last instant is after the watermark.

        `watermark_ms` is one watermark, or one for each slice.
        """
        first_ms = number * self.slice_ms
        if self.slide_ms != self.size_ms:
            first_ms = ((first_ms - self.size_ms) // self.slide_ms + 1) * self.slide_ms
        # The first window of the slice is the one that ends first.
        are_before: Bools = first_ms + (self.offset_ms + self.size_ms - 1) > watermark_ms
        if self.size_ms < self.slide_ms:
            are_before &= first_ms <= number * self.slice_ms
        return are_before
