"""Arrow arrays as numpy arrays without copies: 64-bit words, spans of bytes, validity."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windowlib.columnar.xxhash import Numbers, Spans, Words

_MS_PER_DAY = 86_400_000
_LONG_DECIMAL_DIGITS = 18
"""Spark stores decimals of at most this many digits in 64 bits, and hashes them as longs."""
_DECIMAL_BYTES = 16
_NAN = np.uint64(0x7FF8000000000000)


def validity(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return which values are not null; None if no value is null."""
    if not array.null_count:
        return None
    bitmap = array.buffers()[0]
    return None if bitmap is None else _bits(bitmap, array.offset, len(array))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are hashed as 64-bit words (`int_words`)."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    )


def int_words(array: pa.Array) -> Words | None:
    """Return values as the 64-bit words that are hashed; None for types that are hashed as bytes.

    Integers are extended to 64 bits. A DATE is its days, a TIMESTAMP its microseconds, a boolean 0 or 1, a decimal of
    at most 18 digits its digits as an integer, a float or double the bits of the double (one NaN, -0.0 as 0.0).
    """
    kind = array.type
    if pa.types.is_boolean(kind):
        return _bits(array.buffers()[1], array.offset, len(array)).astype(np.uint64)
    if pa.types.is_floating(kind):
        return _double_bits(_fixed(array, np.dtype(kind.to_pandas_dtype())))
    if pa.types.is_decimal(kind) and kind.precision <= _LONG_DECIMAL_DIGITS:
        return np.ascontiguousarray(_decimal_halves(array)[:, 0])
    numbers = _int_values(array)
    return None if numbers is None else numbers.view(np.uint64)


def _int_values(array: pa.Array) -> Numbers | None:
    kind = array.type
    if pa.types.is_integer(kind):
        return _fixed(array, np.dtype(kind.to_pandas_dtype())).astype(np.int64, copy=False)
    if pa.types.is_date32(kind):
        return _fixed(array, np.dtype(np.int32)).astype(np.int64)
    if pa.types.is_date64(kind):
        return _fixed(array, np.dtype(np.int64)) // _MS_PER_DAY
    if pa.types.is_timestamp(kind):
        return _micros(_fixed(array, np.dtype(np.int64)), kind.unit)
    return None


def spans_of(array: pa.Array) -> Spans | None:
    """Return the bytes of strings, binaries and decimals of more than 18 digits; None for other types.

    Such a decimal is the fewest bytes of its digits as an integer in two's complement, the most significant first.
    """
    kind = array.type
    if pa.types.is_decimal(kind):
        return _decimal_spans(array)
    if pa.types.is_fixed_size_binary(kind):
        starts = np.arange(array.offset, array.offset + len(array)) * kind.byte_width
        return Spans(_bytes(array.buffers()[1]), starts, np.full(len(array), kind.byte_width))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return spans_of(array.cast(pa.large_binary()))
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not (is_large or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return None
    if not len(array):
        return Spans(_bytes(None), np.empty(0, np.int64), np.empty(0, np.int64))
    offsets = _offsets(array, np.dtype(np.int64 if is_large else np.int32)).astype(np.int64, copy=False)
    return Spans(_bytes(array.buffers()[2]), offsets[:-1], np.diff(offsets))


def is_constant(array: pa.Array, *, probe: int) -> bool:
    """Return whether an array of numbers, strings or structs of them has rows, and all have one value without a null.

    The first `probe` rows are compared before all. Equal doubles with different bits are different values.
    """
    kind = array.type
    if not len(array) or array.null_count:
        return False
    if pa.types.is_boolean(kind):
        return array.true_count in {0, len(array)}
    if pa.types.is_string(kind):
        return _is_constant_text(array.slice(0, probe)) and _is_constant_text(array)
    if pa.types.is_struct(kind):
        return all(is_constant(member, probe=probe) for member in array.flatten())
    if pa.types.is_decimal128(kind):
        words = _decimal_halves(array)
    elif is_number(kind):
        words = _fixed(array, np.dtype(f"i{kind.bit_width // 8}"))
    else:
        return False
    first = words[0]
    return bool((words[:probe] == first).all() and (words == first).all())


def _is_constant_text(array: pa.Array) -> bool:
    offsets = _offsets(array, np.dtype(np.int32))
    length = int(offsets[1] - offsets[0])
    if (np.diff(offsets) != length).any():
        return False
    used = _bytes(array.buffers()[2])[offsets[0] : offsets[-1]]
    return not length or bool((used[length:] == used[:-length]).all())


def _offsets(array: pa.Array, width: np.dtype) -> NDArray:  # type: ignore[type-arg]
    """Return where the values of an array that is not empty begin in its bytes, and where the last one ends."""
    return np.frombuffer(array.buffers()[1], width, len(array) + 1, array.offset * width.itemsize)


def _fixed(array: pa.Array, width: np.dtype) -> NDArray:  # type: ignore[type-arg]
    if not len(array):
        return np.empty(0, width)
    return np.frombuffer(array.buffers()[1], width, len(array), array.offset * width.itemsize)


def _bits(bitmap: pa.Buffer, offset: int, count: int) -> NDArray[np.bool_]:
    first = offset // 8
    used = np.frombuffer(bitmap, np.uint8)[first : (offset + count + 7) // 8]
    bits = np.unpackbits(used, bitorder="little")
    return bits[offset - 8 * first : offset - 8 * first + count].view(np.bool_)


def _bytes(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _double_bits(values: NDArray[np.floating[Any]]) -> Words:
    with np.errstate(invalid="ignore"):  # a damaged or foreign file may have NaNs that signal
        bits: Words = (values.astype(np.float64, copy=False) + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    not_numbers = np.isnan(values)
    if not_numbers.any():
        bits[not_numbers] = _NAN
    return bits


def _micros(values: Numbers, unit: str) -> Numbers:
    match unit:
        case "us":
            return values
        case "ns":
            return values // 1000
        case "ms":
            return values * 1000
        case _:
            return values * 1_000_000


def _decimal_halves(array: pa.Array) -> Words:
    """Return (lower, upper) 64 bits of each decimal, a row each."""
    if array.type.bit_width != 8 * _DECIMAL_BYTES:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    if not len(array):
        return np.empty((0, 2), np.uint64)
    start = array.offset * _DECIMAL_BYTES
    return np.frombuffer(array.buffers()[1], np.uint64, 2 * len(array), start).reshape(-1, 2)


def short_decimals(array: pa.Array) -> tuple[Numbers, NDArray[np.int8]] | None:
    """Return the digits of each decimal as an integer, and in how many bytes it fits; None if one needs more than 8."""
    halves = _decimal_halves(array)
    numbers = np.ascontiguousarray(halves[:, 0]).view(np.int64)
    signs = numbers >> 63
    if not np.array_equal(halves[:, 1].view(np.int64), signs):
        return None
    magnitudes = numbers ^ signs
    most = int(magnitudes.max(initial=0))
    lengths = np.ones(len(numbers), np.int8)
    for length in range(1, 8):
        bound = 1 << (8 * length - 1)  # the sign needs one more bit
        if most < bound:
            break
        lengths += magnitudes >= bound
    return numbers, lengths


def _decimal_spans(array: pa.Array) -> Spans:
    halves = _decimal_halves(array)
    signs = (halves[:, 1].view(np.int64) >> 63).view(np.uint64)[:, None]
    magnitudes = _big_endian(halves ^ signs)  # of a negative number, the complement, which needs as many bytes
    is_used = magnitudes != 0
    used = np.where(is_used.any(axis=1), _DECIMAL_BYTES - is_used.argmax(axis=1), 0)
    top = magnitudes[np.arange(len(used)), np.minimum(_DECIMAL_BYTES - used, _DECIMAL_BYTES - 1)]
    lengths = np.maximum(used + (top >= 0x80), 1)  # noqa: PLR2004 - the sign needs one more bit
    ends = np.arange(1, len(used) + 1) * _DECIMAL_BYTES
    return Spans(_big_endian(halves).reshape(-1), ends - lengths, lengths)


def _big_endian(halves: Words) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.ascontiguousarray(halves).view(np.uint8).reshape(-1, _DECIMAL_BYTES)[:, ::-1])
