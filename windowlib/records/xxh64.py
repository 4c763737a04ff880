"""XXH64 of one value in plain Python, and the words that name tables and columns in hashes.

docs/reference/checkpoints.md#hashes-and-ids has the definition.

`windowlib.columnar.xxhash` computes the same hashes for whole columns. Hashes are unsigned 64-bit words.

Source: xxHash, doc/xxhash_spec.md; Spark, sql/catalyst, XXH64.java.
"""

import struct
from functools import cache
from typing import Final

from windowlib.bounds import wrap_int64

SEED: Final = 42
"""The seed of Spark's `xxhash64`."""
MASK: Final = 0xFFFFFFFFFFFFFFFF
P1: Final = 0x9E3779B185EBCA87
P2: Final = 0xC2B2AE3D27D4EB4F
P3: Final = 0x165667B19E3779F9
P4: Final = 0x85EBCA77C2B2AE63
P5: Final = 0x27D4EB2F165667C5
STRIPE: Final = 32
"""Bytes from this length on are hashed in stripes of this length, four words at a time."""


def hash_long(value: int, seed: int = SEED) -> int:
    """Return the hash of a 64-bit integer: of its 8 bytes, least significant first."""
    hashed = (seed + P5 + 8) & MASK
    hashed ^= (_rotated(((value & MASK) * P2) & MASK, 31) * P1) & MASK
    return _avalanche((_rotated(hashed, 27) * P1 + P4) & MASK)


def hash_bytes(data: bytes, seed: int = SEED) -> int:
    """Return the hash of bytes."""
    length, at = len(data), 0
    if length >= STRIPE:
        hashed, at = _stripes(data, seed)
    else:
        hashed = (seed + P5) & MASK
    hashed = (hashed + length) & MASK
    while at + 8 <= length:
        word = int.from_bytes(data[at : at + 8], "little")
        hashed ^= (_rotated((word * P2) & MASK, 31) * P1) & MASK
        hashed = (_rotated(hashed, 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= length:
        hashed ^= (int.from_bytes(data[at : at + 4], "little") * P1) & MASK
        hashed = (_rotated(hashed, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        hashed ^= (byte * P5) & MASK
        hashed = (_rotated(hashed, 11) * P1) & MASK
    return _avalanche(hashed)


@cache
def name_word(name: str) -> int:
    """Return the signed 64-bit word of the name of a table, column or field."""
    return wrap_int64(hash_bytes(name.encode("utf-8")))


@cache
def name_seed(name: str) -> int:
    """Return the seed of the values of a column or field, and of the rows of a table.

    Spark's `xxhash64(name_word, value)` hashes a value with this seed.
    """
    return hash_long(name_word(name))


def _stripes(data: bytes, seed: int) -> tuple[int, int]:
    """Hash the complete stripes. Return the hash so far and the offset of the rest."""
    lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
    end = len(data) // STRIPE * STRIPE
    for number, word in enumerate(struct.unpack(f"<{end // 8}Q", data[:end])):
        lane = (lanes[number % 4] + word * P2) & MASK
        lanes[number % 4] = (_rotated(lane, 31) * P1) & MASK
    hashed = sum(_rotated(lane, shift) for lane, shift in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
    for lane in lanes:
        hashed ^= (_rotated((lane * P2) & MASK, 31) * P1) & MASK
        hashed = (hashed * P1 + P4) & MASK
    return hashed, end


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & MASK


def _avalanche(word: int) -> int:
    word = ((word ^ (word >> 33)) * P2) & MASK
    word = ((word ^ (word >> 29)) * P3) & MASK
    return word ^ (word >> 32)
