"""Sets of keys as bits: which keys the records of a chunk have, so that the other keys of the state can stay stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windowlib.columnar.hash_input import int_words
from windowlib.columnar.hashing import row_hashes
from windowlib.columnar.watermark_steps import Bools
from windowlib.columnar.xxhash import Words
from windowlib.records.xxh64 import name_seed

KEY_SEED: Final = name_seed("key")
BITS_PER_KEY: Final = 16
"""A set with so many bits for each key takes 6 % of other keys for its own. Their rows are restored in vain."""
BITS_PER_KEY_OF_FEW: Final = 64
"""A small set has so many bits for each key, and takes 1.6 % of other keys."""
BITS_OF_FEW: Final = 22
"""A small set has at most two to the power of so many bits, because each task of a scan makes one."""
BITS_MIN, BITS_MAX = 10, 24
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio: a multiplication spreads integers evenly (Knuth, TAOCP 3, 6.4)."""


def key_words(keys: Mapping[str, pa.Array]) -> Words:
    """Return a word for each row whose upper half depends on its whole key. `keys` are key columns in feed form."""
    columns = [*keys.values()]
    if len(columns) == 1 and pa.types.is_integer(columns[0].type) and not columns[0].null_count:
        words = int_words(columns[0])
        assert words is not None, "keys are integers"
        return words * _GOLDEN
    return row_hashes(pa.table({f"k{place}": column for place, column in enumerate(columns)}), KEY_SEED).view(np.uint64)


def bits_for(keys: int) -> int:
    """Return the number of bits of an index into a set of about so many keys."""
    few, many = ((bits * max(keys, 1) - 1).bit_length() for bits in (BITS_PER_KEY_OF_FEW, BITS_PER_KEY))
    return min(max(min(few, BITS_OF_FEW), many, BITS_MIN), BITS_MAX)


@dataclass(slots=True)
class BloomFilter:
    """A set of keys, by their words (`key_words`). It may also have keys that were not added (a Bloom filter).

    `index_bits`: the set has two to the power of so many bits. Sets of the same size can be joined.
    """

    index_bits: int
    _is_set: Bools

    @classmethod
    def empty(cls, index_bits: int) -> "BloomFilter":
        """Return a set without keys."""
        return cls(index_bits, np.zeros(1 << index_bits, dtype=np.bool_))

    @classmethod
    def together(cls, index_bits: int, packed: Sequence[bytes]) -> "BloomFilter":
        """Return the union of sets that `packed` made."""
        whole = np.zeros((1 << index_bits) // 8, dtype=np.uint8)
        for bits in packed:
            whole |= np.frombuffer(bits, dtype=np.uint8)
        return cls(index_bits, np.unpackbits(whole).view(np.bool_))

    def packed(self) -> bytes:
        """Return the set with one bit for each bit."""
        return np.packbits(self._is_set).tobytes()

    def add(self, words: Words) -> None:
        self._is_set[self._places(words)] = True

    def has(self, words: Words) -> Bools:
        """Return which keys are in the set. True for each key that was added."""
        are_set: Bools = self._is_set[self._places(words)]
        return are_set

    def _places(self, words: Words) -> Words:
        return words >> np.uint64(64 - self.index_bits)
