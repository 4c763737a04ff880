"""Pins an event log: one Delta version, its data files by slice, and the check that the log has only grown.

This module reads the Delta log and file listings, never a record, so planning takes milliseconds and needs no JVM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.lake.append_order import CommitOrder, unordered_slices, with_append_places
from jobs.lake.commit_history import FEW_COMMITS, CommitHistory, newest_data_ms
from jobs.lake.covered_files import CoveredFile
from jobs.lake.damage import log_errors
from jobs.lake.known_log import KnownLog, SeenCommit, covered_files, refuse_replaced
from jobs.lake.log_coordinates import SliceFiles, followed_columns, known_history, known_since, own_since, slice_commits
from jobs.lake.log_cut import Cut
from jobs.lake.log_files import LogFiles, place_of
from jobs.lake.log_version import NO_COMMITS, LogPlace, LogVersion, commit_digest
from jobs.lake.pinned_files import BYTES_PER_RECORD, PinnedFile, refuse_damage
from jobs.lake.row_tracking import ROW_ID_COLUMN, VERSION_COLUMN
from jobs.lake.slicing import SlicedFiles, Slicing
from jobs.lake.slicing_choice import is_partitioned, slicing_of
from jobs.pipeline.look_back import LookBack
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import LogCoordinates, Slice
from windowlib.records.column_types import Node, without_metadata, without_variants


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """What a program that reads the files itself has to know of the table.

    `root` is the root of the table in its file system. `fields` are the columns as in `LogVersion.fields`. `needs_ids`:
    a file whose columns have no field ids cannot be read. `row_id_column` and `version_column` are the hidden columns
    in which OPTIMIZE stores the ids of rows and the commits that appended them.
    """

    root: str
    fields: tuple[Mapping[str, Any], ...]
    needs_ids: bool
    partition_columns: tuple[str, ...]
    row_id_column: str | None
    version_column: str | None

    @property
    def nodes(self) -> dict[str, Node]:
        return {field["name"]: field["type"] for field in self.fields}

    @property
    def stored_fields(self) -> list[Mapping[str, Any]]:
        """The columns that are in the files: all but the partition columns."""
        return [field for field in self.fields if field["name"] not in self.partition_columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedLog:
    """The input of a replay: the log at one version.

    `columns` maps a column, in table order, to the spelling of its type in the log. `nodes` are the types with which
    the side tables store records (a VARIANT as its JSON text). `widened` maps a column whose type was widened in place
    to its first type. `data_ms` are the distinct instants of the slice column that have records, ascending, inside
    and outside the range. `earlier` are the files of the slices before, in which `log.distinct` looks for earlier
    records. `unknown` are slices whose records are not known, if the log may be changed. `log_files` has its commits.
    `table` tells everything else of the log, and `slicing` the slices of its files and of the groups of `history`.
    """

    uri: str
    table_id: str
    version: int
    columns: Mapping[str, str]
    nodes: Mapping[str, Node]
    widened: Mapping[str, str]
    layout: FileLayout
    files: tuple[PinnedFile, ...]
    earlier: tuple[PinnedFile, ...]
    data_ms: tuple[int, ...]
    unknown: frozenset[str]
    history: CommitHistory
    _coordinates: Mapping[str, LogCoordinates]
    _known: KnownLog
    slicing: Slicing = field(compare=False, repr=False)
    table: LogVersion = field(compare=False, repr=False)
    log_files: LogFiles = field(compare=False, repr=False)

    @property
    def fields(self) -> tuple[Mapping[str, Any], ...]:
        """The columns as in the schema of the log, with `string` in place of each VARIANT."""
        return tuple({**field, "type": without_variants(field["type"])} for field in self.layout.fields)

    @property
    def records(self) -> int:
        """The number of records in the files; of files without statistics, an estimate by their bytes."""
        return sum(self.slice_records().values())

    def slice_records(self) -> dict[str, int]:
        """Return slice_id -> the number of its records, for the slices that have files; counted as `records`."""
        counted: dict[str, int] = {}
        for file in self.files:
            records = file.bytes // BYTES_PER_RECORD if file.records is None else file.records
            counted[file.slice_id] = counted.get(file.slice_id, 0) + records
        return counted

    @property
    def before(self) -> "PinnedLog":
        """The same log with the files of `earlier` alone."""
        return replace(self, files=self.earlier, earlier=())

    @property
    def whole(self) -> "PinnedLog":
        """The same log with the files of `earlier` as well."""
        return replace(self, files=(*self.earlier, *self.files), earlier=()) if self.earlier else self

    def partitions(self) -> dict[str, str]:
        """Return partition value -> slice_id, for the values that have files."""
        return {file.value: file.slice_id for file in self.files}

    @property
    def is_partitioned(self) -> bool:
        return is_partitioned(self.table, self.slicing.cut.by)

    def refuse_replaced(self) -> None:
        """Compare the files with the listing of the pin, if the writer of the log may replace files.

        Raises LogError: names a file that was removed or replaced since.
        """
        refuse_replaced(self.whole.covered_files())

    def place(self, file: PinnedFile) -> str:
        """Return the absolute path of a file in the file system of the log."""
        return place_of(self.layout.root, file.path)

    def in_log_order(self) -> tuple[PinnedFile, ...]:
        """Return the files in the order of the slices, and of appending in a slice. They need row ids."""
        starts = {slice_id: number for number, slice_id in enumerate(self._coordinates)}

        def order(file: PinnedFile) -> tuple[int, int, int]:
            assert file.appended is not None, "the log was pinned with its row ids"
            return starts[file.slice_id], *file.appended

        return tuple(sorted(self.files, key=order))

    def unordered(self, order: CommitOrder) -> frozenset[str]:
        """Return the slices that have lost an order of commits. The log need not be pinned with an order."""
        log, files = self.table, self.whole.files
        return unordered_slices(log, files, self.log_files, live=log.files(), order=order)

    def moved(self) -> dict[int, tuple[int, int]]:
        """Return the first row id of each file whose row ids are not in the order of appending -> its place in it."""
        return {
            file.row_ids.base_row_id: file.appended
            for file in self.files
            if file.row_ids is not None
            and file.appended is not None
            and file.appended != (file.row_ids.commit_version, file.row_ids.base_row_id)
        }

    def coordinates(self, slice_id: str) -> LogCoordinates:
        """Return the coordinates of a slice's input. No fingerprint covers them (docs/explanation/laws.md)."""
        return self._coordinates[slice_id]

    def newest_data_ms(self) -> int | None:
        """Return when the newest commit that adds data was made; None if the log has no file of it any more.

        Raises LogError: a commit file is damaged or empty.
        """
        with log_errors(self.uri, "reading the newest commit"):
            return newest_data_ms(self.log_files, self.version)

    def covered_files(self) -> tuple[CoveredFile, ...]:
        """Return the files in the order of their paths, with the digests that earlier readings of them have stored."""
        return covered_files(self.table, self.files, known=self._known)

    def known(self) -> KnownLog:
        """Return the results of this read, which make the next `pin_log` cheaper."""
        seen = {
            slice_id: (replace(own, file_digests="".join(self._known.file_digests(self.table_id, slice_id))),)
            for slice_id, own in self._coordinates.items()
        }
        commit = commit_digest(self.log_files, self.version)
        read = frozenset((coordinates.since, coordinates.sound) for coordinates in self._coordinates.values())
        return KnownLog(
            sound={self.table_id: self.history.sound},
            read={self.table_id: read},
            seen=seen,
            log_digests=self._known.log_digests,
            accepted=self._known.accepted,
            commits=self._known.commits | {SeenCommit(self.table_id, self.version, commit)},
            opened=self.table,
        )


def pin_log(
    place: LogPlace,
    *,
    by: SliceGrammar,
    slices: Sequence[Slice] | LookBack,
    version: int | None = None,
    known: KnownLog | None = None,
    order: CommitOrder | None = None,
    few_commits: int = FEW_COMMITS,
    may_be_changed: bool = False,
) -> PinnedLog:
    """Return the input of a replay: one version of the log, and the files of `slices` in it.

    `slices` are to be replayed, contiguous and ascending; perhaps with those before that are read as well. The default
    `version` is the newest. Commits that `known` covers are not read again. With `order`, the records are read in the
    order of commits, or the log is refused. `few_commits` new commits are read although a checkpoint covers them.
    `may_be_changed`, for a look at the log: slices that lost records are not refused, and no data file is asked for.
    Raises LogError: records have no slice, were removed, or have no known order; or a file is lost, or not as written.
    """
    known = known or KnownLog()
    log = _opened_log(place, version, known)
    log_files = known.log_files(log)
    back = slices if isinstance(slices, LookBack) else LookBack(slices=tuple(slices))
    slicing = slicing_of(log, log_files, Cut(uri=log.uri, by=by, slices=back.every))
    sliced = _sliced(slicing)
    if sliced.unknown and not may_be_changed:
        raise next(iter(sliced.unknown.values()))
    files = sliced.files
    by_slice = SliceFiles.grouped(files, back)
    history = known_history(log, slicing, log_files, by_slice=by_slice, known=known, few=few_commits)
    commits = slice_commits(history, slicing, back=back, known=known, log=log, may_be_broken=may_be_changed)
    nothing = _without_files(log, history, log_files, since=known_since(log, history, log_files, known=known))
    if not may_be_changed:
        if order is not None:
            files = with_append_places(log, files, log_files, live=log.files(), order=order)
        refuse_damage(log, files, accepted=known.accepted_of(log.table_id).values())
    return PinnedLog(
        uri=log.uri,
        table_id=log.table_id,
        version=log.version,
        columns=log.columns,
        nodes={name: without_metadata(without_variants(node)) for name, node in log.nodes.items()},
        widened=log.widened,
        layout=_layout(log, log_files.root),
        files=by_slice.own(files),
        earlier=by_slice.earlier(files),
        data_ms=sliced.data_ms,
        unknown=frozenset(sliced.unknown),
        history=history,
        _coordinates=by_slice.coordinates(
            nothing,
            commits,
            columns=followed_columns(history, known, log=log),
            since=own_since(log, history, by_slice, known=known),
        ),
        _known=known,
        slicing=slicing,
        table=log,
        log_files=log_files,
    )


def _sliced(slicing: Slicing) -> SlicedFiles:
    """Return the files of the slices; raise a LogError if records belong to no slice."""
    sliced = slicing.sliced()
    if sliced.refusal is not None:
        raise sliced.refusal
    return sliced


def _without_files(log: LogVersion, history: CommitHistory, files: LogFiles, *, since: int) -> LogCoordinates:
    """Return the coordinates of a slice without files. `history.sound` looks at all partitions, so it is read once."""
    return LogCoordinates(
        table_id=log.table_id,
        version=log.version,
        commits=(),
        files=0,
        records=0,
        bytes=0,
        since=since,
        sound=history.sound if log.has_commits else NO_COMMITS,
        log_digests=files.new_digests(),
        columns=log.column_hashes,
    )


def files_of_slices(log: LogVersion, *, by: SliceGrammar, slices: Sequence[Slice]) -> tuple[PinnedFile, ...]:
    """Return the files that a version of the log has for some slices. They need not be contiguous.

    Raises LogError: as for `pin_log`, without a look at the commits and at the files themselves, and not for records
    that belong to no slice.
    """
    return slicing_of(log, log.log_files(), Cut(uri=log.uri, by=by, slices=tuple(slices))).sliced().files


def _opened_log(place: LogPlace, version: int | None, known: KnownLog) -> LogVersion:
    """Return the log at a version (None: the newest), which may be the table that `known` has.

    Raises LogError: as for `LogPlace.open`.
    """
    opened = known.opened
    if opened is None or opened.uri != place.uri:
        return place.open(version)
    is_asked = place.is_newest(opened.version) if version is None else opened.version == version
    return opened if is_asked else place.open(version)


def _layout(log: LogVersion, root: str) -> FileLayout:
    return FileLayout(
        root=root,
        fields=log.fields,
        needs_ids=bool(log.field_ids) and not log.may_lack_ids,
        partition_columns=log.partition_columns,
        row_id_column=log.configuration.get(ROW_ID_COLUMN),
        version_column=log.configuration.get(VERSION_COLUMN),
    )
