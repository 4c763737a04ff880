"""The files and rows of attempts below a pipeline's directory: lists, tells which a commit names, removes. No Spark.

A process that was killed leaves Parquet files that no commit names, shuffle files below `_scratch/<attempt>`, perhaps
a table of `_probe/` (`jobs.ledger.conditional_put`), and on a disk files of Delta and of the ledger's head that did not
get their name yet. No reader sees them.

Rows are deleted by a commit without their files. The files stay for the readers of older versions of the table, until
`expired` names them.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from jobs.lake.arrow_types import arrow_table
from jobs.lake.damage import reading
from jobs.lake.delta_tables import OpenedTable, forget_table, open_table, removed_paths
from jobs.lake.durable_commits import commit_hooks, until_committed
from jobs.lake.lake import CURRENT, Lake
from jobs.lake.log_files import place_of
from jobs.lake.table_files import Attempt
from jobs.storage import file_system
from windowlib.libraries import pafs
from windowlib.records.tables import PARTITION_COLUMNS

T = TypeVar("T")
LEDGER = "ledger"
SCRATCH = "_scratch"
PROBE = "_probe"
UNNAMED = "_unnamed"
"""Stands for the table of files that were written under a temporary name, and did not get their name."""
NO_TABLES = frozenset({SCRATCH, PROBE, UNNAMED})
UPSTREAM = "upstream"
"""The directory of the cached files of a log that is a table of another pipeline."""
_DELETERS = 8
MOST_DELETED: Final = 5_000
"""A commit deletes the rows of so many attempts at most. With 30,000, deltalake overflows the stack of its parser."""
_OF_TABLE = re.compile(r"(?P<table>[a-z][a-z0-9_]*)/(?:[^/]+/)*attempt_id=(?P<attempt>[0-9A-Za-z-]+)/[^/]+\.parquet")
_OF_SCRATCH = re.compile(rf"{SCRATCH}/(?P<attempt>[0-9A-Za-z-]+)/.+")
_OF_PROBE = re.compile(rf"{PROBE}/.+")
# deltalake writes `name#1` and gives it its name; `hidden_file` does so with a hidden file.
_OF_UNNAMED = re.compile(
    rf"[a-z][a-z0-9_]*/(?:[^/]+/)*[^/]+\.(?:json|parquet)#\d+|"
    rf"{LEDGER}/(?:_head|_snapshot)/\.\d{{20}}[-0-9a-f]*\.(?:json|zst)\.[0-9a-f]{{32}}"
)
_OF_CURRENT = re.compile(rf"{CURRENT}[^/]+/(?:slice_id=[^/]+/)?part-[0-9a-f-]+\.parquet")
_OF_UPSTREAM = re.compile(rf"{UPSTREAM}/slice_id=[^/]+/\.?[0-9a-f]+\.parquet(?:\.[0-9a-f]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverFile:
    """A file that an attempt has written, as the file system lists it. No commit need name it, so it is no `TableFile`.

    `path` is in the file system of the lake. `table` is the name of a table, or one of NO_TABLES. `attempt_id` is None
    for a file of `_probe`, of a current table and of the cache, and for one without its name.
    """

    path: str
    table: str
    attempt_id: str | None
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFile:
    """A file of a table that its newest version names: its rows, which are of one attempt at a slice."""

    table: str
    attempt: Attempt
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFiles:
    """The files of the attempts at a pipeline in a lake: a directory, or an object store.

    All methods raise a StoreError if the store does not answer.
    """

    lake: Lake
    pipeline: str
    most_deleted: int = MOST_DELETED

    def listed(self) -> list[LeftoverFile]:
        """Return the files of tables, of `_scratch` and of `_probe`, and those without their names, by path.

        Files of the ledger, and files that Hindcast did not write, are not listed.
        """
        return self._listed((_OF_UNNAMED, _OF_TABLE, _OF_SCRATCH, _OF_PROBE))

    def listed_copies(self) -> list[LeftoverFile]:
        """Return the files of current tables and of the cache of an upstream log, by path."""
        return self._listed((_OF_CURRENT, _OF_UPSTREAM))

    def listed_below(self, directories: Collection[str]) -> list[LeftoverFile]:
        """Return all files below some directories, by path."""
        patterns = [re.compile(f"{re.escape(directory)}/.+") for directory in directories]
        return self._listed(patterns) if patterns else []

    def _listed(self, patterns: Sequence[re.Pattern[str]]) -> list[LeftoverFile]:
        uri = self.lake.ledger(self.pipeline).rpartition("/")[0]
        system, root = file_system(uri)
        with reading(uri):
            infos = system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
        tables = _Places(root, is_local=self.lake.is_local)
        files = (_listed(info, tables, patterns) for info in infos if info.type == pafs.FileType.File)
        return sorted((file for file in files if file is not None), key=lambda file: file.path)

    def named(self, tables: Iterable[str]) -> frozenset[str]:
        """Return the paths of the data files that the newest versions of tables name, or did name in the past."""
        return frozenset(path for paths in self._each(self._named, tables) for path in paths)

    def _named(self, table: str) -> set[str]:
        _system, root = file_system(self.lake.table(self.pipeline, table))
        with self._opened(table) as opened:
            if opened is None:
                return set()
            added = arrow_table(opened.delta.get_add_actions(flatten=True))["path"].to_pylist()
            # What OPTIMIZE, DELETE or a clean-up removed belongs to older versions, until its file is deleted.
            return {place_of(root, path) for path in added} | _removed(opened, root, older_than_ms=0)

    def committed(self, tables: Iterable[str]) -> list[CommittedFile]:
        """Return the files that the newest versions of tables name."""
        return [file for files in self._each(self._committed, tables) for file in files]

    def _committed(self, table: str) -> list[CommittedFile]:
        with self._opened(table) as opened:
            if opened is None:
                return []
            actions = arrow_table(opened.delta.get_add_actions(flatten=True))
            names = ("size_bytes", "modification_time", *(f"partition.{name}" for name in PARTITION_COLUMNS))
            columns = [actions[name].to_pylist() for name in names]
        return [
            CommittedFile(table=table, attempt=(slice_id, attempt_id), bytes=size, modified_ms=_epoch_ms(modified))
            for size, modified, slice_id, attempt_id in zip(*columns, strict=True)
        ]

    def delete_rows(self, table: str, attempts: Collection[Attempt], *, metadata: Mapping[str, str]) -> None:
        """Delete all rows of attempts at slices. Their files stay. A second call deletes what a killed one has left."""
        from deltalake import CommitProperties

        uri = self.lake.table(self.pipeline, table)
        texts = [_quoted("/".join(attempt)) for attempt in sorted(attempts)]
        place = " || '/' || ".join(PARTITION_COLUMNS)

        def commit(together: Sequence[str]) -> None:
            opened = open_table(uri)
            if opened is not None:
                properties = CommitProperties(custom_metadata=dict(metadata))
                opened.delta.delete(
                    f"{place} IN ({', '.join(together)})",
                    commit_properties=properties,
                    post_commithook_properties=commit_hooks(uri),
                )

        for first in range(0, len(texts), self.most_deleted):
            until_committed(uri, partial(commit, texts[first : first + self.most_deleted]))
            forget_table(uri)

    def expired(self, tables: Iterable[str], *, older_than_ms: int) -> frozenset[str]:
        """Return the paths of the files whose rows were deleted by a commit that is older."""

        def expired(table: str) -> set[str]:
            _system, root = file_system(self.lake.table(self.pipeline, table))
            with self._opened(table) as opened:
                return set() if opened is None else _removed(opened, root, older_than_ms=older_than_ms)

        return frozenset(path for paths in self._each(expired, tables) for path in paths)

    @contextmanager
    def _opened(self, table: str) -> Iterator[OpenedTable | None]:
        uri = self.lake.table(self.pipeline, table)
        with reading(uri):
            yield open_table(uri)

    def _each(self, read: Callable[[str], T], tables: Iterable[str]) -> list[T]:
        with ThreadPoolExecutor(max_workers=_DELETERS) as pool:
            return list(pool.map(read, tables))

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, and the directories that they leave empty. A file that does not exist any more is no error."""
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


def _epoch_ms(modified: object) -> int:
    """Return the time of a file in Delta's log, which comes as a number or as a time."""
    return int(modified.timestamp() * 1_000) if isinstance(modified, datetime) else int(str(modified))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class _Places(dict[str, str]):
    """The places of the directories below a pipeline's one, by name: of a symbolic link, that of its target.

    `file_system` resolves the place of a table, so a listed file would have another path than a commit's name gives it.
    """

    def __init__(self, root: str, *, is_local: bool) -> None:
        self.root, self._is_local = root, is_local

    def __missing__(self, name: str) -> str:
        path = f"{self.root}/{name}"
        self[name] = os.path.realpath(path) if self._is_local else path
        return self[name]


def _listed(info: "pafs.FileInfo", places: _Places, patterns: Sequence[re.Pattern[str]]) -> LeftoverFile | None:
    relative = info.path[len(places.root) :].lstrip("/")
    first, _slash, rest = relative.partition("/")
    for pattern in patterns:
        match = pattern.fullmatch(relative)
        table = UNNAMED if pattern is _OF_UNNAMED else first
        if match is not None and table != LEDGER:
            parts = match.groupdict()
            return LeftoverFile(
                path=f"{places[first]}/{rest}",
                table=table,
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


def _removed(opened: OpenedTable, root: str, *, older_than_ms: int) -> set[str]:
    paths = removed_paths(opened.delta, older_than_ms=older_than_ms)
    return {place_of(root, path) for path in paths} | {f"{root}/{path}" for path in paths}  # encoded, or decoded
