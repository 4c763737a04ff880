"""Flips single bits of Parquet files."""

from pathlib import Path
from random import Random

import pyarrow.parquet as pq


def flip(path: Path, bit: int) -> bytes:
    """Flip a bit of a file; return the content before."""
    good = path.read_bytes()
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bad)
    return good


def bits_in_pages(path: Path, random: Random, flips: int) -> list[int]:
    """Draw bits of the pages of a Parquet file. The 8 bytes at its end have the size of the footer."""
    data = path.read_bytes()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return [random.randrange(4 * 8, 8 * end) for _ in range(flips)]


def last_bits(path: Path) -> dict[str, int]:
    """Return the last bit of each column of a Parquet file with one row group: it is in the values of a page."""
    group = pq.read_metadata(path).row_group(0)
    bits = {}
    for column in (group.column(index) for index in range(group.num_columns)):
        start = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
        bits[column.path_in_schema] = 8 * (start + column.total_compressed_size) - 1
    return bits
