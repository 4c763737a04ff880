"""XXH64 of whole columns: of 64-bit words, and of byte strings in one buffer.

`windowlib.records.xxh64` computes the same hashes for one value. Where many rows are hashed and numba is installed,
compiled loops do the work (`windowlib.columnar.compiled`). Otherwise array operations of numpy do it, in place on
arrays that should fit the cache of a core, so callers pass blocks of rows (`windowlib.columnar.hashing`).

Source: xxHash, doc/xxhash_spec.md.
"""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from windowlib.columnar.compiled import PROCESS
from windowlib.records import xxh64

Words: TypeAlias = NDArray[np.uint64]
Numbers: TypeAlias = NDArray[np.int64]


class Spans(NamedTuple):
    """Byte strings inside one buffer: `data[start:start + length]` each."""

    data: NDArray[np.uint8]
    starts: Numbers
    lengths: Numbers


FEW: Final = 16
"""At most this many strings are hashed one by one, because about 200 array operations cost more."""
_P1, _P2, _P3, _P4, _P5 = (np.uint64(prime) for prime in (xxh64.P1, xxh64.P2, xxh64.P3, xxh64.P4, xxh64.P5))
_LONG_TAIL: Final = 8 * xxh64.STRIPE
"""Strings of at most this many bytes are always hashed together."""
_WORDS_PER_SPAN: Final = 25
"""numpy hashes so many words in the time of one short string."""


def is_compiled() -> bool:
    """Return whether compiled loops hash in this process."""
    return PROCESS.for_words(0) is not None


def hash_words(words: Words, seed: int | Words, *, out: Words | None = None) -> Words:
    """Return the hash of each 64-bit word.

    `seed` is one seed, or one per word. The array `out` may not share memory with the words.
    """
    loops = PROCESS.for_words(len(words))
    if loops is not None:
        hashes = np.empty(len(words), np.uint64) if out is None else out
        if isinstance(seed, int):
            loops.hash_words(contiguous(words), seed & xxh64.MASK, hashes)
        else:
            loops.hash_seeded_words(contiguous(words), contiguous(seed), hashes)
        return hashes
    hashes = np.multiply(words, _P2, out=out)
    spare = np.empty_like(hashes)
    _rotate(hashes, 31, spare)
    hashes *= _P1
    hashes ^= _added(seed, xxh64.P5 + 8)
    _rotate(hashes, 27, spare)
    hashes *= _P1
    hashes += _P4
    return _avalanche(hashes, spare)


def hash_short(words: Words, length: int, seed: int) -> Words:
    """Return the hash of byte strings of one length.

    A word has the bytes of a string, the first byte lowest. Bytes behind the string are 0. `length` is 1 to 8.
    """
    hashes = np.full(len(words), (seed + xxh64.P5 + length) & xxh64.MASK, np.uint64)
    spare = np.empty_like(hashes)
    if length == 8:  # noqa: PLR2004 - a whole word
        hashes ^= _mixed(words, spare)
        _rotate(hashes, 27, spare)
        hashes *= _P1
        hashes += _P4
        return _avalanche(hashes, spare)
    if length & 4:
        hashes ^= (words & np.uint64(0xFFFFFFFF)) * _P1
        _rotate(hashes, 23, spare)
        hashes *= _P2
        hashes += _P3
        words = words >> np.uint64(32)
    for number in range(length & 3):
        hashes ^= (words >> np.uint64(8 * number) & np.uint64(0xFF)) * _P5
        _rotate(hashes, 11, spare)
        hashes *= _P1
    return _avalanche(hashes, spare)


def hash_spans(spans: Spans, seed: int, *, few: int = FEW) -> Words:
    """Return the hash of each span of bytes.

    `few` spans, and the longest spans up to this number, are hashed one by one.
    """
    data, starts, lengths = spans
    loops = PROCESS.for_words(_WORDS_PER_SPAN * len(starts))
    if loops is not None:
        hashes = np.empty(len(starts), np.uint64)
        plain = contiguous(data), contiguous(starts).view(np.uint64), contiguous(lengths).view(np.uint64)
        loops.hash_spans(plain, seed & xxh64.MASK, hashes)
        return hashes
    if len(starts) <= few:
        return _one_by_one(spans, seed)
    if lengths.min() == lengths.max():
        return _hash_sorted(spans, seed)
    order = np.argsort(lengths.astype(np.uint16) if lengths.max() < 1 << 16 else lengths, kind="stable")
    hashes = np.empty(len(starts), np.uint64)
    sizes = lengths[order]
    together = int(np.searchsorted(sizes, max(_LONG_TAIL, int(sizes[-1 - few])), side="right"))
    short, long = order[:together], order[together:]
    hashes[short] = _hash_sorted(Spans(data, starts[short], sizes[:together]), seed)
    hashes[long] = _one_by_one(Spans(data, starts[long], sizes[together:]), seed)
    return hashes


def contiguous(values: "NDArray[Any]") -> "NDArray[Any]":
    """Return an array without gaps whose values are aligned, as compiled loops take it."""
    return np.require(values, requirements=["C", "A"])


def _one_by_one(spans: Spans, seed: int) -> Words:
    data, starts, lengths = spans
    hashes = [
        xxh64.hash_bytes(data[start : start + length].tobytes(), seed)
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    return np.array(hashes, np.uint64)


def _hash_sorted(spans: Spans, seed: int) -> Words:
    """Return the hashes of spans that are sorted by length, so the spans with a next word are a suffix."""
    data, starts, lengths = spans
    low = int(starts.min())
    size = int((starts + lengths).max()) - low
    padded = np.zeros(size + 8, np.uint8)
    padded[:size] = data[low : low + size]
    # One unaligned word begins at each byte. Words behind the last span are read, and not used.
    words: Words = np.ndarray((size + 1,), np.dtype("<u8"), padded, strides=(1,))
    at = starts - low
    hashes = np.full(len(at), (seed + xxh64.P5) & xxh64.MASK, np.uint64)
    first = int(np.searchsorted(lengths, xxh64.STRIPE))
    if first < len(at):
        hashes[first:] = _hash_stripes(words, at[first:], lengths[first:], seed=seed)
        at = at + lengths // xxh64.STRIPE * xxh64.STRIPE
    hashes += lengths.view(np.uint64)
    rest = lengths % xxh64.STRIPE
    spare = np.empty_like(hashes)
    for number in range(3):
        rows = _rows_with(rest >= 8 * (number + 1))
        part, here = hashes[rows], spare[: len(hashes[rows])]
        part ^= _mixed(words[at[rows] + 8 * number], here)
        _rotate(part, 27, here)
        part *= _P1
        part += _P4
        hashes[rows] = part
    at = at + (rest & ~7)
    return _avalanche(_hash_tails(hashes, words[at], rest), spare)


def _hash_stripes(words: Words, at: Numbers, lengths: Numbers, *, seed: int) -> Words:
    starts = (seed + xxh64.P1 + xxh64.P2, seed + xxh64.P2, seed, seed - xxh64.P1)
    lanes = [np.full(len(at), start & xxh64.MASK, np.uint64) for start in starts]
    spare = np.empty(len(at), np.uint64)
    for end in range(xxh64.STRIPE, int(lengths[-1]) + 1, xxh64.STRIPE):
        first = int(np.searchsorted(lengths, end))
        for number, whole in enumerate(lanes):
            lane = whole[first:]
            lane += words[at[first:] + (end - xxh64.STRIPE + 8 * number)] * _P2
            _rotate(lane, 31, spare[first:])
            lane *= _P1
    hashes = np.zeros(len(at), np.uint64)
    for lane, shift in zip(lanes, (1, 7, 12, 18), strict=True):
        rotated = lane.copy()
        _rotate(rotated, shift, spare)
        hashes += rotated
    for lane in lanes:
        hashes ^= _mixed(lane, spare)
        hashes *= _P1
        hashes += _P4
    return hashes


def _hash_tails(hashes: Words, tails: Words, rest: Numbers) -> Words:
    """Add the last 0 to 7 bytes of each span, which `tails` begin with: 4 bytes at once, then single bytes."""
    rows = _rows_with(rest & 4 != 0)
    part = hashes[rows]
    part ^= (tails[rows] & np.uint64(0xFFFFFFFF)) * _P1
    _rotate(part, 23, np.empty_like(part))
    part *= _P2
    part += _P3
    hashes[rows] = part
    tails >>= ((rest & 4) << 3).view(np.uint64)
    for number in range(3):
        rows = _rows_with(rest & 3 > number)
        part = hashes[rows]
        part ^= (tails[rows] >> np.uint64(8 * number) & np.uint64(0xFF)) * _P5
        _rotate(part, 11, np.empty_like(part))
        part *= _P1
        hashes[rows] = part
    return hashes


def _rows_with(chosen: NDArray[np.bool_]) -> Numbers | slice:
    """Return the chosen rows; all rows as a slice, which makes no copies."""
    rows = np.flatnonzero(chosen)
    return slice(None) if len(rows) == len(chosen) else rows


def _mixed(words: Words, spare: Words) -> Words:
    mixed = words * _P2
    _rotate(mixed, 31, spare)
    mixed *= _P1
    return mixed


def _added(seed: int | Words, constant: int) -> np.uint64 | Words:
    if isinstance(seed, int):
        return np.uint64((seed + constant) & xxh64.MASK)
    return seed + np.uint64(constant & xxh64.MASK)


def _rotate(words: Words, bits: int, spare: Words) -> None:
    """Rotate words to the left, in place. `spare` is overwritten."""
    np.right_shift(words, np.uint64(64 - bits), out=spare)
    words <<= np.uint64(bits)
    words |= spare


def _avalanche(words: Words, spare: Words) -> Words:
    """Finish hashes in place. `spare` is overwritten."""
    for bits, prime in ((33, _P2), (29, _P3)):
        np.right_shift(words, np.uint64(bits), out=spare)
        words ^= spare
        words *= prime
    np.right_shift(words, np.uint64(32), out=spare)
    words ^= spare
    return words
