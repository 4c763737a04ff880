"""The commits of a Delta table as commits of the records that they inserted (`changes: inserts`).

A commit with files of the change data feed inserted the rows of them whose `_change_type` is `insert`. Any other commit
inserted the rows of the files that it adds; what it removes is no change of this log. An UPDATE or a DELETE inserts
nothing, and neither does a RESTORE, because the records that it brings back are in the log. A commit without a feed
that adds and removes files, such as a MERGE before the feed was switched on, is shown as one that removed records.

Source: the Delta protocol, sections "Add CDC File" and "Change Data Files".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from typing_extensions import override

from jobs.lake.file_origins import CLONE, RESTORE, operation_of
from jobs.lake.log_files import Entry, LogFiles
from windowlib.errors import LogError

FEED: Final = "delta.enableChangeDataFeed"
ONLY_INSERTS: Final = "onlyInserts"
"""A key of an `add` that stands for a file of the change data feed: only its inserted rows count."""
MERGE: Final = "MERGE"
_WITHOUT_INSERTS: Final = frozenset({"UPDATE", "DELETE", RESTORE})
"""Operations that insert nothing. delta-rs writes no feed for an UPDATE that sets values to equal ones."""
_INSERTED: Final = ("numTargetRowsInserted", "num_target_rows_inserted")
"""The metric of a MERGE that counts inserted rows, as Spark and delta-rs name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedFiles(LogFiles):
    """`LogFiles` whose entries add the files with inserted rows, and remove a file only if a commit may be misread."""

    _inserted: dict[int, Sequence[Entry]] = field(default_factory=dict)
    _since: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, files: LogFiles) -> Self:
        """Return the inserts of the commits of a table. A checkpoint has no file of the feed, so it is left out."""
        values = {one.name: getattr(files, one.name) for one in fields(files)}
        return cls(**values | {"checkpoint": None})

    @override
    def entries(self, version: int) -> Sequence[Entry]:
        if version not in self._inserted:
            self._inserted[version] = tuple(self._of_inserts(version))
        return self._inserted[version]

    @property
    def fed_since(self) -> int:
        """The first commit from which on all commits that can be read were made with the feed switched on."""
        if not self._since:
            since, was_on = min(self.commits, default=0), False
            for version in sorted(self.commits):
                for entry in self.table_entries(version):
                    if "metaData" in entry:
                        is_on = (entry["metaData"].get("configuration") or {}).get(FEED) == "true"
                        since = since if is_on and was_on else version
                        was_on = is_on
            self._since.append(since)
        return self._since[0]

    def table_entries(self, version: int) -> Sequence[Entry]:
        """Return the actions of a commit of the table, as `LogFiles.entries` does."""
        return LogFiles.entries(self, version)

    def _of_inserts(self, version: int) -> Iterator[Entry]:
        entries = self.table_entries(version)
        operation = operation_of(entries)
        if operation == CLONE:
            raise LogError(
                f"event log {self.uri} is a clone (commit {version}), so its commits do not tell what was inserted "
                "into the original table; name the original table in `log.table`"
            )
        yield from (entry for entry in entries if not {"add", "remove", "cdc"} & {*entry})
        if operation in _WITHOUT_INSERTS or (operation == MERGE and _counts_no_insert(entries)):
            return
        feed = [entry["cdc"] for entry in entries if "cdc" in entry]
        if feed:
            yield from ({"add": {**one, "dataChange": True, ONLY_INSERTS: True}} for one in feed)
            return
        adds = [entry for entry in entries if "add" in entry and entry["add"].get("dataChange", True)]
        removes = [entry for entry in entries if "remove" in entry and entry["remove"].get("dataChange", True)]
        yield from adds
        if adds and removes and (operation == MERGE or version < self.fed_since):
            yield from removes  # nothing tells which of the added rows are new


def _counts_no_insert(entries: Sequence[Entry]) -> bool:
    """Return whether the metrics of a MERGE tell that it inserted nothing."""
    made: Mapping[str, Any] = next((entry["commitInfo"] for entry in entries if "commitInfo" in entry), {})
    metrics: Mapping[str, Any] = made.get("operationMetrics") or {}
    return any(str(metrics.get(name)) == "0" for name in _INSERTED)


def lost_commits(files: InsertedFiles) -> Iterator[Mapping[str, Any]]:
    """Yield the `remove` of each file that a commit removes, and that no commit which can be read adds."""
    added = added_paths(files)
    for version in sorted(files.commits):
        for entry in files.table_entries(version):
            if "remove" in entry and str(entry["remove"]["path"]) not in added:
                yield entry["remove"]


def added_paths(files: InsertedFiles) -> frozenset[str]:
    """Return the paths of all files that the commits of the table add."""
    entries = (entry for version in files.commits for entry in files.table_entries(version))
    return frozenset(str(entry["add"]["path"]) for entry in entries if "add" in entry)
