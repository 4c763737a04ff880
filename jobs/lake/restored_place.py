"""An event log whose table was restored from a backup and written to since, so that its commits are of another history.

A run stores versions of the log, and digests of its commits, under the id of the table. Versions of the lost history
have other commits now. So the table gets another id (`log.history`), and is compared as another table.
"""

from dataclasses import dataclass, replace

from jobs.lake.log_version import LogPlace, LogTip, LogVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPlace:
    """A log of a named history (`LogPlace`)."""

    place: LogPlace
    history: str

    @property
    def uri(self) -> str:
        return self.place.uri

    def open(self, version: int | None = None) -> LogVersion:
        log = self.place.open(version)
        return replace(log, table_id=f"{log.table_id}{self._ending}")

    def is_newest(self, version: int) -> bool:
        return self.place.is_newest(version)

    def tip(self) -> LogTip | None:
        tip = self.place.tip()
        return None if tip is None else replace(tip, history=f"{tip.history}{self._ending}")

    @property
    def _ending(self) -> str:
        return f"-{self.history}"
