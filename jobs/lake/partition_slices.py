"""Slices by partition columns of the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.lake.log_cut import Cut, slice_value
from jobs.lake.log_version import LogVersion
from jobs.lake.pinned_files import PinnedFile
from jobs.lake.slicing import SlicedFiles, null_slices
from windowlib.errors import LogError


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSlicing:
    """Slices by partition columns. A group is the text of a partition's values."""

    log: LogVersion
    cut: Cut
    _values: dict[str, str | None] = field(default_factory=dict)

    def sliced(self) -> SlicedFiles:
        """Return the files of the slices; raises as `Slicing.sliced` does."""
        null_records = 0
        files: list[PinnedFile] = []
        filled: set[int] = set()
        for file in self.log.files():
            value = slice_value(file.partition, self.cut.by.columns)
            if value is None:
                null_records += file.records or 0
                continue
            if file.records != 0:
                filled.add(self.cut.instant_ms(value))
            slice_id = self.cut.slice_id(value)
            if slice_id is not None:
                files.append(PinnedFile.of(file, value=value, slice_id=slice_id))
        if null_records:
            raise null_slices(self.log, self.cut.by, null_records)
        return SlicedFiles(files=tuple(files), data_ms=tuple(sorted(filled)))

    def groups(
        self,
        path: str,
        action: Mapping[str, Any],
        *,
        version: int,  # noqa: ARG002 - the partition tells it
    ) -> Sequence[str | None]:
        """Return the partition of a file."""
        given = action.get("partitionValues")
        physical = [self.log.physical[name] for name in self.cut.by.columns]
        if given is not None and all(name in given for name in physical):
            self._values[path] = slice_value(given, physical)
        elif path not in self._values:
            named = ", ".join(map(repr, self.cut.by.columns))
            raise LogError(
                f"event log {self.log.uri} has a commit that adds or removes the file {path} without its partition by "
                f"{named}; found {given!r}. Hindcast can replay only a log whose commits name the partition of every "
                "file: append its records to a new table, and name it in `log.table` (docs/reference/logs.md)"
            )
        return (self._values[path],)

    def slice_of(self, group: str | None) -> str | None:
        """Return the slice of a partition."""
        # A value that is no instant is in no file any more. Otherwise the log was refused before.
        return self.cut.slice_id(group) if self.cut.is_instant(group) else None
