"""The definition of hashes in docs/reference/checkpoints.md in plain Python, and random values of any type."""

import math
import random
import struct
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from windowlib.bounds import wrap_int64
from windowlib.records.column_types import Node, decimal_of
from windowlib.records.xxh64 import MASK, hash_bytes, hash_long, name_seed

FLAT = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "decimal(9,2)", "decimal(18,0)", "decimal(19,3)", "decimal(38,18)",
)  # fmt: skip
EXACT = Context(prec=80)
"""Python's own context rounds a decimal of more than 28 digits."""
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64, "date": 16, "timestamp": 48, "timestamp_ntz": 48}


def plain_row(table: str, values: Mapping[str, Any], kinds: Mapping[str, Node]) -> int:
    """Return the signed hash of a row of a table from plain values. Instants and dates are integers."""
    return wrap_int64(hash_long(plain_fold(values, kinds), name_seed(table)))


def plain_hash(value: Any, kind: Node, seed: int) -> int:  # noqa: ANN401 - any plain value
    """Return the hash of a plain value with a seed; 0 for None. A struct is a dict, a map a list of pairs."""
    if value is None:
        return 0
    if isinstance(kind, str):
        word = _word(value, kind)
        return hash_bytes(word, seed) if isinstance(word, bytes) else hash_long(word, seed)
    match kind["type"]:
        case "struct":
            return hash_long(plain_fold(value, {one["name"]: one["type"] for one in kind["fields"]}), seed)
        case "array":
            items = [
                hash_long(plain_hash(item, kind["elementType"], 42), hash_long(place, 42))
                for place, item in enumerate(value)
            ]
        case _:
            items = [
                hash_long(plain_hash(item, kind["valueType"], 42), hash_long(plain_hash(key, kind["keyType"], 42), 42))
                for key, item in value
            ]
    return hash_long(len(items) ^ _xor(items), seed)


def plain_fold(values: Mapping[str, Any], kinds: Mapping[str, Node]) -> int:
    """Return the fold of columns or fields: XOR of the hashes of those that are not None, seeded by their names."""
    return _xor([plain_hash(values.get(name), kind, name_seed(name)) for name, kind in kinds.items()])


def _xor(hashes: list[int]) -> int:
    found = 0
    for one in hashes:
        found ^= one
    return found


def _word(value: Any, kind: str) -> int | bytes:  # noqa: ANN401
    if (decimal := decimal_of(kind)) is not None:
        digits = int(value.scaleb(decimal[1], EXACT))
        return digits if decimal[0] <= 18 else _fewest_bytes(digits)
    match kind:
        case "string":
            return str(value).encode("utf-8")
        case "binary":
            return bytes(value)
        case "float" | "double":
            number = struct.unpack("<f", struct.pack("<f", value))[0] if kind == "float" else float(value)
            if math.isnan(number):
                return 0x7FF8000000000000
            return int(struct.unpack("<q", struct.pack("<d", number or 0.0))[0]) & MASK
        case _:
            return int(value) & MASK


def _fewest_bytes(number: int) -> bytes:
    for length in range(1, 20):
        if -(1 << (8 * length - 1)) <= number < 1 << (8 * length - 1):
            return number.to_bytes(length, "big", signed=True)
    raise AssertionError(number)


def random_kind(rng: random.Random, depth: int = 2) -> Node:
    """Return a random column type, nested up to a depth."""
    shape = rng.choice(["flat", "flat", "array", "struct", "map"]) if depth else "flat"
    match shape:
        case "array":
            return {"type": "array", "elementType": random_kind(rng, depth - 1), "containsNull": True}
        case "struct":
            fields = [
                {"name": name, "type": random_kind(rng, depth - 1), "nullable": True, "metadata": {}}
                for name in rng.sample(["a", "b", "rank", "ä"], rng.randrange(1, 4))
            ]
            return {"type": "struct", "fields": fields}
        case "map":
            key = rng.choice(["string", "integer", "date"])
            value = random_kind(rng, depth - 1)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case _:
            return rng.choice(FLAT)


def random_value(rng: random.Random, kind: Node, *, nulls: float = 0.2) -> Any:  # noqa: ANN401, PLR0911
    """Return a plain value of a type, None with the probability `nulls`."""
    if rng.random() < nulls:
        return None
    if not isinstance(kind, str):
        return _random_nested(rng, kind)
    if (decimal := decimal_of(kind)) is not None:
        digits = rng.choice([1, 3, decimal[0] // 2, decimal[0]])
        return Decimal(rng.randrange(-(10**digits) + 1, 10**digits)).scaleb(-decimal[1], EXACT)
    match kind:
        case "boolean":
            return rng.random() < 0.5
        case "string":
            return "".join(rng.choice("añ🛫 x") for _ in range(rng.choice([0, 3, 12, 40])))
        case "binary":
            return rng.randbytes(rng.choice([0, 3, 8, 31, 32, rng.randrange(200)]))
        case "float" | "double":
            return rng.choice([0.0, -0.0, 1.5, -2.5e30, math.nan, math.inf, -math.inf, 0.1, rng.random()])
        case _:
            bits = rng.choice([3, _BITS[kind]])
            return rng.randrange(-(1 << (bits - 1)), 1 << (bits - 1))


def _random_nested(rng: random.Random, kind: Mapping[str, Any]) -> Any:  # noqa: ANN401
    length = rng.choice([0, 1, 2, 5])
    match kind["type"]:
        case "struct":
            return {one["name"]: random_value(rng, one["type"]) for one in kind["fields"]}
        case "array":
            return [random_value(rng, kind["elementType"]) for _ in range(length)]
        case _:
            keys = {random_value(rng, kind["keyType"], nulls=0) for _ in range(length)}
            return [(key, random_value(rng, kind["valueType"])) for key in keys]


def in_disguise(array: pa.Array, rng: random.Random) -> pa.Array | pa.ChunkedArray:
    """Return the same values as Arrow may hold them: a slice of a longer array, other layouts, a dictionary."""
    for _ in range(rng.randrange(3)):
        kind = array.type
        flat = pa.types.is_string(kind) or pa.types.is_binary(kind)
        match rng.choice(["slice", "large", "view", "dictionary"]):
            case "slice":
                rest = [array.slice(0, rng.randrange(len(array) + 1)) for _ in range(2)]
                array = pa.concat_arrays([rest[0], array, rest[1]]).slice(len(rest[0]), len(array))
            case "large" if flat:
                array = array.cast(pa.large_string() if pa.types.is_string(kind) else pa.large_binary())
            case "view" if flat:
                array = array.cast(pa.string_view() if pa.types.is_string(kind) else pa.binary_view())
            case "dictionary" if flat or pa.types.is_integer(kind):
                array = array.dictionary_encode()
            case _:
                pass
    return array
