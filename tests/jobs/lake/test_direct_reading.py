"""Row ids of data files from commits and checkpoints, and the logs that only Spark reads. No Spark."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.append_order import CommitOrder
from jobs.lake.commit_history import FEW_COMMITS
from jobs.lake.delta_log import DeltaPlace
from jobs.lake.direct_reading import DirectReading, direct_reading
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.known_log import KnownLog
from jobs.lake.log_files import list_log_files
from jobs.lake.row_tracking import RowPlace, row_places
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.delta_logs import commits_of, map_columns, track_rows
from tests.support.fuzzing import seeds
from windowlib.errors import LogError

DAY_MS = 86_400_000
DAYS = tuple(Slice(slice_id=f"1970-01-0{n + 1}", start_ms=n * DAY_MS, end_ms=(n + 1) * DAY_MS) for n in range(3))
ADDS = pa.list_(pa.struct({"path": pa.string(), "baseRowId": pa.int64(), "defaultRowCommitVersion": pa.int64()}))


def _log(tmp_path: Path, commits: Sequence[Sequence[int]] = ((1, 2), (2, 1), (3,)), **more: object) -> Path:
    """Write a log with row tracking; a commit has four records of each of its days."""
    path = tmp_path / "log"
    for number, days in enumerate(commits):
        rows = [{"id": f"{day}/{number}/{n}", "day": date(1970, 1, day), **more} for day in days for n in range(4)]
        write_deltalake(str(path), pa.Table.from_pylist(rows), mode="append", partition_by=["day"])
    track_rows(path)
    return path


def _pin(log: Path) -> PinnedLog:
    return pin_log(DeltaPlace(uri=str(log)), by=SliceGrammar(by="day"), slices=DAYS, order=CommitOrder(), few_commits=0)


def test_the_files_of_a_log_are_read_in_the_order_of_slices_and_commits(tmp_path: Path) -> None:
    log = _pin(_log(tmp_path, nested={"list": [{"at": 1}], "text": "x"}))
    assert direct_reading(log) == DirectReading(why_spark=None)
    read = [pq.ParquetFile(log.place(file)).read(["id"])["id"].to_pylist() for file in log.in_log_order()]
    ids = [one for rows in read for one in rows]
    assert ids == [f"{day}/{number}/{n}" for day, number in ((1, 0), (1, 1), (2, 0), (2, 1), (3, 2)) for n in range(4)]
    assert {file.partition["day"] for file in log.files} == {"1970-01-01", "1970-01-02", "1970-01-03"}


def test_without_row_ids_a_pin_reads_none(tmp_path: Path) -> None:
    log = pin_log(DeltaPlace(uri=str(_log(tmp_path))), by=SliceGrammar(by="day"), slices=DAYS)
    assert {file.row_ids for file in log.files} == {None}
    assert direct_reading(log).why_spark is None


def test_a_log_with_mapped_columns_is_read_directly(tmp_path: Path) -> None:
    path = _log(tmp_path)
    map_columns(path, "name")
    for commit in commits_of(path):
        mapped = commit.read_text().replace('"delta.columnMapping.mode":"name"', '"delta.columnMapping.mode":"name",')
        commit.write_text(mapped.replace('"name",}', '"name","delta.enableRowTracking":"true"}'))
    assert direct_reading(_pin(path)).why_spark is None


def _replace_first(log: PinnedLog, rows: pa.Table, **named: Any) -> PinnedLog:  # noqa: ANN401 - for pyarrow
    """Write other rows into the first file of a log, and correct its size in the commits."""
    file = Path(log.place(log.files[0]))
    pq.write_table(rows, file, **named)
    for commit in commits_of(Path(log.uri)):
        entries = [json.loads(line) for line in commit.read_text().splitlines()]
        for entry in entries:
            if entry.get("add", {}).get("path") == log.files[0].path:
                entry["add"]["size"] = file.stat().st_size
        commit.write_text("\n".join(map(json.dumps, entries)))
    return _pin(Path(log.uri))


@pytest.mark.parametrize(
    ("column", "named", "reason"),
    [
        ({"at": pa.array(["1"])}, {}, "column 'at' is string in a file, and bigint in the log"),
        ({"at": pa.array([1], pa.uint32())}, {}, "column 'at' is uint32 in a file"),
        ({"time": pa.array([1], pa.timestamp("ns"))}, {"version": "2.6"}, "column 'time' is timestamp.ns. in a file"),
        ({"at": pa.array([1], pa.int32())}, {}, None),
        ({"AT": pa.array([1])}, {}, None),
        ({"time": pa.array([1], pa.timestamp("us"))}, {"use_deprecated_int96_timestamps": True}, None),
        ({}, {}, None),
        ({"at": pa.array([1])}, {}, None),
    ],
)  # fmt: skip
def test_a_file_with_types_that_a_cast_may_change_is_read_by_spark(
    tmp_path: Path, column: Mapping[str, pa.Array], named: Mapping[str, Any], reason: str | None
) -> None:
    log = _pin(_log(tmp_path, at=1, time=datetime(1970, 1, 1, tzinfo=UTC)))
    found = direct_reading(_replace_first(log, pa.table({"id": ["x"], **column}), **named)).why_spark
    assert found is None if reason is None else re.search(reason, str(found)), found


def test_a_file_with_ids_of_rows_in_a_column_is_compacted(tmp_path: Path) -> None:
    log = _pin(_log(tmp_path))
    found = direct_reading(_replace_first(log, pa.table({"id": ["x"], "_row-id-col-1": pa.array([1])})))
    assert found == DirectReading(why_spark=None, compacted=frozenset([log.files[0].path]))


def test_dates_of_the_julian_calendar_are_read_by_spark(tmp_path: Path) -> None:
    rows = pa.table({"id": ["x"]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    assert "Julian calendar" in str(direct_reading(_replace_first(_pin(_log(tmp_path)), rows)).why_spark)


def test_the_ids_of_files_are_the_same_from_commits_and_from_any_kind_of_checkpoint(tmp_path: Path) -> None:
    for seed in seeds(40):
        chance = random.Random(seed)
        root = tmp_path / str(seed)
        (root / "_delta_log" / "_sidecars").mkdir(parents=True)
        states = _random_commits(chance, root / "_delta_log")
        newest = -1
        for _ in range(chance.randrange(3)):
            version = chance.randrange(len(states))
            is_complete = _write_checkpoint(chance, root / "_delta_log", version, states[version])
            newest = max(newest, version if is_complete else -1)
        for version in range(chance.randrange(newest + 2)):
            (root / "_delta_log" / f"{version:020}.json").unlink()
        files = list_log_files(str(root), pafs.LocalFileSystem(), str(root), version=len(states) - 1)
        assert (files.checkpoint.version if files.checkpoint else -1) == newest
        found = row_places(files)
        expected = {f"{root}/{path}".replace("%20", " "): place for path, place in states[-1].items()}
        assert {place: found[place] for place in expected} == expected


@pytest.mark.slow
def test_commits_that_a_checkpoint_covers_are_not_read_if_it_proves_that_they_appended(tmp_path: Path) -> None:
    for seed in seeds(25):
        chance = random.Random(seed)
        root = tmp_path / str(seed)
        root.mkdir()
        commits = [chance.sample((1, 2, 3), chance.randrange(1, 4)) for _ in range(chance.randrange(1, 5))]
        changes = (
            {chance.randrange(len(commits)): chance.choice(["delete", "restore"])} if chance.random() < 0.4 else {}
        )
        log = _changed_log(root, commits, changes)
        table = DeltaTable(str(log))
        newest, table_id = table.version(), str(table.metadata().id)
        version = chance.randrange(newest + 1)
        known = KnownLog(sound={table_id: chance.randrange(newest + 1)}) if chance.random() < 0.3 else None
        expected = _coordinates(log, known, few=0)
        DeltaTable(str(log), version=version).create_checkpoint()
        for few in (0, 2, FEW_COMMITS):
            assert _coordinates(log, known, few=few) == expected, f"seed {seed}"
        if not changes and known is None:
            assert _pin(log).history.read == newest - version, f"seed {seed}"
            for commit in commits_of(log)[1:version]:
                commit.write_text("damaged")  # it is not even looked at
            assert _coordinates(log, known, few=0) == expected, f"seed {seed}"


def _changed_log(root: Path, commits: Sequence[Sequence[int]], changes: Mapping[int, str]) -> Path:
    """Write a log in which some commits are followed by a DELETE of a day, or by a DELETE and a RESTORE."""
    path = root / "log"
    for number, days in enumerate(commits):
        rows = [{"id": f"{day}/{number}/{n}", "day": date(1970, 1, day)} for day in days for n in range(4)]
        write_deltalake(str(path), pa.Table.from_pylist(rows), mode="append", partition_by=["day"])
        if number in changes:
            table = DeltaTable(str(path))
            table.delete(f"day = '1970-01-0{days[0]}'")
            if changes[number] == "restore":
                table.restore(table.version() - 1)
    track_rows(path)
    return path


def _coordinates(log: Path, known: KnownLog | None, *, few: int) -> tuple[object, ...]:
    """Return what a pin finds out of the history; the message if it refuses the log."""
    day: Any = {"by": SliceGrammar(by="day"), "slices": DAYS}
    try:
        found = pin_log(DeltaPlace(uri=str(log)), **day, order=CommitOrder(), known=known, few_commits=few)
    except LogError as error:
        return "refused", str(error)
    return found.history.sound, *(found.coordinates(one.slice_id) for one in DAYS)


def _random_commits(chance: random.Random, directory: Path) -> list[dict[str, RowPlace]]:
    """Write random commits; return the files of each version. A file can come back, as after a RESTORE."""
    live: dict[str, RowPlace] = {}
    states = []
    for version in range(chance.randrange(1, 9)):
        lines: list[dict[str, object]] = [{"commitInfo": {"operation": "?"}}]
        for _ in range(chance.randrange(4)):
            path = f"day=1/a%20{chance.randrange(6)}.parquet"
            if path in live and chance.random() < 0.5:
                del live[path]
                lines.append({"remove": {"path": path}})
            else:
                live[path] = RowPlace(chance.randrange(1_000), version)
                lines.append({"add": _add(path, live[path])})
        (directory / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))
        states.append(dict(live))
    return states


def _add(path: str, place: RowPlace) -> dict[str, object]:
    return {"path": path, "baseRowId": place.base_row_id, "defaultRowCommitVersion": place.commit_version}


def _write_checkpoint(chance: random.Random, directory: Path, version: int, live: Mapping[str, RowPlace]) -> bool:
    """Write a checkpoint of a random kind; return whether it is complete."""
    adds = [_add(path, place) for path, place in live.items()]
    kind = chance.choice(["classic", "parts", "missing part", "v2 json", "v2 parquet"])
    stem = f"{version:020}.checkpoint"
    if kind == "classic":
        _write_rows(directory / f"{stem}.parquet", add=[None, *adds])
    elif kind in {"parts", "missing part"}:
        halves = (adds[: len(adds) // 2], adds[len(adds) // 2 :])
        for number, half in enumerate(halves if kind == "parts" else halves[:1], start=1):
            _write_rows(directory / f"{stem}.{number:010}.0000000002.parquet", add=half)
    else:
        _write_rows(directory / "_sidecars" / f"{version}.parquet", add=adds)
        sidecar = {"path": f"{version}.parquet", "sizeInBytes": 1}
        if kind == "v2 json":
            (directory / f"{stem}.1-2-a.json").write_text(json.dumps({"sidecar": sidecar}))
        else:
            _write_rows(directory / f"{stem}.1-2-b.parquet", sidecar=[None, sidecar])
    return kind != "missing part"


def _write_rows(path: Path, **columns: Sequence[Mapping[str, object] | None]) -> None:
    kinds = {"add": ADDS.value_type, "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64()})}
    pq.write_table(pa.table({name: pa.array(list(rows), kinds[name]) for name, rows in columns.items()}), path)
