"""Columns of texts that are not UTF-8, which neither Python nor Arrow makes of texts."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow.cffi import ffi

from tests.support.plain_rows import named_rows
from windowlib.columnar.undecodable import has_texts
from windowlib.records.tables import Table

LATIN = b"caf\xe9"
"""A text in Latin-1."""

BYTES = (
    b"", b"a", b"\x00", "é".encode(), "\u2028".encode(), "🛫".encode(), "\U0010ffff".encode(), b"\xff", LATIN,
    b"\xe9t\xe9", b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xc0\x80", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf0\x9f\x9b", b"\x80", b"a" * 40 + b"\xc3", b"a" * 40 + "é".encode(),
)  # fmt: skip
"""Texts and bytes that are not texts: surrogates, codes that are too long or too large, and texts that are cut off."""


def with_bytes(kind: pa.DataType) -> pa.DataType:
    """Return a type with bytes in place of texts."""
    if pa.types.is_map(kind):
        return pa.map_(with_bytes(kind.key_type), with_bytes(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, with_bytes(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(with_bytes(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(with_bytes(kind.value_type))
    return {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind, kind)


def as_texts(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of `with_bytes(kind)` as an array of `kind`, without a check that its texts are UTF-8."""
    exported = ffi.new("struct ArrowArray*")
    address = int(ffi.cast("uintptr_t", exported))
    array._export_to_c(address)
    return pa.Array._import_from_c(address, kind)


def write_latin_texts(monkeypatch: pytest.MonkeyPatch, placeholder: bytes) -> None:
    """Let the fake replayer store `LATIN` in place of a text, as a Hindcast before the reason `not_utf8` did."""

    def latin(table: Table, rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
        return {
            name: as_texts(pc.replace_substring(column.cast(pa.binary()), placeholder, LATIN), column.type)
            if pa.types.is_string(column.type)
            else column
            for name, column in named_rows(table, rows).items()
        }

    monkeypatch.setattr("tests.support.fake_replay.named_rows", latin)


def random_bytes(chance: random.Random, kind: pa.DataType) -> Any:  # noqa: ANN401 - any value
    """Return a plain value of `with_bytes(kind)`, often null. About half of its texts are not UTF-8."""
    if chance.random() < 0.15:
        return None
    count = chance.randrange(4)
    if pa.types.is_map(kind):
        keys = chance.sample(BYTES, count)
        return [(key, random_bytes(chance, kind.item_type)) for key in keys]
    if pa.types.is_struct(kind):
        return {field.name: random_bytes(chance, field.type) for field in kind}
    if pa.types.is_nested(kind):
        return [random_bytes(chance, kind.value_type) for _ in range(count)]
    return chance.choice(BYTES) if has_texts(kind) else chance.randrange(100)
