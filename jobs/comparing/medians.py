"""The exact median of any number of numbers, in constant memory: the numbers are in a file, which is read in passes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from windowlib.columnar.xxhash import Words

Doubles: TypeAlias = NDArray[np.float64]
DIGIT_BITS: Final = 16
BLOCK_WORDS: Final = 1 << 16


class Magnitudes:
    """A collection of numbers that are not negative: integers below 2**64, or doubles.

    Both have the order of their 64-bit words, so one radix selection finds a median of either kind. The first
    `kept_words` numbers are in memory. If there are more, all are in a file.
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
        low, high = (self._number(self._at(place)) for place in ((self.count - 1) // 2, self.count // 2))
        if low == high:
            return low
        total = low + high
        return total // 2 if isinstance(total, int) and total % 2 == 0 else low / 2 + high / 2

    def _at(self, place: int) -> np.uint64:
        """Return the word with this place in the order: each pass finds the next digit of it."""
        prefix, known = 0, 0
        while known < 64:  # noqa: PLR2004 - the bits of a word
            counts = np.zeros(1 << DIGIT_BITS, np.int64)
            shift = np.uint64(64 - known - DIGIT_BITS)
            for words in self._blocks():
                part = words if not known else words[(words >> np.uint64(64 - known)) == np.uint64(prefix)]
                digits = (part >> shift) & np.uint64((1 << DIGIT_BITS) - 1)
                counts += np.bincount(digits.astype(np.int64), minlength=len(counts))
            sums = np.cumsum(counts)
            digit = int(np.searchsorted(sums, place, side="right"))
            place -= int(sums[digit - 1]) if digit else 0
            prefix, known = (prefix << DIGIT_BITS) | digit, known + DIGIT_BITS
        return np.uint64(prefix)

    def _blocks(self) -> Iterator[Words]:
        yield from self._kept
        if self._file.exists():
            with self._file.open("rb") as file:
                while block := file.read(8 * BLOCK_WORDS):
                    yield np.frombuffer(block, np.uint64)

    def _number(self, word: np.uint64) -> int | float:
        return int(word) if self._are_integers else float(np.array(word).view(np.float64))
