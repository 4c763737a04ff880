"""`order: appended`: the order of files by the commits that added them, and when it is lost. No Spark."""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.append_order import CommitOrder
from jobs.lake.delta_log import DeltaPlace
from jobs.lake.direct_reading import direct_reading
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.delta_logs import commits_of, track_rows
from tests.support.fuzzing import seeds
from windowlib.errors import LogError

DAY_MS = 86_400_000
DAYS = tuple(Slice(slice_id=f"1970-01-0{n + 1}", start_ms=n * DAY_MS, end_ms=(n + 1) * DAY_MS) for n in range(3))
BY_ADDS = CommitOrder(by_adds=True)


def _append(log: Path, days: Sequence[int], *, mark: object) -> None:
    rows = [{"id": f"{mark}/{n}", "day": date(1970, 1, day)} for day in days for n in range(2)]
    write_deltalake(str(log), pa.Table.from_pylist(rows), mode="append", partition_by=["day"])


def _pin(log: Path, slices: Sequence[Slice] = DAYS, *, order: CommitOrder = BY_ADDS) -> PinnedLog:
    return pin_log(DeltaPlace(uri=str(log)), by=SliceGrammar(by="day"), slices=slices, order=order)


def _ids(log: PinnedLog) -> list[str]:
    return [one for file in log.in_log_order() for one in pq.read_table(log.place(file))["id"].to_pylist()]


def _adds(log: Path) -> list[str]:
    """Return the paths of all adds, in the order of the commits and of the adds in each."""
    entries = [json.loads(line) for commit in commits_of(log) for line in commit.read_text().splitlines()]
    return [entry["add"]["path"] for entry in entries if "add" in entry]


@pytest.mark.slow
def test_files_are_in_the_order_of_commits_and_of_the_adds_in_each(tmp_path: Path) -> None:
    for seed in seeds(12):
        log = _random_log(Random(seed), tmp_path / str(seed))
        expected = [(path.partition("/")[0], path) for path in _adds(log)]
        pinned = _pin(log)
        found = [(file.path.partition("/")[0], file.path) for file in pinned.in_log_order()]
        assert found == sorted(expected, key=lambda one: one[0]), seed  # by slice; the sort is stable
        assert direct_reading(pinned).why_spark is None, seed


def _random_log(chance: Random, log: Path) -> Path:
    """Write commits of several files, which the writer lists in any order, and checkpoints."""
    for number in range(chance.randrange(1, 14)):
        _append(log, [chance.randrange(1, 4) for _ in range(chance.randrange(1, 4))], mark=number)
        if chance.random() < 0.3:
            newest = commits_of(log)[-1]
            lines = newest.read_text().splitlines()
            chance.shuffle(lines)
            newest.write_text("\n".join(lines))
        if chance.random() < 0.2:
            DeltaTable(str(log)).create_checkpoint()
    return log


def test_it_is_the_order_of_row_ids_where_the_log_has_both(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number, days in enumerate([(1, 2), (2, 3), (1,)]):
        _append(log, days, mark=number)
    track_rows(log)
    assert _ids(_pin(log)) == _ids(_pin(log, order=CommitOrder()))


def test_a_log_without_row_tracking_is_told_of_this_order(tmp_path: Path) -> None:
    _append(tmp_path / "log", [1], mark=0)
    with pytest.raises(LogError, match="write `order: appended`"):
        _pin(tmp_path / "log", order=CommitOrder())


def test_a_rewritten_file_is_refused_with_its_commit_and_other_slices_are_not(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number, days in enumerate([(1, 2), (1,), (3,)]):
        _append(log, days, mark=number)
    DeltaTable(str(log)).optimize.compact(partition_filters=[("day", "=", "1970-01-01")])
    compacted = next(path for path in _adds(log)[-1:])
    with pytest.raises(LogError) as refused:
        _pin(log)
    assert "records of slice 1970-01-01" in str(refused.value)
    assert f"commit 3 (OPTIMIZE) wrote file {compacted}" in str(refused.value)
    assert _ids(_pin(log, DAYS[1:])) == ["0/0", "0/1", "2/0", "2/1"]


def test_a_commit_that_is_gone_is_told_with_its_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in range(3):
        _append(log, [number + 1], mark=number)
    DeltaTable(str(log)).create_checkpoint()
    first = _adds(log)[0]
    commits_of(log)[0].unlink()
    with pytest.raises(LogError, match=f"log retention has removed the commit that added file {first}"):
        _pin(log)
    assert _ids(_pin(log, DAYS[1:])) == ["1/0", "1/1", "2/0", "2/1"]


def test_a_restored_file_keeps_the_place_of_its_append(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _append(log, [1], mark=0)
    _append(log, [1], mark=1)
    table = DeltaTable(str(log))
    table.optimize.compact()
    DeltaTable(str(log)).restore(1)
    assert _ids(_pin(log)) == ["0/0", "0/1", "1/0", "1/1"]
