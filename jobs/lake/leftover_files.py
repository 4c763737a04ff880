"""Lists the files of attempts below a pipeline's directory, and tells which of them a commit names. No Spark.

A process that was killed leaves Parquet files that no commit names, shuffle files below `_scratch/<attempt>`, and
perhaps a table of `_probe/` (`jobs.ledger.conditional_put`). No reader sees them. This module removes nothing.
"""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from jobs.lake.arrow_types import arrow_table
from jobs.lake.damage import reading
from jobs.lake.delta_tables import open_table
from jobs.lake.lake import Lake
from jobs.lake.log_files import place_of
from jobs.storage import file_system

if TYPE_CHECKING:
    import pyarrow.fs as pafs

LEDGER = "ledger"
SCRATCH = "_scratch"
PROBE = "_probe"
_DELETERS = 8
_OF_TABLE = re.compile(r"(?P<table>[a-z][a-z0-9_]*)/(?:[^/]+/)*attempt_id=(?P<attempt>[0-9A-Za-z-]+)/[^/]+\.parquet")
_OF_SCRATCH = re.compile(rf"{SCRATCH}/(?P<attempt>[0-9A-Za-z-]+)/.+")
_OF_PROBE = re.compile(rf"{PROBE}/.+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverFile:
    """A file that an attempt has written, as the file system lists it. No commit need name it, so it is no `TableFile`.

    `path` is in the file system of the lake. `table` is the name of a table, `_scratch` or `_probe`. `attempt_id` is
    None for a file of `_probe`.
    """

    path: str
    table: str
    attempt_id: str | None
    bytes: int
    modified_ms: int


class AttemptFiles(Protocol):
    """The files of the attempts at a pipeline."""

    def listed(self) -> Sequence[LeftoverFile]:
        """Return all files of attempts. Files of the ledger, and files that Hindcast did not write, are not listed."""
        ...

    def named(self, tables: Iterable[str]) -> frozenset[str]:
        """Return the paths of the data files that the newest versions of tables name, or did name in the past."""
        ...

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files. A file that does not exist any more is no error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFiles:
    """The files of the attempts at a pipeline in a lake: a directory, or an object store."""

    lake: Lake
    pipeline: str

    def listed(self) -> list[LeftoverFile]:
        """Return the files of tables, of `_scratch` and of `_probe`, by path.

        Raises:
            StoreError: the store does not answer.
        """
        import pyarrow.fs as pafs

        uri = self.lake.ledger(self.pipeline).rpartition("/")[0]
        system, root = file_system(uri)
        with reading(uri):
            infos = system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
        files = (_listed(info, root) for info in infos if info.type == pafs.FileType.File)
        return sorted((file for file in files if file is not None), key=lambda file: file.path)

    def named(self, tables: Iterable[str]) -> frozenset[str]:
        """Return the paths that the newest versions of tables name, or whose removal they still record.

        Raises:
            StoreError: a table cannot be read.
        """
        with ThreadPoolExecutor(max_workers=_DELETERS) as pool:
            return frozenset(path for paths in pool.map(self._named, tables) for path in paths)

    def _named(self, table: str) -> set[str]:
        uri = self.lake.table(self.pipeline, table)
        _system, root = file_system(uri)
        with reading(uri):
            opened = open_table(uri)
            if opened is None:
                return set()
            added = arrow_table(opened.delta.get_add_actions(flatten=True))["path"].to_pylist()
            # What a person removed by OPTIMIZE or DELETE belongs to older versions, until VACUUM deletes it.
            removed = opened.delta.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
        # The removed ones come decoded or encoded, depending on the store.
        return {place_of(root, path) for path in (*added, *removed)} | {f"{root}/{path}" for path in removed}

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, and the directories that they leave empty.

        Raises:
            StoreError: the store does not answer, or forbids it.
        """
        system, _root = file_system(self.lake.root)

        def remove(path: str) -> None:
            try:
                system.delete_file(path)
            except FileNotFoundError:
                return

        with reading(self.lake.root), ThreadPoolExecutor(max_workers=_DELETERS) as pool:
            wanted = list(paths)
            list(pool.map(remove, wanted))
        if self.lake.is_local:
            _remove_empty(Path(self.lake.root).resolve(), wanted)


def _listed(info: "pafs.FileInfo", root: str) -> LeftoverFile | None:
    relative = info.path[len(root) :].lstrip("/")
    for pattern in (_OF_TABLE, _OF_SCRATCH, _OF_PROBE):
        match = pattern.fullmatch(relative)
        if match is not None and relative.partition("/")[0] != LEDGER:
            parts = match.groupdict()
            return LeftoverFile(
                path=info.path,
                table=relative.partition("/")[0],
                attempt_id=parts.get("attempt"),
                bytes=info.size,
                modified_ms=(info.mtime_ns or 0) // 1_000_000,
            )
    return None


def _remove_empty(root: Path, removed: Iterable[str]) -> None:
    """Remove the directories of removed files, up to their table, if they are empty now."""
    for path in removed:
        for directory in Path(path).parents:
            if directory == root or not directory.is_relative_to(root):
                break
            try:
                directory.rmdir()
            except OSError:
                break
