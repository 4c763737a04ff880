"""The test vectors of hashes in docs/reference/checkpoints.md."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.places import ROOT
from windowlib.columnar.arrow import arrow_type
from windowlib.records.column_types import Node, parse_type

_VALUE = re.compile(r"(?m)^\| `(?P<type>[^`]+)` \| `(?P<value>[^`]+)` \| (?P<hash>[-?0-9]+) \|")
_ROW = re.compile(r"(?m)^\| `(?P<table>\w+)` \| `(?P<columns>[^`]+)` \| `(?P<value>[^`]+)` \| (?P<hash>[-?0-9]+) \|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """A row of a table and its hash; of a value without a table, the hash with the seed 42."""

    table: str | None
    kinds: dict[str, Node]
    row: dict[str, Any]
    hash: int

    def columns(self) -> pa.Table:
        """The row as Arrow columns."""
        return pa.table({name: pa.array([self.row[name]], arrow_type(kind)) for name, kind in self.kinds.items()})


def vectors() -> Iterator[Vector]:
    """Yield all vectors of the document."""
    text = (ROOT / "docs" / "reference" / "checkpoints.md").read_text(encoding="utf-8")
    for found in _VALUE.finditer(text):
        kind = parse_type(found["type"])
        value = _plain(json.loads(found["value"]), kind)
        yield Vector(table=None, kinds={"value": kind}, row={"value": value}, hash=int(found["hash"]))
    for found in _ROW.finditer(text):
        struct = parse_type(f"struct<{found['columns'].replace(', ', ',').replace(' ', ':')}>")
        assert not isinstance(struct, str)
        kinds = {one["name"]: one["type"] for one in struct["fields"]}
        yield Vector(
            table=found["table"], kinds=kinds, row=_plain(json.loads(found["value"]), struct), hash=int(found["hash"])
        )


def _plain(value: Any, kind: Node) -> Any:  # noqa: ANN401, PLR0911 - any value, one return per type
    if value is None:
        return None
    if not isinstance(kind, str):
        match kind["type"]:
            case "struct":
                return {one["name"]: _plain(value[one["name"]], one["type"]) for one in kind["fields"]}
            case "array":
                return [_plain(item, kind["elementType"]) for item in value]
            case _:
                return [(_plain(key, kind["keyType"]), _plain(item, kind["valueType"])) for key, item in value]
    if kind.startswith("decimal"):
        return Decimal(value)
    if kind == "binary":
        return bytes.fromhex(value)
    return float(value) if kind in {"float", "double"} else value
