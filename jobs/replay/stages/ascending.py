"""Ascending numbers in few bytes: the first one, and the differences in the smallest type that holds them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windowlib.columnar.watermark_steps import Int64s


@dataclass(frozen=True, slots=True)
class Ascending:
    """Ascending numbers that a task returns to the driver. Spark copies the bytes of a result several times."""

    first: int
    differences: NDArray[np.unsignedinteger[Any]] | None

    @classmethod
    def of(cls, numbers: Int64s) -> "Ascending":
        """Pack numbers, each at least as great as the one before it."""
        if not len(numbers):
            return cls(0, None)
        # The difference of two signed numbers may need 64 bits without a sign.
        differences = np.diff(numbers.view(np.uint64))
        widest = int(differences.max()) if len(differences) else 0
        return cls(int(numbers[0]), differences.astype(np.min_scalar_type(widest)))

    def numbers(self) -> Int64s:
        if self.differences is None:
            return np.empty(0, dtype=np.int64)
        numbers = np.empty(len(self.differences) + 1, dtype=np.int64)
        numbers[0] = 0
        np.cumsum(self.differences, dtype=np.uint64, out=numbers[1:].view(np.uint64))
        numbers += self.first
        return numbers
