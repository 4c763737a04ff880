"""Small row-tracked logs without Spark, whose files are protected as those of different writers."""

import json
import zlib
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake

from tests.support.delta_logs import commits_of, track_rows

Cover = Literal["checksum files", "page checksums", "nothing"]
"""As Spark writes to a disk, as Spark writes to an object store, and as deltalake writes."""
COVERS: Final[tuple[Cover, ...]] = ("checksum files", "page checksums", "nothing")
FIRST_DAY: Final = date(2026, 1, 5)
_PIECE: Final = 512
_DAY_MS: Final = 86_400_000

PIPELINE: Final = """
pipeline: covered
log:
  table: log
  key: [k]
  event_time: {column: at, unit: ms}
  slice: {by: day}
  record_id: id
watermark: {kind: bounded, out_of_orderness: 6h}
windows: {tumbling: {size: 12h}}
aggregates: {n: {count: {}}, total: {sum: v}, notes: {collect_list: note}}
"""


def write_log(table: Path, random: Random, *, cover: Cover, days: int = 2, records: int = 40, commits: int = 2) -> None:
    """Write a log of some days, with so many commits for each. Some records of a day are late or invalid."""
    plain = WriterProperties(compression="UNCOMPRESSED")  # a flip in a compressed page is found more easily
    for number in range(days * commits):
        first = number * records
        rows = [_row(random, number // commits, f"record-{first + place}") for place in range(records)]
        write_deltalake(
            str(table), pa.Table.from_pylist(rows), mode="append", partition_by=["day"], writer_properties=plain
        )
    if cover != "nothing":
        for commit in commits_of(table):
            _add_page_checksums(table, commit)
    track_rows(table)
    if cover == "checksum files":
        _write_checksum_files(table)


def cover_newest(table: Path, cover: Cover) -> None:
    """Protect the newest commit of a table and its data files, which have no protection yet."""
    if cover != "nothing":
        _add_page_checksums(table, commits_of(table)[-1])
    if cover == "checksum files":
        _write_checksum_files(table)


def _write_checksum_files(table: Path) -> None:
    """Write the checksum files that files of a table lack."""
    for path in sorted(table.rglob("*")):
        if path.is_file() and path.suffix != ".crc" and not path.with_name(f".{path.name}.crc").exists():
            write_checksum_file(path)


def _row(random: Random, day: int, name: str) -> dict[str, Any]:
    start_ms = ((FIRST_DAY - date(1970, 1, 1)).days + day) * _DAY_MS
    return {
        "k": random.choice((None, "a", "b", "c")),
        "at": start_ms + random.randrange(-_DAY_MS // 2, _DAY_MS),
        "v": random.randrange(-9, 9) / 7,
        "note": random.choice((None, "x", "y" * 40, name)),
        "id": name,
        "day": FIRST_DAY + timedelta(days=day),
    }


def write_checksum_file(path: Path) -> Path:
    """Write the checksum file of Hadoop's local file system beside a file, and return its path."""
    data = path.read_bytes()
    sums = [zlib.crc32(data[start : start + _PIECE]) for start in range(0, len(data), _PIECE)]
    place = path.with_name(f".{path.name}.crc")
    place.write_bytes(b"crc\0" + b"".join(word.to_bytes(4, "big") for word in (_PIECE, *sums)))
    return place


def _add_page_checksums(table: Path, commit: Path) -> None:
    """Write the data files of a commit again, with page checksums."""
    lines = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
    for entry in lines:
        if "add" in entry:
            path = table / entry["add"]["path"]
            pq.write_table(pq.ParquetFile(path).read(), path, compression="NONE", write_page_checksum=True)
            entry["add"]["size"] = path.stat().st_size
    commit.write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines), encoding="utf-8")
