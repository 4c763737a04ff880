"""The stored form of exact sums of doubles, by column: an odd mantissa in as few bytes as possible, and an exponent.

The format is that of windowlib.functions.exact_sum.SumState.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.errors import InvariantBroken
from windowlib.functions.exact_sum import SCALE_BITS, to_bytes
from windowlib.kernels.column_aggregate import Float64s, Int64s
from windowlib.kernels.double_sums import Totals, with_integers
from windowlib.kernels.expansions import distilled

_WORD: Final = 64
_MANTISSA: Final = 53
_SPAN_MAX: Final = 62
"""The parts of a sum whose digits span fewer bits are added as one integer of 64 bits."""
_BYTES: Final = 8
_WIDE_BYTES: Final = 16
_EXPONENT_MAX: Final = 800


def mantissas_of(totals: Totals) -> tuple[pa.Array, pa.Array]:
    """Return the mantissas as binary and the exponents as int32."""
    first = totals.parts[0]
    mantissa, exponent = _odd(first)
    is_wide = np.zeros(len(first), dtype=np.bool_)
    for part in totals.parts[1:]:
        mantissa, exponent, is_added = _plus(mantissa, exponent, part)
        is_wide |= ~is_added
    is_wide[totals.wide()] = True
    mantissa, exponent = _without_zero_bits(mantissa, exponent)
    wide = np.flatnonzero(is_wide)
    data = _minimal_bytes(mantissa)
    if not len(wide):
        return data, pa.array(exponent.astype(np.int32))
    texts = []
    for i, units in zip(wide.tolist(), totals.integers(wide.tolist()), strict=True):
        zero_bits = (units & -units).bit_length() - 1 if units else SCALE_BITS
        texts.append(to_bytes(units >> zero_bits))
        exponent[i] = zero_bits - SCALE_BITS
    return pc.replace_with_mask(data, pa.array(is_wide), pa.array(texts, pa.binary())), pa.array(
        exponent.astype(np.int32)
    )


def _odd(numbers: Float64s) -> tuple[Int64s, Int64s]:
    """Return finite doubles as odd integers (or 0) and exponents."""
    fraction, exponent = np.frexp(numbers)
    mantissa = np.ldexp(fraction, _MANTISSA).astype(np.int64)
    return _without_zero_bits(mantissa, exponent.astype(np.int64) - _MANTISSA)


def _without_zero_bits(mantissa: Int64s, exponent: Int64s) -> tuple[Int64s, Int64s]:
    """Return the same numbers with odd mantissas; 0 with exponent 0."""
    lowest = mantissa & -mantissa
    zero_bits = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1
    is_zero = mantissa == 0
    zero_bits[is_zero] = 0
    return mantissa >> zero_bits, np.where(is_zero, 0, exponent + zero_bits)


def _plus(mantissa: Int64s, exponent: Int64s, part: Float64s) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Return numbers plus smaller ones, and where the sum has less than 63 bits. Elsewhere it is not defined."""
    other, other_exponent = _odd(part)
    is_zero = other == 0
    shift = np.where(is_zero, 0, exponent - other_exponent)
    bits = np.frexp(mantissa.astype(np.float64))[1]
    is_added = (shift >= 0) & (shift + bits < _SPAN_MAX)
    total = (mantissa << np.clip(shift, 0, _WORD - 1)) + other
    return total, np.where(is_zero, exponent, other_exponent), is_added


def _minimal_bytes(numbers: Int64s) -> pa.Array:
    """Return integers of less than 63 bits in two's complement, big-endian, in `bit_length // 8 + 1` bytes each."""
    magnitude = np.abs(numbers)
    sizes = np.ones(len(numbers), dtype=np.int32)
    for byte in range(1, _BYTES):
        sizes += magnitude >= 1 << (8 * byte - 1)
    return binaries(numbers.astype(">i8").view(np.uint8).reshape(-1, _BYTES), sizes)


def binaries(rows: npt.NDArray[np.uint8], sizes: npt.NDArray[Any]) -> pa.Array:
    """Return the last `sizes[i]` bytes of each row i as a binary column."""
    width = rows.shape[1]
    data = rows[np.arange(width) >= width - sizes[:, np.newaxis]]
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def totals_of(mantissa: pa.Array, exponent: Int64s) -> Totals:
    """Return the sums for stored mantissas and exponents.

    Raises:
        InvariantBroken: an exponent is less than -1074.
    """
    if len(exponent) and exponent.min() < -SCALE_BITS:
        raise InvariantBroken(
            f"the exponent of an exact sum must be >= -{SCALE_BITS}, got {exponent[exponent < -SCALE_BITS][0]}"
        )
    words, is_narrow = _words_of(mantissa)
    is_narrow &= exponent < _EXPONENT_MAX
    scale = np.where(is_narrow, exponent, 0).astype(np.int32)
    columns = [np.ldexp(np.where(is_narrow, word, 0).astype(np.float64), scale + 32 * i) for i, word in words]
    parts, failed = distilled(columns)
    wide = np.union1d(np.flatnonzero(~is_narrow), failed)
    texts = mantissa.take(pa.array(wide)).to_pylist()
    units = [
        int.from_bytes(text, "big", signed=True) << (int(exponent[i]) + SCALE_BITS)
        for i, text in zip(wide.tolist(), texts, strict=True)
    ]
    return with_integers(Totals(parts), dict(zip(wide.tolist(), units, strict=True)))


def _words_of(mantissa: pa.Array) -> tuple[list[tuple[int, Int64s]], npt.NDArray[np.bool_]]:
    """Return (place, word of 32 bits), the signed highest word first, and which mantissas have at most 16 bytes."""
    count = len(mantissa)
    offsets = np.frombuffer(mantissa.buffers()[1], dtype=np.int32)[mantissa.offset :][: count + 1].astype(np.int64)
    sizes = np.diff(offsets)
    is_narrow = sizes <= _WIDE_BYTES
    longest = int(sizes[is_narrow].max()) if is_narrow.any() else 1
    width = -(-longest // 4) * 4
    data = np.frombuffer(mantissa.buffers()[2] or b"\0", dtype=np.uint8)
    at = offsets[1:, np.newaxis] - width + np.arange(width)
    is_inside = at >= offsets[:-1, np.newaxis]
    negative = data[np.minimum(offsets[:-1], len(data) - 1)] >= 1 << 7
    fill = np.where(negative, np.uint8(255), np.uint8(0))[:, np.newaxis]
    rows = np.where(is_inside, data[np.maximum(at, 0)], fill)
    words = np.ascontiguousarray(rows).view(">u4").astype(np.int64)
    words[:, 0] -= (words[:, 0] >> 31) << 32
    places = width // 4
    return [(places - 1 - i, words[:, i]) for i in range(places)], is_narrow
