"""Reads the actions of Delta's newest checkpoint: in one file, in parts, or of version 2 with sidecar files.

Source: the Delta protocol, sections "Checkpoints" and "Sidecar Files".
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jobs.lake.damage import log_errors
from jobs.lake.delta_log import place_of
from jobs.lake.log_files import Entry, LogFiles
from jobs.lake.parquet_files import open_parquet

if TYPE_CHECKING:
    import pyarrow as pa

_SIDECAR = "sidecar.path"


def checkpoint_entries(files: LogFiles, columns: Sequence[str]) -> Iterator[Entry]:
    """Yield the actions of the newest checkpoint, as those of a commit; none without a checkpoint.

    Args:
        files: the files of `_delta_log`.
        columns: what to read, such as `add.path`. A Parquet file without a column gives no value for it. A checkpoint
            in JSON gives all values. A map is a list of pairs in Parquet.

    Raises:
        LogError: a file of the checkpoint is damaged.
    """
    if files.checkpoint is None:
        return
    with log_errors(files.uri, "reading its checkpoint"):
        for path in files.checkpoint.paths:
            files.check([path])
            yield from _entries(files, path, (*columns, _SIDECAR))


def _entries(files: LogFiles, path: str, columns: Sequence[str]) -> Iterator[Entry]:
    sidecars = []
    for entry in _json_entries(files, path) if path.endswith(".json") else _rows(files, path, columns):
        if "sidecar" in entry:
            sidecars.append(str(entry["sidecar"]["path"]))
        else:
            yield entry
    places = [place_of(f"{files.root}/_delta_log/_sidecars", name) for name in sidecars]
    files.check(places)
    for place in places:
        yield from _rows(files, place, columns)


def _json_entries(files: LogFiles, path: str) -> Iterator[Entry]:
    with files.system.open_input_stream(path) as stream:
        yield from map(json.loads, stream.read().decode("utf-8").splitlines())


def _rows(files: LogFiles, path: str, columns: Sequence[str]) -> Iterator[Entry]:
    """Yield the actions of a Parquet file that have one of the columns."""
    rows = _read(files, path, columns)
    for name in rows.column_names:
        for action in rows[name].drop_null().to_pylist():
            if any(value is not None for value in action.values()):
                yield {name: action}


def _read(files: LogFiles, path: str, columns: Sequence[str]) -> "pa.Table":
    with files.system.open_input_file(path) as data:
        return open_parquet(data).read(columns=list(columns))  # columns that the file does not have are left out
