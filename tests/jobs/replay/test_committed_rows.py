"""Sums of committed ids are alike whether the rows of each attempt are summed up alone, or all are grouped by slice."""

from pathlib import Path

import pyarrow as pa

from jobs.lake.file_commits import commit_files
from jobs.lake.store import ensure_table
from jobs.replay.committed_rows import FEW_ROWS, CommittedRows, ids_query
from jobs.replay.stages.parquet_writer import SliceWriter
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

TABLE = tables.window_outputs({"k": "bigint"}, {"n": "bigint"})


def test_sums_of_each_attempt_are_those_of_all_attempts_by_slice(tmp_path: Path) -> None:
    ensure_table(str(tmp_path), TABLE)
    kinds = {name: arrow_type(node) for name, node in TABLE.emitted_columns().items()}
    expected: dict[str, IdSum] = {}
    attempts = [(f"2024-01-0{day}", str(day) * 32) for day in (1, 2, 3)]
    for (slice_id, attempt_id), count in zip(attempts, (FEW_ROWS + 1, 7, 0), strict=True):
        columns = {"slice_id": slice_id, "attempt_id": attempt_id, "run_id": "b" * 32}
        for part in (range(count), range(count, 2 * count)) if count else ():
            ids = pa.array([*part], pa.int64())
            rows = pa.table({**{name: pa.nulls(len(ids), kind) for name, kind in kinds.items()}, "row_id": ids})
            files = SliceWriter(table=TABLE, root=str(tmp_path), columns=columns, rows_per_file=10 * count)
            files.write(rows)
            files.close()
            commit_files(str(tmp_path), [written.file for written in files.written])
            expected.setdefault(slice_id, IdSum()).merge(IdSum.of_array(ids.to_numpy()))
    for rows_per_task in (FEW_ROWS // 5, FEW_ROWS, 10 * FEW_ROWS):
        committed = CommittedRows(
            table_uri=lambda _name: str(tmp_path),
            own=attempts,
            counts={TABLE.name: 2 * FEW_ROWS + 16},
            kept_rows=0,
            rows_per_task=rows_per_task,
        )
        assert committed.by_slice(ids_query(TABLE.name, "row_id")) == expected, rows_per_task
