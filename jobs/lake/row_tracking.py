"""Reads where the rows of each data file are in the order of commits, from the log of a table with row tracking.

deltalake shows neither `baseRowId` nor `defaultRowCommitVersion`. Source: the Delta protocol, section "Row Tracking".
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from jobs.lake.delta_log import log_errors, place_of
from jobs.lake.log_files import LogFiles

if TYPE_CHECKING:
    import pyarrow as pa

ROW_TRACKING = "delta.enableRowTracking"
ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_COLUMNS = ("add.path", "add.baseRowId", "add.defaultRowCommitVersion", "sidecar.path")


class RowPlace(NamedTuple):
    """Row i of a file, from 0, has the row id `base_row_id + i` and the row commit version `commit_version`.

    This is true only for files without the hidden columns that OPTIMIZE writes.
    """

    base_row_id: int
    commit_version: int


def row_places(files: LogFiles) -> dict[str, RowPlace]:
    """Return place in the file system -> row place, for every data file of the version that has one.

    Reads three columns of the newest checkpoint of Delta, and the commits after it. The result can have files that
    the version no longer has.

    Raises:
        LogError: a commit file or a checkpoint is damaged.
    """
    found: dict[str, RowPlace] = {}
    since = 0
    if files.checkpoint is not None:
        since = files.checkpoint.version + 1
        with log_errors(files.uri, "reading its checkpoint"):
            for path in files.checkpoint.paths:
                found.update(_in_checkpoint(files, path))
    for version in sorted(one for one in files.commits if one >= since):
        for entry in files.entries(version):
            if "add" in entry:
                found.update(_placed(files.root, entry["add"]))
    return found


def _in_checkpoint(files: LogFiles, path: str) -> Iterator[tuple[str, RowPlace]]:
    """Yield the places in one file of a checkpoint, and in the sidecar files that it names (version 2)."""
    sidecars: list[str] = []
    if path.endswith(".json"):
        with files.system.open_input_stream(path) as stream:
            for line in stream.read().decode("utf-8").splitlines():
                entry = json.loads(line)
                yield from _placed(files.root, entry.get("add") or {})
                sidecars += [entry["sidecar"]["path"]] if "sidecar" in entry else []
    else:
        rows = _read(files, path)
        yield from _in_rows(files, rows)
        sidecars += _named(rows)
    for name in sidecars:
        place = place_of(f"{files.root}/_delta_log/_sidecars", name)
        yield from _in_rows(files, _read(files, place))


def _read(files: LogFiles, path: str) -> "pa.Table":
    import pyarrow.parquet as pq

    with files.system.open_input_file(path) as data:
        return pq.ParquetFile(data).read(columns=list(_COLUMNS))  # columns that the file does not have are left out


def _named(rows: "pa.Table") -> list[str]:
    """Return the sidecar files that the rows of a checkpoint name."""
    if "sidecar" not in rows.column_names:
        return []
    return [one["path"] for one in rows["sidecar"].to_pylist() if one is not None and one["path"] is not None]


def _in_rows(files: LogFiles, rows: "pa.Table") -> Iterator[tuple[str, RowPlace]]:
    if "add" in rows.column_names:
        for one in rows["add"].to_pylist():
            yield from _placed(files.root, one or {})


def _placed(root: str, add: Mapping[str, object]) -> Iterator[tuple[str, RowPlace]]:
    """Yield the place of a file, if its `add` has one; the path is decoded, so that equal files have equal keys."""
    path, base, version = add.get("path"), add.get("baseRowId"), add.get("defaultRowCommitVersion")
    if isinstance(path, str) and isinstance(base, int) and isinstance(version, int):
        yield place_of(root, path), RowPlace(base, version)
