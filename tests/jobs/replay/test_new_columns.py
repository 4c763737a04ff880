"""A column that is added to the event log, while windows are open whose records were read without it."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.pipeline.files import parse_pipeline
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.readers import published_table
from jobs.replay.pinned import Pinned
from tests.support.day_chains import DAY_MS, FIRST_MS, HOUR_MS, SCHEMA, run
from tests.support.replays import NOW_MS

LOG = (
    "pipeline: late\nlog:\n  table: log\n  over: all\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
    "  order: [seq]\n"
)
FUNCTION = """
def shown(key, window, records):
    return [str([sorted(record.items(), key=str) for record in records])]
"""
ATLAS = (
    "semantics: mongodb\nwindows:\n  atlas:\n    $tumblingWindow:\n      interval: {size: 2, unit: day}\n"
    "      pipeline: [{$project: {_id: 0, v: 1, new: 1}}]\n"
)
PROCESS = (
    "watermark: {kind: ascending}\nwindows: {tumbling: {size: 2d}}\n"
    "process: {function: 'shown:shown', output: {document: string}}\n"
)


def append(root: Path, day: int, *, is_new: bool) -> None:
    row = {"k": 1, "at": FIRST_MS + day * DAY_MS + HOUR_MS, "v": day, "seq": day, "day": FIRST_MS // DAY_MS + day}
    schema = SCHEMA.append(pa.field("new", pa.int64())) if is_new else SCHEMA
    table = pa.Table.from_pylist([row | ({"new": 7} if is_new else {})], schema)
    write_deltalake(str(root / "log"), table, mode="append", partition_by=["day"], schema_mode="merge")


def context(root: Path, text: str) -> RequestContext:
    pipeline = parse_pipeline(text, source=str(root / "late.yaml"))
    return open_request_context(pipeline, Lake(root=str(root)), now_ms=lambda: NOW_MS)


@pytest.mark.parametrize("windows", [ATLAS, PROCESS], ids=["atlas", "process"])
def test_records_of_open_windows_have_null_in_a_column_that_the_log_has_got_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: str
) -> None:
    """The rows are those of one run over all days, with the column."""
    monkeypatch.setattr(Pinned, "threads", lambda _self, *, cores: min(cores, 1))  # users' functions run here, too
    shown = []
    for name in ("slice by slice", "together"):
        root = tmp_path / name
        root.mkdir()
        (root / "shown.py").write_text(FUNCTION)
        for day in range(3):
            append(root, day, is_new=False)
            if name == "slice by slice":
                run(context(root, LOG + windows), day, day + 1)
        for day in range(3, 6):
            append(root, day, is_new=True)
        assert run(context(root, LOG + windows), 3 if name == "slice by slice" else 0, 6).is_published
        rows = published_table(str(root), "late").select(["window_start", "document"]).to_pylist()
        opened = datetime.fromtimestamp((FIRST_MS + 2 * DAY_MS) / 1_000, tz=UTC)  # those before were complete
        shown.append(sorted(row["document"] for row in rows if row["window_start"] >= opened))
    assert shown[0] == shown[1]
    assert any("None" in document or "null" in document for document in shown[0])
