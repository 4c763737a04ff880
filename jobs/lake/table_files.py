"""The data files of our own tables: one file, and the list of the files of a version by attempt."""

import hashlib
from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.lake.arrow_types import arrow_table
from jobs.lake.row_filter import RowFilter
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.libraries import pa, pc
from windowlib.records.tables import PARTITION_COLUMNS

if TYPE_CHECKING:
    from deltalake import DeltaTable

FEW_ATTEMPTS = 24
"""The files of so many attempts are looked up one by one, before an index of all files of a table is made."""
_LISTED = ("path", "num_records", "size_bytes", *(f"partition.{name}" for name in PARTITION_COLUMNS))
Attempt = tuple[str, str]
"""(slice_id, attempt_id): the partition of a table that one attempt at a slice wrote."""
StatisticsDigests = Mapping[Attempt, str | None]
"""Attempt -> the digest of the statistics of its files, as the ledger has it (`Listing.statistics_digests`).

None: the run is of an earlier version of Hindcast, which stored no digest, so its statistics are taken as they are.
"""
_STATISTICS = ("min.", "max.", "null_count.")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of one of our tables. All its rows belong to `attempt`, and it has no partition columns.

    `path` is as in Delta's log, or relative to the root of the table and not encoded if no commit names the file yet.
    `records` and `bytes` are None if nobody has read the footer: of a new file, and of one without statistics.

    A file of an event log (`DataFile`) is of another type: other writers wrote it, so it has any partition, perhaps a
    deletion vector, and its bytes are checked.
    """

    path: str
    attempt: Attempt
    records: int | None = None
    bytes: int | None = None


class Listing:
    """All files of a table at a version.

    The files of a few attempts are found by comparing columns. If many are asked for, an index of all files is made.
    """

    def __init__(self, table: "DeltaTable", *, few: int = FEW_ATTEMPTS) -> None:
        self._actions = arrow_table(table.get_add_actions(flatten=True)).combine_chunks()
        self._columns = self._actions.select(_LISTED)
        self._left = few
        self._index: tuple[list[TableFile], dict[Attempt, list[int]]] | None = None
        self._digests: dict[Attempt, str] | None = None

    def of(self, attempts: AbstractSet[Attempt]) -> list[TableFile]:
        """Return the files of attempts, in the order of the table's own list."""
        if self._index is None:
            self._left -= len(attempts)
            if self._left >= 0:
                return self._found(attempts)
            self._index = self._indexed()
        files, places = self._index
        return [files[place] for place in sorted(place for attempt in attempts for place in places.get(attempt, ()))]

    def statistics_digests(self) -> Mapping[Attempt, str]:
        """Return attempt -> a digest of the paths of its files and of their statistics in Delta's log.

        The digest stays if the table gets another column. It changes if the files are written anew (OPTIMIZE).
        """
        if self._digests is None:
            hashes: dict[Attempt, hashlib.blake2b] = {}
            lines = zip(_as_files(self._columns), _statistics(self._actions), strict=True)
            for file, line in sorted(lines, key=lambda own: own[0].path):
                own = hashes.setdefault(file.attempt, hashlib.blake2b(digest_size=8))
                own.update(f"{file.path}\n{line}\n".encode())
            self._digests = {attempt: own.hexdigest() for attempt, own in hashes.items()}
        return self._digests

    def with_statistics(self, digests: StatisticsDigests) -> frozenset[Attempt]:
        """Return the attempts whose statistics are those that the ledger has a digest of, or has no digest of.

        The statistics of the others are damaged, or the files were written anew. They are not used then.
        """
        stored = self.statistics_digests() if any(digest is not None for digest in digests.values()) else {}
        return frozenset(
            attempt for attempt, digest in digests.items() if digest is None or stored.get(attempt, "") == digest
        )

    def skipped(self, chosen: RowFilter) -> frozenset[str]:
        """Return the paths of the files that have no chosen row, by their statistics in Delta's log."""
        return frozenset(self._columns["path"].filter(pc.invert(chosen.may_match(self._actions))).to_pylist())

    def times(self, column: str, digests: StatisticsDigests) -> dict[Attempt, tuple[int, int]]:
        """Return attempt -> two instants in ms, between which all values of a column of times are.

        An instant without statistics is the first or the last one of all. An attempt whose statistics do not have their
        digest is not returned. If no file has any statistics, no attempt is returned.
        """
        names = (f"min.{column}", f"max.{column}")
        if not {*names} <= {*self._actions.column_names}:
            return {}
        kind = pa.timestamp("ms", "UTC")
        low, high = (self._actions[name].cast(kind, safe=False).cast(pa.int64()).to_pylist() for name in names)
        times: dict[Attempt, tuple[int, int]] = {}
        usable = self.with_statistics(digests)
        for file, first, last in zip(_as_files(self._columns), low, high, strict=True):
            if file.attempt not in usable:
                continue
            own = times.get(file.attempt, (MAX_TIME_MS, MIN_TIME_MS))
            first_ms, last_ms = MIN_TIME_MS if first is None else first, MAX_TIME_MS if last is None else last + 1
            times[file.attempt] = min(own[0], first_ms), max(own[1], last_ms)
        return times

    def cuts(self, attempts: AbstractSet[Attempt], column: str, *, rows: int) -> "list[pa.Scalar]":
        """Return the least values of a column in some files, so that the files between two have enough rows."""
        if f"min.{column}" not in self._actions.column_names:
            return []
        own = {file.path for file in self.of(attempts)}
        files = self._actions.select(["path", "num_records", f"min.{column}"]).sort_by(f"min.{column}")
        cuts: list[pa.Scalar] = []
        before = 0
        for path, records, least in zip(*files.columns, strict=True):
            if path.as_py() not in own or not least.is_valid:
                continue
            if before >= rows and (not cuts or least.as_py() > cuts[-1].as_py()):
                cuts.append(least)
                before = 0
            before += records.as_py() or 0
        return cuts

    def _found(self, attempts: AbstractSet[Attempt]) -> list[TableFile]:
        ids = pa.array([attempt_id for _, attempt_id in attempts], pa.string())
        own = self._columns.filter(pc.is_in(pc.cast(self._columns[_LISTED[-1]], pa.string()), ids))
        return [file for file in _as_files(own) if file.attempt in attempts]

    def _indexed(self) -> tuple[list[TableFile], dict[Attempt, list[int]]]:
        files = _as_files(self._columns)
        places: dict[Attempt, list[int]] = {}
        for place, file in enumerate(files):
            places.setdefault(file.attempt, []).append(place)
        return files, places


def _statistics(actions: "pa.Table") -> list[str]:
    """Return the statistics of each file as a text. A column without statistics adds nothing to it."""
    texts = pc.cast(actions["num_records"], pa.string()).fill_null("")
    for name in sorted(name for name in actions.column_names if name.startswith(_STATISTICS)):
        values = pc.cast(actions[name], pa.string())
        texts = pc.binary_join_element_wise(
            texts, pc.binary_join_element_wise(f" {name}=", values, "").fill_null(""), ""
        )
    whole: list[str] = texts.to_pylist()
    return whole


def _as_files(listed: "pa.Table") -> list[TableFile]:
    columns = (column.to_pylist() for column in listed.columns)
    return [TableFile(path, (*own,), records, size) for path, records, size, *own in zip(*columns, strict=True)]
