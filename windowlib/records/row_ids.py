"""The ids of output rows, and sums of ids. The audit compares these sums, and every digest is computed from one.

A row's id covers the name of its table and its non-null content. So a row that is lost, doubled, or moved to another
table changes a sum, and a new nullable column does not.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windowlib.bounds import wrap_int64

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RECORD = "record"
"""The name that seeds the hash of a log's record, as the name of a table seeds the id of its rows."""
INPUT = "input"
"""The name that seeds the id of a record at its rank, of which a slice's input fingerprint is made."""


def row_id(table: str, names: Sequence[str], values: Iterable[object]) -> int:
    """Return the signed 64-bit id of a row: BLAKE2b of the ASCII spelling of its table and non-null content.

    Values are plain Python scalars, or lists and tuples of them. Times are integers.
    """
    content = tuple((name, value) for name, value in zip(names, values, strict=True) if value is not None)
    digest = hashlib.blake2b(ascii((table, content)).encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def row_check(values: tuple[object, ...]) -> int:
    """Return the signed 64-bit check of a row: BLAKE2b of the ASCII spelling of its id and coordinates."""
    digest = hashlib.blake2b(ascii(values).encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@dataclass(slots=True)
class IdSum:
    """Count, XOR and wrapping sum of 64-bit ids. It does not depend on the order or the grouping of the ids."""

    count: int = 0
    xor: int = 0
    total: int = 0

    @classmethod
    def of(cls, ids: Iterable[int]) -> "IdSum":
        """Return the sum of these ids."""
        found = cls()
        for identity in ids:
            found.add(identity)
        return found

    @classmethod
    def of_array(cls, ids: "NDArray[np.int64]") -> "IdSum":
        """Return the sum of an array of ids."""
        import numpy as np

        if not len(ids):
            return cls()
        return cls(len(ids), int(np.bitwise_xor.reduce(ids)), int(np.add.reduce(ids, dtype=np.int64)))

    def add(self, identity: int) -> None:
        """Add one id."""
        self.count += 1
        self.xor ^= identity
        self.total += identity

    def merge(self, other: "IdSum") -> None:
        """Add all ids of `other`."""
        self.count += other.count
        self.xor ^= other.xor
        self.total += other.total

    def as_row(self) -> tuple[int, int, int]:
        """Return (count, XOR, sum). XOR and sum are signed 64-bit integers."""
        return self.count, wrap_int64(self.xor), wrap_int64(self.total)

    def digest(self) -> str:
        """Return a hex digest of the multiset of ids."""
        count, xor, total = self.as_row()
        return hashlib.sha256(f"{count}:{xor}:{total}".encode("ascii")).hexdigest()[:32]
