"""The stored form of exact sums, by column: integers in two's complement, big-endian, in `bit_length // 8 + 1` bytes.

The formats are those of windowlib.functions.exact_sum.SumState (an odd mantissa and an exponent) and of
windowlib.functions.variance (an integer with a fixed exponent). Sums whose digits span more than 118 bits, which only
very unusual numbers have, are converted one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.errors import InvariantBroken
from windowlib.functions.exact_sum import SCALE_BITS, to_bytes
from windowlib.kernels.aggregates.column_aggregate import Bools, Float64s, Int64s
from windowlib.kernels.aggregates.double_sums import Totals, with_integers
from windowlib.kernels.aggregates.expansions import DIGITS, UNIT_BITS, distilled
from windowlib.kernels.aggregates.segments import spans

_LOW_BITS: Final = 60
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_SPAN_MAX: Final = 118
_WORD: Final = 8
"""The bytes of a word of 64 bits."""
_EXPONENT_MAX: Final = 800


def mantissas_of(totals: Totals) -> tuple[pa.Array, pa.Array]:
    """Return the sums as odd mantissas (binary) and exponents (int32). A sum of 0 has the exponent 0."""
    exponent = _lowest_exponents(totals.parts)
    mantissa, wide = _binaries(totals, exponent, np.zeros(len(totals), dtype=np.int64))
    if not len(wide):
        return mantissa, pa.array(exponent.astype(np.int32))
    texts = []
    for i, units in zip(wide.tolist(), totals.integers(wide.tolist()), strict=True):
        zero_bits = (units & -units).bit_length() - 1 if units else UNIT_BITS
        texts.append(to_bytes(units >> zero_bits))
        exponent[i] = zero_bits - UNIT_BITS
    return _replaced(mantissa, wide, texts), pa.array(exponent.astype(np.int32))


def integers_of(totals: Totals, unit_bits: int) -> pa.Array:
    """Return the sums as integers (binary) in units of 2**-unit_bits, of which they are multiples."""
    lowest = _lowest_exponents(totals.parts)
    zero_bytes = np.where(totals.parts[0] == 0.0, 0, (lowest + unit_bits) // 8)
    integers, wide = _binaries(totals, 8 * zero_bytes - unit_bits, zero_bytes)
    units = totals.integers(wide.tolist())
    return _replaced(integers, wide, [to_bytes(integer >> (UNIT_BITS - unit_bits)) for integer in units])


def _replaced(column: pa.Array, indices: Int64s, texts: Sequence[bytes]) -> pa.Array:
    if not len(indices):
        return column
    mask = np.zeros(len(column), dtype=np.bool_)
    mask[indices] = True
    return pc.replace_with_mask(column, pa.array(mask), pa.array(texts, pa.binary()))


def _lowest_exponents(parts: Sequence[Float64s]) -> Int64s:
    """Return the exponent of the lowest bit of each sum; 0 for 0."""
    last = parts[0]
    for part in parts[1:]:
        last = np.where(part != 0.0, part, last)
    fraction, exponent = np.frexp(last)
    mantissa = (fraction * 2.0**DIGITS).astype(np.int64)
    zero_bits = np.frexp((mantissa & -mantissa).astype(np.float64))[1].astype(np.int64) - 1
    exponents: Int64s = np.where(mantissa == 0, 0, exponent + (zero_bits - DIGITS))
    return exponents


def _binaries(totals: Totals, exponent: Int64s, zero_bytes: Int64s) -> tuple[pa.Array, Int64s]:
    """Return the sums divided by 2**exponent, with zero bytes after each, and the indices of those not computed."""
    span = np.frexp(totals.parts[0])[1] - exponent
    is_wide = (span > _SPAN_MAX) & (totals.parts[0] != 0.0)
    is_wide[totals.wide()] = True
    high = np.zeros(len(totals), dtype=np.int64)
    low = np.zeros(len(totals), dtype=np.int64)
    shift = np.where(is_wide, 0, -exponent)
    for part in totals.parts:
        number = np.ldexp(np.where(is_wide, 0.0, part), shift)
        over = np.trunc(number * 2.0**-_LOW_BITS)
        high += over.astype(np.int64)
        low += (number - over * 2.0**_LOW_BITS).astype(np.int64)
    high += low >> _LOW_BITS
    low &= _LOW_MASK
    sizes = _sizes(high, low)
    words = [low | (high << _LOW_BITS)]
    if len(sizes) and sizes.max() > _WORD:
        words.insert(0, high >> (64 - _LOW_BITS))
    rows = np.stack(words, axis=1).astype(">i8").view(np.uint8).reshape(len(high), _WORD * len(words))
    return _ragged(rows, sizes, zero_bytes), np.flatnonzero(is_wide)


def _sizes(high: Int64s, low: Int64s) -> Int64s:
    """Return `bit_length // 8 + 1` of the integers high * 2**60 + low."""
    is_negative = high < 0
    size_low = np.where(is_negative, -low & _LOW_MASK, low)
    size_high = np.where(is_negative, -high - (low != 0), high)
    bits = np.where(size_high > 0, _LOW_BITS + _bit_lengths(size_high), _bit_lengths(size_low))
    sizes: Int64s = bits // 8 + 1
    return sizes


def _bit_lengths(numbers: Int64s) -> Int64s:
    """Return the bit lengths of integers >= 0."""
    lengths = np.frexp(numbers.astype(np.float64))[1].astype(np.int64)
    exact: Int64s = lengths - (
        (numbers >> np.maximum(lengths - 1, 0) == 0) & (numbers != 0)
    )  # a double may be rounded up
    return exact


def _ragged(rows: npt.NDArray[np.uint8], sizes: Int64s, zero_bytes: Int64s) -> pa.Array:
    """Return the last `sizes[i]` bytes of each row i and then `zero_bytes[i]` zeros as a binary column."""
    width = rows.shape[1] if len(rows) else 0
    data = rows[np.arange(width) >= width - sizes[:, np.newaxis]] if len(rows) else np.zeros(0, dtype=np.uint8)
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(sizes + zero_bytes, out=offsets[1:])
    if zero_bytes.any():
        padded = np.zeros(int(offsets[-1]), dtype=np.uint8)
        padded[spans(offsets[:-1], offsets[:-1] + sizes)] = data
        data = padded
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Integers as spans of bytes, with exponents: their numbers are integer * 2**exponent."""

    data: npt.NDArray[np.uint8]
    begin: Int64s
    end: Int64s
    exponent: Int64s

    @property
    def sizes(self) -> Int64s:
        return self.end - self.begin

    def integers(self, indices: Int64s) -> dict[int, int]:
        """Return the numbers at some indices in units of 2**-2148."""
        integers: dict[int, int] = {}
        for i in indices.tolist():
            text = self.data[self.begin[i] : self.end[i]].tobytes()
            integers[i] = int.from_bytes(text, "big", signed=True) << (int(self.exponent[i]) + UNIT_BITS)
        return integers


def totals_of_mantissas(mantissa: pa.Array, exponent: Int64s) -> Totals:
    """Return the sums for stored mantissas and exponents. Raises InvariantBroken: an exponent is less than -1074."""
    if len(exponent) and exponent.min() < -SCALE_BITS:
        raise InvariantBroken(
            f"the exponent of an exact sum must be >= -{SCALE_BITS}, got {exponent[exponent < -SCALE_BITS][0]}"
        )
    return _totals(_Texts(*_spans_of(mantissa), exponent))


def totals_of_integers(integers: pa.Array, unit_bits: int) -> Totals:
    """Return the sums for stored integers in units of 2**-unit_bits."""
    data, begin, end = _spans_of(integers)
    used = np.flatnonzero(data)
    place = np.searchsorted(used, end) - 1
    last = used[np.maximum(place, 0)] + 1 if len(used) else np.zeros_like(end)
    trimmed = np.where((place >= 0) & (last > begin), last, end)
    return _totals(_Texts(data, begin, trimmed, 8 * (end - trimmed) - unit_bits))


def _spans_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    if not len(column):
        nothing = np.zeros(0, dtype=np.int64)
        return np.zeros(0, dtype=np.uint8), nothing, nothing
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset :][: len(column) + 1].astype(np.int64)
    return np.frombuffer(data, dtype=np.uint8)[: ends[-1]], ends[:-1], ends[1:]


def _totals(texts: _Texts) -> Totals:
    if not len(texts.begin):
        return Totals((np.zeros(0),))
    sizes = texts.sizes
    is_narrow: Bools = sizes <= 2 * _WORD
    is_narrow &= (texts.exponent < _EXPONENT_MAX) & (texts.exponent >= -SCALE_BITS)
    low = _word_before(texts, texts.end, sizes)
    words = [(low >> 32, 32), (low & 0xFFFFFFFF, 0)]
    if sizes[is_narrow].max(initial=0) > _WORD:
        high = np.where(sizes > _WORD, _word_before(texts, texts.end - _WORD, sizes - _WORD), low >> 63)
        words = [(high >> 32, 96), (high & 0xFFFFFFFF, 64), ((low >> 32) & 0xFFFFFFFF, 32), words[1]]
    exponent = np.where(is_narrow, texts.exponent, 0).astype(np.int32)
    columns = [np.ldexp(np.where(is_narrow, word, 0).astype(np.float64), exponent + place) for word, place in words]
    parts, failed = distilled(columns)
    return with_integers(Totals(parts), texts.integers(np.union1d(np.flatnonzero(~is_narrow), failed)))


def _word_before(texts: _Texts, end: Int64s, sizes: Int64s) -> Int64s:
    """Return the at most 8 bytes before each `end` as integers, with the sign if there are no others before them."""
    word = np.zeros(len(end), dtype=np.int64)
    for place in range(_WORD, 0, -1):
        word = (word << 8) | texts.data[np.maximum(end - place, 0)]
    unused: Int64s = 8 * np.clip(_WORD - sizes, 0, _WORD - 1)
    signed: Int64s = (word << unused) >> unused
    return signed
