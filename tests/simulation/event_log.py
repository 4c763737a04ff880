"""The simulated event log: a table with commit files and data files, which the product's own code reads.

A commit appends an amount to a slice, removes or changes one, or writes the files of a slice again. Somebody may drop
the table and create it again, and log retention removes the oldest commit files.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from jobs.engine.fingerprints import fingerprint
from jobs.lake.log_coordinates import SliceFiles
from jobs.lake.log_files import Entry
from jobs.lake.pinned_files import PinnedFile
from jobs.pipeline.look_back import LookBack
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import LogCoordinates, Slice
from windowlib.records.column_types import field_node

URI: Final = "log"
COLUMN: Final = "day"
"""The slice column."""
NODES: Final = {"id": "string", "key": "string", "at_ms": "long", "amount": "long", COLUMN: "date"}
_SCHEMA: Final = json.dumps({"fields": [field_node(name, node) for name, node in NODES.items()]})
REWRITES: Final = frozenset({"UPDATE", "DELETE"})
RESTORE: Final = "RESTORE"
MOST_REPEATED: Final = 4
_DAY_MS: Final = 86_400_000
_DIGEST_BYTES, _LOOKED_BYTES = 8, 16
"""The digests of a commit file that runs and looks store."""


@lru_cache(maxsize=10_000)
def hashed(*parts: str | int) -> str:
    """Return the fingerprint of a list. The schedules have few different ones."""
    return fingerprint([*parts])


class Reading(NamedTuple):
    """A run reads `reach` slices before its own (`log.distinct`), none before number `first` (`log.slice.first`)."""

    reach: int = 0
    first: int = 0


ALONE: Final = Reading()
FIRSTS: Final = (0, 1, 2)
"""The numbers of the slices that `log.slice.first` names."""


def readings_of(reach: int) -> list[Reading]:
    """Return the readings of pipeline files with and without `log.distinct`, whose first slice is edited."""
    return [ALONE, *(Reading(reach, first) for first in FIRSTS)]


class Read(NamedTuple):
    """What a run reads of a slice: its amounts, and how many of them `kept` are. The others repeat earlier records."""

    amounts: tuple[int, ...]
    kept: tuple[int, ...]

    @classmethod
    def of(cls, amounts: Sequence[int], *, before: Iterable[int] | None = None) -> "Read":
        """Return what is read of a slice. `before` are the amounts of slices before; None: repetitions count.

        Small amounts are ids as well: a record repeats an earlier one with the same amount.
        """
        kept, seen = [], {*(before or ())}
        for amount in amounts:
            if before is None or amount not in seen or amount > MOST_REPEATED:
                kept.append(amount)
            seen.add(amount)
        return cls((*amounts,), (*kept,))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the input. Which slices were read before matters only for the repetitions."""
        repeated = () if self.kept == self.amounts else ("kept", *self.kept)
        return hashed(*self.amounts, *repeated)


class File(NamedTuple):
    """A data file with one record, which commit `commit` has appended."""

    commit: int
    amount: int
    data: PinnedFile


class Commit(NamedTuple):
    """A commit of the log: the files that all slices have after it, and the digests of what runs read.

    `content` is that of its own file, and `digest` the digest of that, as runs store it.
    """

    slice: Slice
    at_ms: int
    operation: str
    files: Mapping[Slice, tuple[File, ...]]
    digests: Mapping[tuple[Slice, Reading], str]
    content: bytes
    digest: bytes


@dataclass
class EventLog:
    """A log with one file for each record. Version n is what the commits up to n have made; the first is version 0.

    Somebody may drop the table, and create it again with the same records: another table, which begins with version 0.
    Or its newest commits are lost, because it was restored from a backup. `tables` is the number of tables, `name` the
    name of the history of the newest one, and `names` the number of names. `restored` is the oldest version to which
    it was restored since somebody has named its history; None if it was not. The commits of all tables have one row of
    numbers; a restored table gets its newest commit again under a new number. `versions` maps a version of the newest
    table to its number. `expired` is the number of commit files that log retention has removed from it. `opened_at` has
    the numbers at which versions were first opened: id of the table, version, digest of the files of a slice -> number.
    `numbers` maps the digest of a commit file, as looks have it, to the number of the commit.

    Runs read slices before their own, in which they look for earlier records. `readings` are the ways that occur.
    `contents` maps a slice and the fingerprint of what a run has read of it to the amounts that count. `history` has
    the digests of what runs of each slice and reading read, with the numbers from which on they are so. `left` maps
    such a digest to the number of the last commit with these records; the newest ones are not in it. `records` maps a
    slice and the digest of files, as coordinates have it, to that of records. `amount_of` maps the path of a data file
    to its amount.
    """

    slices: Sequence[Slice]
    readings: Sequence[Reading] = (ALONE,)
    files: dict[Slice, tuple[File, ...]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    digests: dict[tuple[Slice, Reading], str] = field(default_factory=dict)
    tables: int = 1
    name: str = ""
    names: int = 0
    restored: int | None = None
    versions: list[int] = field(default_factory=list)
    expired: int = 0
    opened_at: dict[tuple[str, int, str], int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    contents: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    history: dict[tuple[Slice, Reading], list[tuple[int, str]]] = field(default_factory=dict)
    records: dict[tuple[str, str], str] = field(default_factory=dict)
    amount_of: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, slices: Sequence[Slice], amounts: Sequence[int], *, at_ms: int, readings: Sequence[Reading] = (ALONE,)
    ) -> "EventLog":
        """Return a log with one amount in each slice."""
        log = cls(slices=slices, readings=readings)
        for slice_, amount in zip(slices, amounts, strict=True):
            log.append(slice_, amount, at_ms=at_ms)
        return log

    @property
    def version(self) -> int:
        return len(self.versions) - 1

    @property
    def own_id(self) -> str:
        """The id of the newest table."""
        return f"{self.tables:08x}-0000-0000-0000-000000000000"

    @property
    def table_id(self) -> str:
        """The same with the name of its history, as coordinates have it."""
        return f"{self.own_id}-{self.name}" if self.name else self.own_id

    @property
    def rewrites(self) -> dict[int, Slice]:
        """The rewrites at the newest version."""
        return self.rewrites_at(self.version)

    def rewrites_at(self, version: int) -> dict[int, Slice]:
        """Return version -> the slice of which the commit had removed or changed a record that was still lost then."""
        rewrites: dict[int, Slice] = {}
        for own, number in enumerate(self.versions[: version + 1]):
            commit = self.commits[number]
            is_lossy = commit.operation in REWRITES
            if commit.operation == RESTORE:
                undone = max(other for other, slice_ in rewrites.items() if slice_ == commit.slice)
                del rewrites[undone]
                since = (self.commits[number] for number in self.versions[undone:own])
                is_lossy = any(other.slice == commit.slice and other.operation == "WRITE" for other in since)
            if is_lossy:
                rewrites[own] = commit.slice
        return rewrites

    def reading_of(self, pipeline: Pipeline, first: str | None) -> Reading:
        """Return which slices before a run reads with the spec of a pipeline and a `log.slice.first`."""
        distinct = pipeline.log.distinct
        if distinct is None:
            return ALONE
        names = [slice_.slice_id for slice_ in self.slices]
        return Reading(distinct.within_ms // _DAY_MS, names.index(first) if first else 0)

    def number_of(self, read: LogCoordinates) -> int:
        """Return the number of the newest commit that coordinates have seen."""
        return self.opened_at[read.table_id, read.version, read.digest]

    def amounts(self, slice_: Slice) -> tuple[int, ...]:
        return tuple(file.amount for file in self.files.get(slice_, ()))

    def before(self, slice_: Slice, reading: Reading) -> Sequence[Slice]:
        """Return the slices before that a run of a slice reads as well."""
        place = self.slices.index(slice_)
        return self.slices[max(place - reading.reach, reading.first, 0) : place]

    def readers(self, slice_: Slice, reading: Reading) -> Sequence[Slice]:
        """Return a slice and the slices after it whose runs read it as well."""
        place = self.slices.index(slice_)
        return self.slices[place : place + 1 + (reading.reach if place >= reading.first else 0)]

    def read(self, slice_: Slice, reading: Reading, paths: Mapping[str, Iterable[str]] | None = None) -> Read:
        """Return what a run reads of a slice, now or in data files (slice -> paths)."""

        def amounts(own: Slice) -> tuple[int, ...]:
            return self.amounts(own) if paths is None else (*map(self.amount_of.__getitem__, paths[own.slice_id]),)

        before = [amount for own in self.before(slice_, reading) for amount in amounts(own)]
        return Read.of(amounts(slice_), before=before if reading.reach else None)

    def append(self, slice_: Slice, amount: int, *, at_ms: int) -> None:
        """Append a record."""
        file = self._file(slice_, len(self.commits), amount, at_ms=at_ms)
        self._commit(slice_, "WRITE", (*self.files.get(slice_, ()), file), at_ms=at_ms)

    def rewrite(self, slice_: Slice, number: int, amount: int | None, *, at_ms: int) -> None:
        """Give a record another amount; None: remove it. A person has to accept the commit."""
        files = list(self.files[slice_])
        new = [] if amount is None else [self._file(slice_, len(self.commits), amount, at_ms=at_ms)]
        files[number : number + 1] = new
        self._commit(slice_, "UPDATE" if new else "DELETE", tuple(files), at_ms=at_ms)

    def compact(self, slice_: Slice, *, at_ms: int) -> None:
        """Write the records to other files, as OPTIMIZE does."""
        files = tuple(self._file(slice_, file.commit, file.amount, at_ms=at_ms) for file in self.files[slice_])
        self._commit(slice_, "OPTIMIZE", files, at_ms=at_ms, changes_data=False)

    def undo(self, slice_: Slice, *, at_ms: int) -> None:
        """Restore the files of a slice from before the newest commit that has removed or changed a record.

        Records that were appended since are lost.
        """
        newest = max((own for own, lost in self.rewrites.items() if lost == slice_), default=0)
        if newest > self.expired and self.commits[self.versions[newest]].operation in REWRITES:
            files = self.commits[self.versions[newest - 1]].files[slice_]
            self._commit(slice_, RESTORE, files, at_ms=at_ms)

    def create_again(self, *, at_ms: int) -> None:
        """Drop the table, and create another one with the same records."""
        former = {slice_: self.amounts(slice_) for slice_ in self.slices}
        self.tables += 1
        self.expired, self.restored = 0, None
        self.versions.clear()
        self.files.clear()
        for slice_, amounts in former.items():
            files = tuple(self._file(slice_, len(self.commits), amount, at_ms=at_ms) for amount in amounts)
            self._commit(slice_, "WRITE", files, at_ms=at_ms)

    def expire(self, count: int) -> None:
        """Remove the oldest commit files, as log retention does behind a checkpoint. The newest one is left."""
        self.expired = max(self.expired, min(count, self.version))

    def restore(self, version: int) -> None:
        """Restore the table from a backup of a version, which is not older than the oldest commit file."""
        commit = self.commits[self.versions[version]]
        del self.versions[version:]
        self.versions.append(len(self.commits))
        self.commits.append(commit)
        self.files = {**commit.files}
        self.restored = version if self.restored is None else min(self.restored, version)
        for slice_ in self.slices:
            self._remember(slice_, len(self.commits) - 1)

    def give_name(self) -> None:
        """Name the history of a restored table, as a person does in the pipeline file."""
        self.names += 1
        self.name, self.restored = f"h{self.names}", None

    def last_seen(self, digest: str) -> int:
        """Return the number of the last commit at which a slice had records with this digest."""
        return self.left.get(digest, len(self.commits))

    def records_at(self, slice_: Slice, reading: Reading, number: int) -> str:
        """Return the digest of the records that a run of a slice read after a commit."""
        return next(digest for since, digest in reversed(self.history[slice_, reading]) if since <= number)

    def kept(self, version: int) -> Commit | None:
        """Return the commit of the newest table with a version, if its file is there."""
        return self.commits[self.versions[version]] if self.expired <= version <= self.version else None

    def has_commit(self, version: int, digest: str) -> bool:
        """Return whether the newest table has the commit with a digest, as looks have it."""
        number = self.numbers[digest]
        return version <= self.version and self.commits[self.versions[version]] is self.commits[number]

    def _file(self, slice_: Slice, commit: int, amount: int, *, at_ms: int) -> File:
        name = slice_.slice_id
        data = PinnedFile(
            path=f"{COLUMN}={name}/{len(self.amount_of)}.parquet",
            partition={COLUMN: name},
            records=1,
            bytes=1,
            modified_ms=at_ms,
            slice_id=name,
            value=name,
        )
        self.amount_of[data.path] = amount
        return File(commit, amount, data)

    def _commit(
        self, slice_: Slice, operation: str, files: tuple[File, ...], *, at_ms: int, changes_data: bool = True
    ) -> None:
        number, before = len(self.commits), self.files.get(slice_, ())
        entries: list[Entry] = [{"commitInfo": {"operation": operation, "timestamp": at_ms, "number": number}}]
        entries += [] if self.versions else [{"metaData": {"id": self.own_id, "schemaString": _SCHEMA}}]
        entries += [_action("remove", file, changes_data=changes_data) for file in before if file not in files]
        entries += [_action("add", file, changes_data=changes_data) for file in files if file not in before]
        self.files[slice_] = files
        content = "\n".join(json.dumps(entry) for entry in entries).encode()
        digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
        self._remember(slice_, number)
        live, digests = MappingProxyType({**self.files}), MappingProxyType({**self.digests})
        self.commits.append(Commit(slice_, at_ms, operation, live, digests, content, digest))
        self.numbers[hashlib.blake2b(content, digest_size=_LOOKED_BYTES).hexdigest()] = number
        self.versions.append(number)

    def _remember(self, changed: Slice, number: int) -> None:
        """Remember what the runs of a slice, and of those whose runs read it, read from a commit on."""
        for reading, slice_ in [(own, slice_) for own in self.readings for slice_ in self.readers(changed, own)]:
            before, read = self.before(slice_, reading), self.read(slice_, reading)
            back = LookBack(slices=(slice_,), outside=(*before,), reach={slice_.slice_id: range(len(before))})
            files = [file for own in (*before, slice_) for file in self.files.get(own, ())]
            self.contents[slice_.slice_id, read.fingerprint] = read.kept
            grouped = SliceFiles.grouped((file.data for file in files), back)
            self.digests[slice_, reading] = grouped.digests[slice_.slice_id]
            records = hashed(slice_.slice_id, *(part for file in files for part in file[:2]))
            self._follow((slice_, reading), number, records)

    def _follow(self, read: tuple[Slice, Reading], number: int, records: str) -> None:
        self.records[read[0].slice_id, self.digests[read]] = records
        history = self.history.setdefault(read, [])
        self.left.update({before: number - 1 for _since, before in history[-1:]})
        self.left.pop(records, None)
        history.append((number, records))


def _action(kind: str, file: File, *, changes_data: bool) -> Entry:
    data = file.data
    return {
        kind: {
            "path": data.path,
            "partitionValues": data.partition,
            "size": data.bytes,
            "modificationTime": data.modified_ms,
            "dataChange": changes_data,
        }
    }
