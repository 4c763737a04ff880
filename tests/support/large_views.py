"""Two views with millions of windows, made by column, and their comparison. numpy computes the expected result."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from jobs.comparing.compare import compare
from jobs.comparing.views import Side, Sides
from jobs.lake.lake import Lake
from tests.support.random_views import NAME, Views
from windowlib.columnar.row_identity import RowIdentity
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

HOUR_US = 3_600_000_000
TABLE = tables.window_outputs({"key": "string"}, {"total": "bigint", "mean": "double"})
BLOCK = 250_000


def compared(root: Path, *, windows: int, slices: int) -> dict[str, Any]:
    """Write two views, and return the counts that `compare` found and those that are expected.

    Each window is in a slice. After: every 10th window has another total, every 1,000th is gone, and there are `slices`
    new ones.
    """
    views = Views(root, {"total": "bigint", "mean": "double"})
    spec = views.spec(["key"], ["total", "mean"])
    sides: list[dict[str, Any]] = [{}, {}]
    for day in range(slices):
        numbers = np.arange(day, windows, slices)
        for at, side in enumerate(sides):
            run_id = views.run(day, spec)
            run = views.runs[run_id]
            digest = IdSum()
            for block in _blocks(numbers, day=day, windows=windows, is_after=at == 1):
                digest.merge(_write(root, run.result.slice.slice_id, run_id, block))
            run.result.digests[tables.WINDOW_OUTPUTS] = digest.digest()  # type: ignore[index]  # a dict in this test
            side[run.result.slice.slice_id] = run
    both = Sides(view=views.view(), before=Side(name="before", runs=sides[0]), after=Side(name="after", runs=sides[1]))
    found = compare(Lake(root=str(root)), NAME, both).tables[0]
    total = next(one for one in found.columns if one.column == "total")
    gone = np.arange(0, windows, 1_000)
    changed = np.setdiff1d(np.arange(0, windows, 10), gone)
    by = changed % 97 + 1
    return {
        "found": [
            found.only_before, found.only_after, found.changed, found.equal, total.mismatch, total.largest,
            total.median,
        ],
        "expected": [
            len(gone), slices, len(changed), windows - len(gone) - len(changed), len(changed), int(by.max()),
            float(np.median(by)),
        ],
    }  # fmt: skip


def _blocks(numbers: "np.ndarray[Any, Any]", *, day: int, windows: int, is_after: bool) -> Iterator[pa.Table]:
    if is_after:
        numbers = np.append(numbers[numbers % 1_000 != 0], windows + day)
    for start in range(0, len(numbers), BLOCK):
        block = numbers[start : start + BLOCK]
        total = block * 3 + np.where((block % 10 == 0) & is_after, block % 97 + 1, 0)
        count = len(block)
        begin = pa.array(block // 1_000 * HOUR_US).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
        end = pa.array(block // 1_000 * HOUR_US + HOUR_US).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
        yield pa.table(
            {
                "key": pa.array(np.char.add("key ", (block % 1_000).astype(str))),
                "window_start": begin,
                "window_end": end,
                "pane_index": pa.array(np.zeros(count, np.int32)),
                "timing": pa.array(["ON_TIME"] * count),
                "is_first": pa.array(np.ones(count, np.bool_)),
                "is_last": pa.array(np.ones(count, np.bool_)),
                "mode": pa.array(["accumulating"] * count),
                "kind": pa.array(["result"] * count),
                "record_count": pa.array(np.ones(count, np.int64)),
                "total": pa.array(total),
                "mean": pa.array(block / 7),
                "nonspeculative_index": pa.array(np.zeros(count, np.int32)),
                "pane_time_ms": pa.nulls(count, pa.int64()),
                "watermark_ms": pa.array(block),
                "fired_rank": pa.array(block),
            }
        )


def _write(root: Path, slice_id: str, run_id: str, rows: pa.Table) -> IdSum:
    identified, ids = RowIdentity(TABLE).identified(rows)
    for name, value in {"slice_id": slice_id, "attempt_id": run_id, "run_id": run_id}.items():
        identified = identified.append_column(name, pa.array([value] * rows.num_rows))
    write_deltalake(
        root / NAME / tables.WINDOW_OUTPUTS, identified, mode="append", partition_by=["slice_id", "attempt_id"]
    )
    return ids
