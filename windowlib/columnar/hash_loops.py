"""XXH64 of whole columns, and a sort, as loops that numba compiles to one file of machine code.

Only `windowlib.columnar.stored_loops` imports this module, and only when no stored file fits.

`windowlib.columnar.xxhash` computes the same hashes with array operations of numpy. Here all integers are unsigned
64-bit words, places and lengths too: numba gives a double for an operation on an unsigned and a signed integer. A loop
gets addresses and lengths, and nothing in it can raise an error, so its machine code calls no other code.

Source: xxHash, doc/xxhash_spec.md.
"""

from typing import Any, Final

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import types

from windowlib.records import xxh64

_P1, _P2, _P3, _P4, _P5 = (np.uint64(prime) for prime in (xxh64.P1, xxh64.P2, xxh64.P3, xxh64.P4, xxh64.P5))
_1, _2, _4, _8, _16, _24, _64 = (np.uint64(number) for number in (1, 2, 4, 8, 16, 24, 64))
_STRIPE: Final = np.uint64(xxh64.STRIPE)
_WITHIN_STRIPE: Final = np.uint64(xxh64.STRIPE - 1)

_word = types.uint64
_Words: Any = types.CPointer(_word)
_Bytes: Any = types.CPointer(types.uint8)


def machine_code(machine: llvm.TargetMachine) -> bytes:
    """Return an object file with the loops, under their names."""
    module = llvm.parse_assembly("")
    for loop in (hash_words, hash_seeded_words, hash_spans, place_words):
        assembly = loop.inspect_llvm().replace(loop.native_name, loop.__name__)
        module.link_in(llvm.parse_assembly(assembly))
    return bytes(machine.emit_object(module))


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


@numba.cfunc(types.void(_Words, _word, _word, _Words))
def hash_words(words: _Words, count: np.uint64, seed: np.uint64, hashes: _Words) -> None:  # noqa: PLR0917 - machine code has no names
    """Write the hash of each word, all with one seed, to `hashes`."""
    for place in range(count):
        hashes[place] = _finished(_with_word(seed + _P5 + _8, words[place]))


@numba.cfunc(types.void(_Words, _word, _Words, _Words))
def hash_seeded_words(words: _Words, count: np.uint64, seeds: _Words, hashes: _Words) -> None:  # noqa: PLR0917 - machine code has no names
    """Write the hash of each word, each with its own seed, to `hashes`."""
    for place in range(count):
        hashes[place] = _finished(_with_word(seeds[place] + _P5 + _8, words[place]))


@numba.njit(inline="always")
def _half(data: _Bytes, at: np.uint64) -> np.uint64:
    """Return the 4 bytes from `at`, the least significant first."""
    low = np.uint64(data[at]) | np.uint64(data[at + _1]) << _8
    high = np.uint64(data[at + _2]) | np.uint64(data[at + _2 + _1]) << _8
    return low | high << _16


@numba.njit(inline="always")
def _whole(data: _Bytes, at: np.uint64) -> np.uint64:
    """Return the 8 bytes from `at`, the least significant first."""
    return _half(data, at) | _half(data, at + _4) << np.uint64(32)


@numba.njit
def _of_stripes(data: _Bytes, span: tuple[np.uint64, np.uint64], seed: np.uint64) -> np.uint64:
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
def _of_span(data: _Bytes, span: tuple[np.uint64, np.uint64], seed: np.uint64) -> np.uint64:
    """Return the hash of the bytes from the start of the span to its end."""
    at, end = span
    length = end - at
    if length >= _STRIPE:
        rest = end - (length & _WITHIN_STRIPE)
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


@numba.cfunc(types.void(_Bytes, _Words, _Words, _word, _word, _Words))
def hash_spans(  # noqa: PLR0917 - machine code has no names
    data: _Bytes, starts: _Words, lengths: _Words, count: np.uint64, seed: np.uint64, hashes: _Words
) -> None:
    """Write the hash of each span of bytes, all with one seed, to `hashes`. Each span starts in the data at a place."""
    for place in range(count):
        hashes[place] = _of_span(data, (starts[place], starts[place] + lengths[place]), seed)


@numba.cfunc(types.void(_Words, _word, _word, _word, _Words, _Words))
def place_words(  # noqa: PLR0917 - machine code has no names
    words: _Words, count: np.uint64, shift: np.uint64, digits: np.uint64, places: _Words, placed: _Words
) -> None:
    """Write the words to `placed`, ordered by (word >> shift) % digits, equal ones as they were.

    `digits` is a power of two, and `places` has so many elements, all 0, which are overwritten.
    """
    for place in range(count):
        places[(words[place] >> shift) & (digits - _1)] += _1
    before = np.uint64(0)
    for digit in range(digits):
        before, places[digit] = before + places[digit], before
    for place in range(count):
        word = words[place]
        digit = (word >> shift) & (digits - _1)
        placed[places[digit]] = word
        places[digit] += _1
