"""Lists the data files of a ledger with events of no commit: of a write that was not the first, or of a lost commit.

A writer stores a data file first and commits it afterwards. If it is killed in between, or if another writer commits
first, the file stays and no reader sees it. The same remains if the file of a commit is lost. A file that a compaction
has merged remains as well, for a while; the ledger has its events.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from jobs.lake.arrow_types import arrow_table
from jobs.lake.damage import one_line, table_errors
from jobs.lake.delta_tables import open_delta, removed_paths
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import open_parquet
from jobs.storage import file_system
from windowlib.errors import LedgerError
from windowlib.libraries import pa, pafs


@dataclass(frozen=True, slots=True, kw_only=True)
class UnnamedFile:
    """A data file of a ledger that no commit names, and the versions of its events; none if it cannot be read."""

    path: str
    versions: tuple[int, ...]

    def __str__(self) -> str:
        versions = ", ".join(map(str, self.versions))
        content = f"with events of version {versions}" if versions else "which cannot be read"
        return (
            f"ledger file {self.path}, {content}, is named by no commit. Another write was first and this one was "
            "repeated, or its writer was killed, or the commit is lost. `hindcast clean` keeps files of ledgers"
        )


def unnamed_files(uri: str, commits: AbstractSet[str]) -> tuple[UnnamedFile, ...]:
    """Return the data files of a ledger that it does not name and that have events of other commits, by path.

    `commits` are the ids of all commits of the ledger, which exists.
    Raises LedgerError: the table or its directory cannot be read.
    """
    system, root = file_system(uri)

    def unreadable(error: BaseException) -> LedgerError:
        return LedgerError(f"ledger {uri} cannot be read: {one_line(error)}")

    with table_errors(unreadable, also=(ValueError, KeyError, TypeError)):
        files = system.get_file_info(pafs.FileSelector(root, allow_not_found=True))
        data = {file.path for file in files if file.path.endswith(".parquet")}
        table = open_delta(uri)
        added = arrow_table(table.get_add_actions(flatten=True))["path"].to_pylist()
        others = sorted(data - {place_of(root, path) for path in (*added, *removed_paths(table, older_than_ms=0))})
        contents = [(path, _events(system, path)) for path in others]
    return tuple(
        UnnamedFile(path=path, versions=tuple(sorted({version for version, _ in events})))
        for path, events in contents
        if not events or any(commit not in commits for _, commit in events)
    )


def _events(system: "pafs.FileSystem", path: str) -> set[tuple[int, str]]:
    """Return the version and the id of the commit of each event of a file; none if it cannot be read."""
    try:
        with system.open_input_file(path) as data:
            rows = open_parquet(data).read(columns=["seq", "commit_id"])
            return {*zip(rows["seq"].to_pylist(), rows["commit_id"].to_pylist(), strict=True)}
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return set()
