"""The exact median of any number of numbers, in constant memory: the numbers are in a file, which is mapped."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from windowlib.columnar.xxhash import Words

Doubles: TypeAlias = NDArray[np.float64]


class Magnitudes:
    """A collection of numbers that are not negative: integers below 2**64, or doubles.

    Both have the order of their 64-bit words. The first `kept_words` numbers are in memory. If there are more, all are
    in a file.
    """

    def __init__(self, file: Path, *, are_integers: bool, kept_words: int) -> None:
        self.count = 0
        self._file = file
        self._are_integers = are_integers
        self._kept_words = kept_words
        self._kept: list[Words] = []
        self._largest = np.uint64(0)

    def add(self, numbers: Words | Doubles) -> None:
        if not len(numbers):
            return
        words = numbers if self._are_integers else np.abs(numbers).view(np.uint64)  # abs: -0.0 has another word
        words = np.ascontiguousarray(words, np.uint64)
        self._largest = max(self._largest, words.max())
        self._kept.append(words)
        self.count += len(words)
        if self.count > self._kept_words:
            with self._file.open("ab") as file:
                for part in self._kept:
                    file.write(part.tobytes())
            self._kept = []

    @property
    def largest(self) -> int | float | None:
        """The largest number; None without numbers."""
        return self._number(self._largest) if self.count else None

    def median(self) -> int | float | None:
        """Return the middle number, or the mean of the two middle ones; None without numbers."""
        if not self.count:
            return None
        words = np.memmap(self._file, np.uint64, "r+") if self._file.exists() else np.concatenate(self._kept)
        middle = [(self.count - 1) // 2, self.count // 2]
        words.partition(middle)
        low, high = (self._number(word) for word in words[middle])
        if low == high:
            return low
        total = low + high
        return total // 2 if isinstance(total, int) and total % 2 == 0 else low / 2 + high / 2

    def _number(self, word: np.uint64) -> int | float:
        return int(word) if self._are_integers else float(np.array(word).view(np.float64))
