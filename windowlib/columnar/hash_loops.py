"""XXH64 of whole columns, and tallies of hashes, as loops that numba compiles.

Only `windowlib.columnar.compiled` imports this module.

`windowlib.columnar.xxhash` computes the same hashes with array operations of numpy. Here all integers are unsigned
64-bit words, places and lengths too: numba gives a double for an operation on an unsigned and a signed integer.

Source: xxHash, doc/xxhash_spec.md.
"""

from typing import Final

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from windowlib.records import xxh64

_P1, _P2, _P3, _P4, _P5 = (np.uint64(prime) for prime in (xxh64.P1, xxh64.P2, xxh64.P3, xxh64.P4, xxh64.P5))
_1, _2, _4, _8, _16, _24, _64 = (np.uint64(number) for number in (1, 2, 4, 8, 16, 24, 64))
_STRIPE: Final = np.uint64(xxh64.STRIPE)

_word = types.uint64
_Found = types.Array(_word, 1, "C")
_Folds = types.Array(_word, 2, "C")
# Arrays over the buffers of Arrow are read-only.
_Words = types.Array(_word, 1, "C", readonly=True)
_Bytes = types.Array(types.uint8, 1, "C", readonly=True)


@numba.njit(inline="always")
def _rotated(word: np.uint64, bits: np.uint64) -> np.uint64:
    return (word << bits) | (word >> (_64 - bits))


@numba.njit(inline="always")
def _mixed(word: np.uint64) -> np.uint64:
    return _rotated(word * _P2, np.uint64(31)) * _P1


@numba.njit(inline="always")
def _with_word(hashed: np.uint64, word: np.uint64) -> np.uint64:
    return _rotated(hashed ^ _mixed(word), np.uint64(27)) * _P1 + _P4


@numba.njit(inline="always")
def _finished(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> np.uint64(33))) * _P2
    word = (word ^ (word >> np.uint64(29))) * _P3
    return word ^ (word >> np.uint64(32))


@numba.njit(types.void(_Words, _word, _Found), cache=True)
def hash_words(words: NDArray[np.uint64], seed: np.uint64, hashes: NDArray[np.uint64]) -> None:
    """Write the hash of each word, all with one seed, to `hashes`."""
    for place in range(len(words)):
        hashes[place] = _finished(_with_word(seed + _P5 + _8, words[place]))


@numba.njit(types.void(_Words, _word, _Found), cache=True)
def fold_words(words: NDArray[np.uint64], seed: np.uint64, fold: NDArray[np.uint64]) -> None:
    """XOR the hash of each word, all with one seed, to the word of `fold` at its place."""
    for place in range(len(words)):
        fold[place] ^= _finished(_with_word(seed + _P5 + _8, words[place]))


@numba.njit(types.void(_Words, _Words, _Found), cache=True)
def hash_seeded_words(words: NDArray[np.uint64], seeds: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
    """Write the hash of each word, each with its own seed, to `hashes`."""
    for place in range(len(words)):
        hashes[place] = _finished(_with_word(seeds[place] + _P5 + _8, words[place]))


@numba.njit(inline="always")
def _half(data: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """Return the 4 bytes from `at`, the least significant first."""
    low = np.uint64(data[at]) | np.uint64(data[at + _1]) << _8
    high = np.uint64(data[at + _2]) | np.uint64(data[at + _2 + _1]) << _8
    return low | high << _16


@numba.njit(inline="always")
def _whole(data: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """Return the 8 bytes from `at`, the least significant first."""
    return _half(data, at) | _half(data, at + _4) << np.uint64(32)


@numba.njit
def _of_stripes(data: NDArray[np.uint8], span: tuple[np.uint64, np.uint64], seed: np.uint64) -> np.uint64:
    """Return the hash so far of the stripes from the start of the span to its end."""
    at, end = span
    first, second, third, fourth = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
    while at < end:
        first = _rotated(first + _whole(data, at) * _P2, np.uint64(31)) * _P1
        second = _rotated(second + _whole(data, at + _8) * _P2, np.uint64(31)) * _P1
        third = _rotated(third + _whole(data, at + _16) * _P2, np.uint64(31)) * _P1
        fourth = _rotated(fourth + _whole(data, at + _24) * _P2, np.uint64(31)) * _P1
        at += _STRIPE
    hashed = _rotated(first, _1) + _rotated(second, np.uint64(7))
    hashed += _rotated(third, np.uint64(12)) + _rotated(fourth, np.uint64(18))
    for lane in (first, second, third, fourth):
        hashed = (hashed ^ _mixed(lane)) * _P1 + _P4
    return hashed


@numba.njit
def _of_span(data: NDArray[np.uint8], span: tuple[np.uint64, np.uint64], seed: np.uint64) -> np.uint64:
    """Return the hash of the bytes from the start of the span to its end."""
    at, end = span
    length = end - at
    if length >= _STRIPE:
        rest = at + length // _STRIPE * _STRIPE
        hashed = _of_stripes(data, (at, rest), seed) + length
        at = rest
    else:
        hashed = seed + _P5 + length
    while at + _8 <= end:
        hashed = _with_word(hashed, _whole(data, at))
        at += _8
    if at + _4 <= end:
        hashed = _rotated(hashed ^ _half(data, at) * _P1, np.uint64(23)) * _P2 + _P3
        at += _4
    while at < end:
        hashed = _rotated(hashed ^ np.uint64(data[at]) * _P5, np.uint64(11)) * _P1
        at += _1
    return _finished(hashed)


@numba.njit(types.void(types.Tuple((_Bytes, _Words, _Words)), _word, _Found), cache=True)
def hash_spans(
    spans: tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint64]], seed: np.uint64, hashes: NDArray[np.uint64]
) -> None:
    """Write the hash of each span of bytes, all with one seed, to `hashes`.

    `spans` has bytes, and where each span starts there, and its length.
    """
    data, starts, lengths = spans
    for place in range(len(starts)):
        hashes[place] = _of_span(data, (starts[place], starts[place] + lengths[place]), seed)


@numba.njit(types.void(_Words, _Words, _Folds), cache=True)
def fold_cells(words: NDArray[np.uint64], cells: NDArray[np.uint64], folds: NDArray[np.uint64]) -> None:
    """XOR each word to the element of `folds[0]` at its cell, and add it to the element of `folds[1]` there."""
    for place in range(len(words)):
        cell = cells[place]
        folds[0, cell] ^= words[place]
        folds[1, cell] += words[place]
