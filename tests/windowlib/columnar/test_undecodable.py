"""Texts that are not UTF-8 are found in columns of any type, and replaced; everything else stays."""

from typing import Any

import pyarrow as pa
import pytest

from tests.support.fuzzing import chances
from tests.support.latin_texts import as_texts, random_bytes, with_bytes
from windowlib.columnar.undecodable import (
    UndecodableText,
    escaped,
    has_texts,
    is_decodable,
    undecodable_rows,
    undecodable_texts,
    without_undecodable,
)

KINDS = [
    pa.string(),
    pa.large_string(),
    pa.list_(pa.string()),
    pa.large_list(pa.string()),
    pa.struct([("a", pa.string()), ("n", pa.int64())]),
    pa.map_(pa.string(), pa.string()),
    pa.map_(pa.string(), pa.int64()),
    pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.string()))), ("t", pa.timestamp("us"))])),
]


def bad_paths(value: Any, kind: pa.DataType) -> dict[str, bytes]:  # noqa: ANN401 - any value
    """Return path -> bytes, from plain values."""
    if value is None or not has_texts(kind):
        return {}
    parts: list[tuple[str, Any, pa.DataType]]
    if pa.types.is_map(kind):
        parts = [(f"[{at}].key", key, kind.key_type) for at, (key, _) in enumerate(value)]
        parts += [(f"[{at}].value", item, kind.item_type) for at, (_, item) in enumerate(value)]
    elif pa.types.is_struct(kind):
        parts = [(f".{field.name}", value[field.name], field.type) for field in kind]
    elif pa.types.is_nested(kind):
        parts = [(f"[{at}]", item, kind.value_type) for at, item in enumerate(value)]
    else:
        try:
            value.decode()
        except UnicodeDecodeError:
            return {"": value}
        return {}
    return {prefix + path: raw for prefix, part, own in parts for path, raw in bad_paths(part, own).items()}


def repaired(value: Any, kind: pa.DataType, *, is_key: bool = False) -> Any:  # noqa: ANN401 - any value
    """Return a plain value with null in place of each text that is not UTF-8, and escapes in keys."""
    if value is None or not has_texts(kind):
        return value
    if pa.types.is_map(kind):
        return [(repaired(key, kind.key_type, is_key=True), repaired(one, kind.item_type)) for key, one in value]
    if pa.types.is_struct(kind):
        return {field.name: repaired(value[field.name], field.type) for field in kind}
    if pa.types.is_nested(kind):
        return [repaired(one, kind.value_type) for one in value]
    is_kept = is_key or not bad_paths(value, kind)
    return value.decode("utf-8", "backslashreplace") if is_kept else None


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_texts_that_are_not_utf_8_are_found_and_replaced_at_any_depth(kind: pa.DataType) -> None:
    found = 0
    for chance in chances(40):
        whole = pa.array([random_bytes(chance, kind) for _ in range(12)], with_bytes(kind))
        start = chance.randrange(6)
        array, values = as_texts(whole, kind).slice(start, 5), whole.slice(start, 5).to_pylist()
        expected = {(row, path): raw for row, one in enumerate(values) for path, raw in bad_paths(one, kind).items()}
        texts = undecodable_texts(array)
        assert {(text.row, text.path): text.raw for text in texts} == expected
        assert len(texts) == len(expected)
        rows = undecodable_rows(pa.record_batch({"n": pa.array(range(5)), "x": array}))
        assert (set() if rows is None else set(rows.nonzero()[0])) == {row for row, _ in expected}
        clean = without_undecodable(array)
        clean.validate(full=True)
        plain = [repaired(one, kind) for one in whole.slice(start, 5).cast(with_bytes(kind)).to_pylist()]
        assert clean.to_pylist() == pa.array(plain, kind).to_pylist()
        assert is_decodable(clean)
        found += len(expected)
    assert found > 10


def test_a_column_without_texts_or_with_texts_that_are_utf_8_stays_as_it_is() -> None:
    for array in (pa.array([1, None]), pa.array([b"\xff"]), pa.array(["é", None, ""]), pa.array([["x"], None])):
        assert is_decodable(array)
        assert without_undecodable(array) is array
        assert undecodable_texts(array) == []
        assert undecodable_rows(pa.record_batch({"x": array})) is None


def test_a_text_that_is_not_utf_8_can_be_shown_with_escapes() -> None:
    array = as_texts(pa.array([b"caf\xe9", "é".encode(), None]), pa.string())
    assert without_undecodable(array, escaped).to_pylist() == ["caf\\xe9", "é", None]
    assert undecodable_texts(array) == [UndecodableText(0, "", b"caf\xe9")]
