"""A directory of Parquet files in the store has the runs of the same directory on a disk."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from typing_extensions import override

from jobs.lake.log_match import Match
from jobs.storage import file_system
from tests.support.log_shop import LogShop

pytestmark = pytest.mark.s3

FORM = "format: parquet\npartitions: {day: date}"
FIRST_MS = 1_772_323_200_000
DAY_MS = 86_400_000


@dataclass
class StoreShop(LogShop):
    """A lake on the disk whose log is in the store."""

    uri: str = ""

    @property
    @override
    def text(self) -> str:
        return super().text.replace("table: log", f"table: {self.uri}")


def _write(log: Path, day: int, name: str, seqs: range) -> None:
    rows = [{"k": "ann", "at": FIRST_MS + day * DAY_MS + seq, "v": seq, "text": f"t{seq}", "seq": seq} for seq in seqs]
    file = log / f"day={date(2026, 3, 1 + day)}" / f"text=a%3Ab {day}" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows).drop_columns("text"), file)


def test_a_parquet_log_in_the_store_is_that_of_the_disk(lake: str, tmp_path: Path) -> None:
    disk = LogShop(tmp_path / "disk", FORM)
    for day in range(3):
        _write(disk.log, day, "a.parquet", range(day * 10, day * 10 + 5))
    (disk.log / "_SUCCESS").touch()
    shop = StoreShop(tmp_path / "store", FORM, uri=f"{lake}/log")
    system, root = file_system(shop.uri)

    def copy() -> None:
        pafs.copy_files(str(disk.log), root, source_filesystem=pafs.LocalFileSystem(), destination_filesystem=system)

    copy()
    assert disk.run().is_published
    assert shop.run().is_published
    assert shop.published() == disk.published()
    assert shop.changed() == {}
    file = f"{root}/day=2026-03-02/text=a%3Ab 1/b.parquet"
    _write(disk.log, 1, "b.parquet", range(15, 17))
    with system.open_output_stream(file) as stream:
        stream.write((disk.log / file.removeprefix(f"{root}/")).read_bytes())
    assert shop.changed() == {"2026-03-02": Match.CHANGED}
    assert shop.run().is_published
    assert disk.run().is_published
    assert shop.published() == disk.published()
