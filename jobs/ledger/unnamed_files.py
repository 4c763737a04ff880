"""Lists the data files of a ledger that no commit names: of a writer that did not finish, or of a commit that was lost.

A writer stores a data file first and commits it afterwards. If it is killed in between, or if another writer commits
first, the file stays and no reader sees it. The same remains if the file of a commit is lost.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jobs.lake.damage import table_errors
from jobs.lake.json_lines import json_lines
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import open_parquet
from jobs.storage import file_system
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    import pyarrow.fs as pafs


@dataclass(frozen=True, slots=True, kw_only=True)
class UnnamedFile:
    """A data file of a ledger that no commit names, and the versions of its events; none if it cannot be read."""

    path: str
    versions: tuple[int, ...]

    def __str__(self) -> str:
        versions = ", ".join(map(str, self.versions))
        content = f"with events of version {versions}" if versions else "which cannot be read"
        return f"ledger file {self.path}, {content}, is named by no commit: its writer did not finish, or it is lost"


def unnamed_files(uri: str) -> tuple[UnnamedFile, ...]:
    """Return the data files of a ledger that none of its commits adds or removes, by path.

    Raises:
        LedgerError: the directory or a commit file cannot be read.
    """
    import pyarrow.fs as pafs

    system, root = file_system(uri)

    def unreadable(error: BaseException) -> LedgerError:
        return LedgerError(f"ledger {uri} cannot be read: {error}")

    with table_errors(unreadable, also=(ValueError, KeyError, TypeError)):
        files = system.get_file_info(pafs.FileSelector(root, allow_not_found=True))
        data = sorted(file.path for file in files if file.path.endswith(".parquet"))
        if not data:
            return ()
        commits = system.get_file_info(pafs.FileSelector(f"{root}/_delta_log", allow_not_found=True))
        named = set(_named(system, root, (file.path for file in commits if _is_commit(file.path))))
        return tuple(UnnamedFile(path=path, versions=_versions(system, path)) for path in data if path not in named)


def _is_commit(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.endswith(".json") and name[:1].isdigit()


def _named(system: "pafs.FileSystem", root: str, commits: Iterable[str]) -> Iterator[str]:
    for commit in commits:
        with system.open_input_stream(commit) as stream:
            actions = json_lines(stream.read())
        for action in actions:
            file = action.get("add") or action.get("remove")
            if file is not None:
                yield place_of(root, file["path"])


def _versions(system: "pafs.FileSystem", path: str) -> tuple[int, ...]:
    import pyarrow as pa

    try:
        with system.open_input_file(path) as data:
            return tuple(sorted(set(open_parquet(data).read(columns=["seq"])["seq"].to_pylist())))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return ()
