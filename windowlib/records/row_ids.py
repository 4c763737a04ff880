"""The ids of rows of plain values, and sums of ids. The audit compares these sums; every digest is computed from one.

A row's id covers the name of its table and its non-null content. So a row that is lost, doubled, or moved to another
table changes a sum, and a new nullable column does not. docs/reference/checkpoints.md has the definition of ids.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from windowlib.bounds import wrap_int64
from windowlib.libraries import np
from windowlib.records.xxh64 import hash_bytes, hash_long, name_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORD: Final = "record"
"""The name that seeds the hash of a log's record, as the name of a table seeds the id of its rows."""
INPUT: Final = "input"
"""The name that seeds the id of a record in a slice's input: of its rank, its hash, and its commit if that counts."""


def row_id(table: str, content: Mapping[str, int | str | None]) -> int:
    """Return the signed 64-bit id of one row: the same id as `RowIdentity.ids` gives it by column."""
    folded = 0
    for name, value in content.items():
        if isinstance(value, str):
            folded ^= _text_hash(value, name)
        elif value is not None:
            folded ^= hash_long(value, name_seed(name))
    return wrap_int64(hash_long(folded, name_seed(table)))


@lru_cache(maxsize=4_096)
def _text_hash(value: str, name: str) -> int:
    """Return the hash of a text in a column. The rows of checks repeat most texts from slice to slice."""
    return hash_bytes(value.encode("utf-8"), name_seed(name))


@dataclass(slots=True, eq=False)
class IdSum:
    """Count, XOR and sum of 64-bit ids, equal modulo 2**64. It does not depend on the order or grouping of the ids."""

    count: int = 0
    xor: int = 0
    total: int = 0

    @classmethod
    def of(cls, ids: Iterable[int]) -> "IdSum":
        total = cls()
        for identity in ids:
            total.add(identity)
        return total

    @classmethod
    def together(cls, parts: "Iterable[IdSum]") -> "IdSum":
        """Return a new sum of the ids of all parts."""
        total = cls()
        for part in parts:
            total.merge(part)
        return total

    @classmethod
    def of_array(cls, ids: "NDArray[np.int64]") -> "IdSum":
        """Return the sum of an array of ids. The total wraps at 64 bits."""
        return cls(len(ids), int(np.bitwise_xor.reduce(ids)), int(np.add.reduce(ids))) if len(ids) else cls()

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same words; the total of one of them may not be wrapped."""
        return isinstance(other, IdSum) and self.as_row() == other.as_row()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def add(self, identity: int) -> None:
        self.count += 1
        self.xor ^= identity
        self.total += identity

    def merge(self, other: "IdSum") -> None:
        self.count += other.count
        self.xor ^= other.xor
        self.total += other.total

    def remove(self, other: "IdSum") -> None:
        """Remove all ids of `other`, which are in the sum."""
        self.count -= other.count
        self.xor ^= other.xor
        self.total -= other.total

    def as_row(self) -> tuple[int, int, int]:
        """Return (count, XOR, sum). XOR and sum are signed 64-bit integers."""
        return self.count, wrap_int64(self.xor), wrap_int64(self.total)

    def digest(self) -> str:
        """Return a hex digest of the multiset of ids."""
        count, xor, total = self.as_row()
        return hashlib.sha256(f"{count}:{xor}:{total}".encode("ascii")).hexdigest()[:32]


NO_ROWS: Final = IdSum().digest()
"""The digest of a table without rows."""
