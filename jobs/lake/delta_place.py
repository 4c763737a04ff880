"""An event log that is a Delta table: opens its versions, and tells its newest commit."""

from dataclasses import dataclass
from typing import Final

from jobs.lake.damage import log_errors
from jobs.lake.delta_log import LogTable, describe_log, open_log
from jobs.lake.delta_tables import is_newest
from jobs.lake.log_files import list_log_files
from jobs.lake.log_version import LogTip, commit_digest
from jobs.storage import file_system

_ANY_VERSION: Final = 10**20 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPlace:
    """A Delta table as an event log (`LogPlace`)."""

    uri: str

    def open(self, version: int | None = None) -> LogTable:
        """Return the table at a version (None: the newest); raises as `describe_log` does."""
        return describe_log(self.uri, version)

    def is_newest(self, version: int) -> bool:
        """Return whether the table has the commit of a version and none of the next one."""
        return is_newest(self.uri, version)

    def tip(self) -> LogTip | None:
        """Return the newest commit; None if there is no commit file. One directory is listed, one file is read.

        Raises:
            LogError: the log cannot be read, or there is none.
        """
        with log_errors(self.uri, "listing its commits"):
            system, root = file_system(self.uri)
            files = list_log_files(self.uri, system, root, version=_ANY_VERSION)
        if not files.commits:
            open_log(self.uri)  # raises if there is no table
            return None
        version = max(files.commits)
        return LogTip(version=version, commit=commit_digest(files, version), files=files)
