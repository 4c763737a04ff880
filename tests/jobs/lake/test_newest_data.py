"""When the newest commit that adds data was made: the time by which the schedule takes the last slice as complete."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.lake.commit_history import newest_data_ms
from jobs.lake.lake import Lake
from jobs.lake.log_files import list_log_files
from jobs.pipeline.slices import slices_between
from jobs.planning.log_state import read_log_state
from jobs.storage import file_system
from tests.support.fake_replay import PIPELINE, append_day, day_ms, sales
from windowlib.errors import LogError

DATA: dict[str, Any] = {"add": {"path": "a", "dataChange": True}}
COMPACTED: dict[str, Any] = {"add": {"path": "b", "dataChange": False}}


def newest(root: Path, *commits: list[dict[str, Any]] | None) -> int | None:
    """The answer for a log with these commits; None stands for a commit whose file is gone."""
    place = root / "_delta_log"
    place.mkdir()
    for version, entries in enumerate(commits):
        if entries is not None:
            file = place / f"{version:020}.json"
            file.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
            os.utime(file, (7, 7))
    system, base = file_system(str(root))
    version = len(commits) - 1
    return newest_data_ms(list_log_files(str(root), system, base, version=version), version)


def info(**times: int) -> dict[str, Any]:
    return {"commitInfo": {"operation": "WRITE", **times}}


@pytest.mark.parametrize(
    ("commits", "at_ms"),
    [
        ([[info(timestamp=5), DATA]], 5),
        ([[info(timestamp=5, inCommitTimestamp=6), DATA]], 6),
        ([[DATA]], 7_000),
        ([[info(timestamp=5), DATA], [info(timestamp=9), COMPACTED]], 5),
        ([[info(timestamp=5), DATA], [info(timestamp=9), {"metaData": {}}], [info(timestamp=8), DATA]], 8),
        ([[info(timestamp=5), DATA], None, [info(timestamp=9), COMPACTED]], None),
        ([[info(timestamp=5), {"metaData": {}}]], None),
        ([[info(timestamp=5), DATA], *([[info(timestamp=9), COMPACTED]] * 100)], None),
    ],
    ids=["writer", "in-commit", "file", "compacted", "properties", "gone", "no data", "far back"],
)
def test_the_time_of_the_newest_commit_with_data(
    tmp_path: Path, commits: list[list[dict[str, Any]] | None], at_ms: int | None
) -> None:
    assert newest(tmp_path, *commits) == at_ms


def test_a_damaged_commit_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("{", encoding="utf-8")
    system, base = file_system(str(tmp_path))
    with pytest.raises(LogError, match="damaged or truncated"):
        newest_data_ms(list_log_files(str(tmp_path), system, base, version=0), 0)


def test_the_log_state_has_the_time_only_if_a_slice_depends_on_it(tmp_path: Path) -> None:
    """After a compaction of real data, which is newer than the data."""
    for day in ("2024-01-01", "2024-01-02", "2024-01-02"):
        append_day(tmp_path, day, {"a": 1})
    table = DeltaTable(tmp_path / "event_logs" / "sales")
    written = table.history(1)[0]["timestamp"]
    table.optimize.compact()
    assert table.version() == 3

    def state(to: str, text: str = PIPELINE) -> int | None:
        pipeline = sales(text)
        slices = slices_between(pipeline, day_ms("2024-01-01"), day_ms(to))
        return read_log_state(pipeline, Lake(root=str(tmp_path)), slices).newest_data_ms

    assert state("2024-01-03") == written
    assert state("2024-01-02") is None, "the last slice with records is not among the slices"
    ready = PIPELINE.replace("slice: {by: day}", "slice: {by: day}\n  ready: {min_records: 1}")
    assert state("2024-01-03", ready) is None
