"""The hashes of columns are the hashes of their definition, however Arrow holds the values."""

import random
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.fuzzing import chances
from tests.support.plain_hashes import in_disguise, plain_hash, plain_row, random_kind, random_value
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.hash_input import is_constant
from windowlib.columnar.hashing import row_hashes, value_hashes
from windowlib.columnar.record_hashes import invalid_ids, record_hashes
from windowlib.columnar.xxhash import Spans, hash_spans, hash_words
from windowlib.errors import SpecError
from windowlib.records.column_types import Node, parse_type
from windowlib.records.xxh64 import hash_bytes, hash_long

DECIMAL = pa.decimal128(38, 0)
pytestmark = pytest.mark.usefixtures("each_way_to_hash")


def test_every_value_has_the_hash_of_the_definition() -> None:
    for rng in chances(300):
        kind = random_kind(rng, rng.randrange(4))
        values = [random_value(rng, kind) for _ in range(rng.choice([0, 1, 7, 40]))]
        array = in_disguise(pa.array(values, arrow_type(kind)), rng)
        with_seed = rng.getrandbits(64)
        found = value_hashes(array, with_seed)
        assert found.tolist() == [plain_hash(value, kind, with_seed) for value in values]


def test_every_record_has_the_hash_of_the_definition_in_blocks_of_any_size() -> None:
    """In chunks and blocks of any size, with the columns in any order, and with new null columns."""
    for rng in chances(150):
        kinds = {name: random_kind(rng, rng.randrange(3)) for name in "abcdef"[: rng.randrange(1, 6)]}
        rows = [
            {name: random_value(rng, kind) for name, kind in kinds.items()} for _ in range(rng.choice([0, 1, 9, 50]))
        ]
        found = record_hashes(_chunked(rows, kinds, rng), block=rng.choice([1, 3, 1000]))
        assert found.tolist() == [plain_row("record", row, kinds) for row in rows]


def _chunked(rows: list[dict[str, Any]], kinds: Mapping[str, Node], rng: random.Random) -> pa.Table:
    names = rng.sample(list(kinds), len(kinds))
    columns = {}
    for name in names:
        cuts = sorted(rng.randrange(len(rows) + 1) for _ in range(rng.randrange(3)))
        ends = zip([0, *cuts], [*cuts, len(rows)], strict=True)
        values = [row[name] for row in rows]
        chunks = [pa.array(values[start:end], arrow_type(kinds[name])) for start, end in ends]
        columns[name] = pa.chunked_array(chunks)
        if rng.random() < 0.3 and pa.types.is_string(columns[name].type):
            columns[name] = columns[name].dictionary_encode()
    return pa.table({**columns, "new": pa.nulls(len(rows), rng.choice([pa.null(), pa.int32(), pa.string()]))})


def test_bytes_of_any_length_are_hashed_together_as_one_by_one() -> None:
    for rng in chances(200):
        longest = rng.choice([1, 5, 9, 33, 70, 400, 3000])
        parts = [rng.randbytes(rng.choice([longest, rng.randrange(longest + 1)])) for _ in range(rng.randrange(1, 50))]
        lengths = np.array([len(part) for part in parts])
        data = np.frombuffer(b"".join(parts), np.uint8)
        with_seed = rng.getrandbits(64)
        spans = Spans(data, np.cumsum(lengths) - lengths, lengths)
        found = hash_spans(spans, with_seed, few=rng.choice([0, 1, 3, 16]))
        assert found.tolist() == [hash_bytes(part, with_seed) for part in parts]
        words = np.array([rng.getrandbits(64) for _ in parts], np.uint64)
        assert hash_words(words, found).tolist() == [
            hash_long(*both) for both in zip(words.tolist(), found.tolist(), strict=True)
        ]


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        # Test vectors of the specification of XXH64.
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_bytes_are_hashed_as_in_the_specification_of_xxh64(data: bytes, seed: int, expected: int) -> None:
    assert hash_bytes(data, seed) == expected


def test_a_number_is_hashed_as_its_bytes() -> None:
    for number in (0, 1, -1, 2**63 - 1, -(2**63)):
        assert hash_long(number, 42) == hash_bytes(number.to_bytes(8, "little", signed=True), 42)


@pytest.mark.parametrize(
    ("before", "after", "fits", "other"),
    [
        ("int", pa.float64(), (7, 7.0), 7.5),
        ("int", pa.float64(), (-(2**31), -(2.0**31)), 2.0**31),
        ("int", pa.decimal128(20, 2), (7, 7), 2**40),
        ("decimal(6,2)", pa.decimal128(30, 6), (7, 7), 12345),
        ("date", pa.timestamp("us"), (-3, -3 * 86_400_000_000), 86_400_000_001),
        ("float", pa.float64(), (0.1, float(np.float32(0.1))), 0.1),
        ("tinyint", pa.int64(), (-7, -7), 2**40),
    ],
)
def test_a_widened_column_keeps_the_hashes_of_its_first_values(
    before: str,
    after: pa.DataType,
    fits: tuple[Any, Any],
    other: Any,  # noqa: ANN401
) -> None:
    old = record_hashes(pa.table({"x": pa.array([fits[0]], arrow_type(parse_type(before)))}))
    new = pa.table({"x": pa.array([fits[1], None, other], after)})
    found = record_hashes(new, {"x": before})
    assert found.tolist() == [old[0], *record_hashes(new)[1:].tolist()]


def test_an_invalid_row_is_hashed_as_its_table_says() -> None:
    found = invalid_ids(pa.array([1, -2]), pa.array(["null_key", "null_time"]))
    kinds: dict[str, Node] = {"record_hash": "long", "reason": "string"}
    assert found[1] == plain_row("invalid_records", {"record_hash": -2, "reason": "null_time"}, kinds)


def test_a_type_without_a_hash_is_named() -> None:
    with pytest.raises(SpecError, match="time64"):
        record_hashes(pa.table({"x": pa.array([1], pa.time64("us"))}))


def test_repetitive_texts_have_the_hashes_of_single_values() -> None:
    """A column with few values at its ends is hashed by its dictionary. Its middle may have many values."""
    for rng in chances(60):
        few = [rng.choice(["a", "bb", "", None]) for _ in range(rng.randint(1, 40))]
        many = [f"value {number}" for number in range(rng.randint(0, 30))]
        texts = [*few, *many, *few[::-1]]
        rows = pa.table({"text": pa.array(texts, rng.choice([pa.string(), pa.large_string()]))})
        expected = row_hashes(rows, 7, probe=len(texts))
        assert (row_hashes(rows, 7, probe=rng.randint(1, 8)) == expected).all()


def test_constant_columns_have_the_hashes_of_single_values() -> None:
    """A column with one value is hashed once. One that differs in a row, or only in its bits, is not constant."""
    for rng in chances(200):
        kind = rng.choice(["long", "integer", "short", "boolean", "double", "float", "string", "timestamp", "date",
                           "decimal(38,2)"])  # fmt: skip
        one, other = random_value(rng, kind), random_value(rng, kind)
        values = [one] * rng.randint(1, 40)
        if rng.random() < 0.5:
            values[rng.randrange(len(values))] = rng.choice([other, None, 0.0, -0.0] if kind == "double" else [other])
        array = in_disguise(pa.array(values, arrow_type(kind)), rng)
        if rng.random() < 0.3:
            array = pa.StructArray.from_arrays([array, pa.array([7] * len(values))], ["a", "b"]).slice(
                rng.randint(0, 1)
            )
        rows = pa.table({"x": array})
        expected = row_hashes(rows, 7, probe=len(values))
        assert (row_hashes(rows, 7, probe=rng.randint(1, 4), block=rng.randint(1, 50)) == expected).all()
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        if is_constant(plain, probe=rng.randint(1, 4)):
            assert len(set(map(repr, plain.to_pylist()))) == 1


def test_the_constants_of_record_hashes_are_hashed_as_their_first_value() -> None:
    for rng in chances(60):
        kind = rng.choice(["long", "string", "date", "decimal(5,2)"])
        count = rng.randint(0, 30)
        value = random_value(rng, parse_type(kind))
        columns = {"day": pa.array([value] * count, arrow_type(parse_type(kind))), "x": pa.array([*range(count)])}
        widened = {"day": "integer"} if kind == "long" else {}
        found = record_hashes(pa.table(columns), widened, constant=("day", "no column"), block=7)
        assert (found == record_hashes(pa.table(columns), widened)).all()


def test_decimals_of_each_length_are_hashed_as_big_endian_bytes() -> None:
    """Those of at most eight bytes are hashed as words, by length. A longer one sends the whole column to the spans."""
    for rng in chances(200):
        bits = rng.choice([7, 8, 15, 31, 39, 55, 63, 64, 90])
        values = [rng.choice([-1, 1]) * rng.getrandbits(rng.randrange(bits + 1)) for _ in range(rng.randrange(1, 60))]
        edges = [sign * (1 << (8 * size - 1)) + by for size in range(1, 9) for sign in (-1, 1) for by in (-1, 0)]
        decimals = [*map(Decimal, [*values, *rng.choice([[], edges])]), *rng.choice([[], [None]])]
        array = in_disguise(pa.array(decimals, DECIMAL), rng)
        with_seed = rng.getrandbits(64)
        expected = [0 if one is None else plain_hash(one, "decimal(38,0)", with_seed) for one in decimals]
        assert value_hashes(array, with_seed).tolist() == expected


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_nans_that_signal_are_hashed_as_any_nan(kind: type[np.floating[Any]]) -> None:
    """A flipped bit of a file may make one. An operation on it is a warning of numpy, which is an error here."""
    bits = {np.float32: np.uint32(0x7F80_0001), np.float64: np.uint64(0x7FF0_0000_0000_0001)}[kind]
    signalling = np.array([bits]).view(kind)
    assert np.isnan(signalling).all()
    found, plain = (pa.table({"a": pa.array(values)}) for values in (signalling, np.array([np.nan], dtype=kind)))
    assert row_hashes(found, 1).tolist() == row_hashes(plain, 1).tolist()
