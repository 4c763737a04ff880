"""The rows of a data file that a deletion vector of Delta marks as deleted. The file itself still has them."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class DeletedRows:
    """`bits` has a bit for each row of a file from the first on, 1 for a deleted row. Further rows are not deleted."""

    bits: bytes

    @classmethod
    def of(cls, is_kept: "np.ndarray[Any, Any]") -> Self:
        """Return the rows for which an array is false."""
        import numpy as np

        return cls(bits=np.packbits(~is_kept).tobytes())

    @cached_property
    def count(self) -> int:
        """The number of deleted rows."""
        return int.from_bytes(self.bits, "big").bit_count()

    @cached_property
    def digest(self) -> str:
        """A digest of the rows."""
        return hashlib.blake2b(self.bits, digest_size=16).hexdigest()

    def is_kept(self, first: int, count: int) -> "np.ndarray[Any, Any]":
        """Return for each of `count` rows from number `first` on whether it is not deleted."""
        import numpy as np

        found = np.ones(count, dtype=bool)
        bits = np.unpackbits(np.frombuffer(self.bits, dtype=np.uint8))[first : first + count]
        found[: len(bits)] = bits == 0
        return found
