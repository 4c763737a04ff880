"""The regions of stored files: which bytes are what, so that a sweep can flip bytes of every kind."""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

MAGIC_BYTES: Final = 4
TAIL_BYTES: Final = 8
"""The end of a Parquet file: four bytes with the length of the footer, and the magic."""
_STRUCT, _LIST, _SET, _BINARY, _DOUBLE, _BYTE = 12, 9, 10, 8, 7, 3
_STATISTICS: Final = (4, 1, 3, 12)
"""FileMetaData.row_groups, RowGroup.columns, ColumnChunk.meta_data, ColumnMetaData.statistics."""
_COLUMNS: Final = (4, 1)
_ACTION_PARTS: Final = ("path", "partitionValues", "size", "stats")
"""The parts of an `add` action that are regions of their own."""


class Region(NamedTuple):
    """Bytes of one kind: the places in a file from `start` up to `stop`."""

    kind: str
    start: int
    stop: int


def regions_of(path: Path) -> list[Region]:
    """Return the regions of a file. Together they are all its bytes, and no byte is in two of them."""
    data = path.read_bytes()
    is_log = "_delta_log" in path.parts
    if path.suffix == ".parquet":
        name = "checkpoint of Delta: " if is_log else ""
        return [region._replace(kind=name + region.kind) for region in _of_parquet(path, data)]
    if is_log and path.suffix == ".json":
        checkpoints = (checkpoint.name[:20] for checkpoint in path.parent.glob("*.checkpoint.parquet"))
        if path.stem <= max(checkpoints, default=""):
            return [Region("Delta log: before its checkpoint", 0, len(data))]
        return [*_of_commit(data)]
    return [Region(_kind(path), 0, len(data))]


def _kind(path: Path) -> str:
    if path.suffix == ".crc":
        return "checksum file of the Delta log" if "_delta_log" in path.parts else "checksum file of a data file"
    kinds = {"_last_checkpoint": "_last_checkpoint", "_index.json": "index"}
    return kinds.get(path.name) or {"_head": "head", "_snapshot": "snapshot"}[path.parent.name]


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _of_parquet(path: Path, data: bytes) -> list[Region]:
    size = len(data)
    [length] = struct.unpack("<I", data[-TAIL_BYTES:-MAGIC_BYTES])
    footer = size - TAIL_BYTES - length
    regions = [
        Region("magic", 0, MAGIC_BYTES),
        *_of_pages(path, data),
        *_of_footer(data, footer),
        Region("footer length", size - TAIL_BYTES, size - MAGIC_BYTES),
        Region("magic", size - MAGIC_BYTES, size),
    ]
    return [*_filled(regions, "page index")]


def _of_pages(path: Path, data: bytes) -> Iterator[Region]:
    """Yield the headers and contents of the pages of all column chunks."""
    metadata = pq.read_metadata(path)
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    for column in (group.column(number) for group in groups for number in range(group.num_columns)):
        start = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
        end = start + column.total_compressed_size
        while start < end:
            stop, numbers = _page_header(data, start)
            yield Region("page header", start, stop)
            yield Region("dictionary page" if numbers[1] == 2 else "page data", stop, stop + numbers[3])
            start = stop + numbers[3]


def _page_header(data: bytes, start: int) -> tuple[int, Mapping[int, int]]:
    """Return where a page header ends, and the integers of PageHeader: 1 is the type, 3 the compressed size."""
    numbers: dict[int, int] = {}
    stop = start
    for field in _fields(data, start, ()):
        if len(field.path) == 1 and field.number is not None:
            numbers[field.path[0]] = field.number
        stop = max(stop, field.stop)
    return stop + 1, numbers  # a struct ends with a byte 0


def _of_footer(data: bytes, start: int) -> Iterator[Region]:
    """Yield the metadata of column chunks and their statistics. What is between them is the rest of the footer."""
    end = len(data) - TAIL_BYTES
    inner: list[Region] = []
    for field in _fields(data, start, ()):
        if field.path == _STATISTICS:
            inner.append(Region("statistics in the footer", field.start, field.stop))
        elif field.path == _COLUMNS and field.is_item:
            inner.append(Region("column chunk metadata", field.start, field.stop))
    place = start
    statistics = [region for region in inner if region.kind.startswith("statistics")]
    for chunk in (region for region in inner if not region.kind.startswith("statistics")):
        yield from _between("footer", place, chunk.start)
        place = chunk.start
        for own in (region for region in statistics if chunk.start <= region.start < chunk.stop):
            yield from _between(chunk.kind, place, own.start)
            yield own
            place = own.stop
        yield from _between(chunk.kind, place, chunk.stop)
        place = chunk.stop
    yield from _between("footer", place, end)


def _between(kind: str, start: int, stop: int) -> Iterator[Region]:
    if start < stop:
        yield Region(kind, start, stop)


def _filled(regions: list[Region], kind: str) -> Iterator[Region]:
    """Yield regions in their order, and between them the bytes that none of them has."""
    place = 0
    for region in sorted(regions, key=lambda region: region.start):
        yield from _between(kind, place, region.start)
        yield region
        place = region.stop


class _Field(NamedTuple):
    """A field in Thrift's compact protocol: the numbers of the fields around it and its own, and its bytes.

    An item of a list has the path of the list.
    """

    path: tuple[int, ...]
    start: int
    stop: int
    number: int | None = None
    is_item: bool = False


def _fields(data: bytes, place: int, path: tuple[int, ...]) -> Iterator[_Field]:
    """Yield the fields of a struct, inner ones before outer ones. The last byte of the struct is after the last one."""
    number = 0
    while data[place] != 0:
        start, kind, step = place, data[place] & 15, data[place] >> 4
        place += 1
        if step:
            number += step
        else:
            number, place = _zigzag(data, place)
        value: int | None = None
        for inner in _value(data, place, kind, (*path, number)):
            if isinstance(inner, _Field):
                yield inner
            else:
                place, value = inner
        yield _Field((*path, number), start, place, value)


def _value(data: bytes, place: int, kind: int, path: tuple[int, ...]) -> "Iterator[_Field | tuple[int, int | None]]":
    """Yield the fields inside a value, and at the end the place after the value with its number."""
    if kind in {1, 2}:  # the booleans are in the kind of the field
        yield place, None
    elif kind == _BYTE:
        yield place + 1, data[place]
    elif kind == _DOUBLE:
        yield place + 8, None
    elif kind == _BINARY:
        length, place = _varint(data, place)
        yield place + length, None
    elif kind in {_LIST, _SET}:
        yield from _items(data, place, path)
    elif kind == _STRUCT:
        stop = place
        for field in _fields(data, place, path):
            yield field
            stop = max(stop, field.stop)
        yield stop + 1, None
    else:
        number, place = _zigzag(data, place)
        yield place, number


def _items(data: bytes, place: int, path: tuple[int, ...]) -> "Iterator[_Field | tuple[int, int | None]]":
    count, kind = data[place] >> 4, data[place] & 15
    place += 1
    if count == 15:
        count, place = _varint(data, place)
    for _ in range(count):
        start = place
        if kind in {1, 2}:
            place += 1
            continue
        for inner in _value(data, place, kind, path):
            if isinstance(inner, _Field):
                yield inner
            else:
                place = inner[0]
        if kind == _STRUCT:
            yield _Field(path, start, place, is_item=True)
    yield place, None


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place


def _zigzag(data: bytes, place: int) -> tuple[int, int]:
    number, place = _varint(data, place)
    return (number >> 1) ^ -(number & 1), place


# --- Commits of a Delta log -------------------------------------------------------------------------------------------


def _of_commit(data: bytes) -> Iterator[Region]:
    """Yield the actions of a commit. The parts of an `add` action are regions of their own."""
    place = 0
    for line in data.splitlines(keepends=True):
        [(name, action)] = json.loads(line).items()
        parts = [*_parts(line, action)] if name == "add" else []
        at = 0
        for start, stop, part in sorted(parts):
            yield from _between(f"Delta log: {name}, rest", place + at, place + start)
            yield Region(f"Delta log: {name}, {part}", place + start, place + stop)
            at = stop
        yield from _between(f"Delta log: {name}{', rest' if parts else ''}", place + at, place + len(line))
        place += len(line)


def _parts(line: bytes, action: Mapping[str, Any]) -> Iterator[tuple[int, int, str]]:
    """Yield where a part of an action begins and ends in a line, with its name."""
    text = line.decode("utf-8")
    assert text.isascii(), "a place in the text is a place in the bytes"
    for part in _ACTION_PARTS:
        if part not in action:
            continue
        start = text.index(f'"{part}":')
        value = start + len(f'"{part}":')
        value += len(text[value:]) - len(text[value:].lstrip())
        _, stop = json.JSONDecoder().raw_decode(text, value)
        yield start, stop, part
