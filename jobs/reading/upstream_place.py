"""An event log that is a table of another pipeline, as it is published.

The rows of each slice are stored in a Parquet file whose name is a digest of them. So a slice has another file if its
rows are others, and no file is ever changed. The directory `<lake>/<pipeline>/upstream` belongs to the pipeline that
reads the log. It is a cache: if it is removed, the next opening of the log makes the same files again.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from urllib.parse import quote

from pydantic import TypeAdapter
from typing_extensions import override

from jobs.disk_errors import may_write, writing
from jobs.durability import Put, durable_files
from jobs.durations import format_duration
from jobs.engine.fingerprints import fingerprint
from jobs.lake.damage import log_errors
from jobs.lake.delta_tables import is_newest
from jobs.lake.lake import Lake
from jobs.lake.leftover_files import UPSTREAM
from jobs.lake.log_files import encoded_path
from jobs.lake.log_version import LogTip
from jobs.lake.parquet_files import write_parquet
from jobs.lake.parquet_listing import ListedParquet, ParquetListing
from jobs.lake.parquet_place import ParquetVersion, listed_facts
from jobs.lake.store import table_columns
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.log_schema import read_columns
from jobs.pipeline.models.log import SliceGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.upstream import SLICE_COLUMN
from jobs.pipeline.slices import slice_at, slice_grid
from jobs.reading.published import published_runs
from jobs.reading.stored_tables import own_columns, spec_of
from jobs.reading.upstream_records import SliceRows, UpstreamSlice, record_names, rows_of, upstream_slices
from jobs.runs import Slice
from jobs.storage import file_system, make_directory, write_bytes
from jobs.wall_clock import now_ms
from windowlib.errors import LogError, SpecError
from windowlib.libraries import pafs
from windowlib.records.column_types import Node, struct_fields
from windowlib.records.row_ids import NO_ROWS

SLICES_AT_ONCE: Final = 64
"""The rows of so many slices are read together."""
_INDEX: Final = "_index.json"


class NothingPublishedError(LogError):
    """The other pipeline has published nothing, or has rolled back everything. No file is damaged."""


@dataclass(frozen=True, kw_only=True)
class UpstreamVersion(ParquetVersion):
    """The published rows at a version of the other pipeline's ledger.

    `own` maps a published slice to the keys and outputs that all runs have of which its records are. `every` has those
    of all these runs.
    """

    reader: Pipeline
    own: Mapping[str, frozenset[str]]
    every: frozenset[str]
    other_cut: Sequence[tuple[Slice, str]]
    why_not_accepted: str = (
        "the log is a table of another pipeline. If that publishes other rows, their slices are `input changed` "
        "without a decision"
    )

    @override
    def is_whole(self, slice_: Slice) -> bool:
        return slice_.slice_id in self.own

    @override
    def missing(self, slices: Sequence[Slice]) -> dict[str, str]:
        upstream = self.reader.log.pipeline
        named = read_columns(self.reader, self.columns) & self.every
        missing = dict[str, str]()
        for slice_ in slices:
            own = self.own.get(slice_.slice_id)
            if own is None:
                within = (every for other, every in self.other_cut if slice_.overlaps(other))
                every = next(within, None)
                missing[slice_.slice_id] = f"pipeline {upstream} has " + (
                    "not published it" if every is None else f"published its time in slices of {every}"
                )
            elif lacking := sorted(named - own):
                missing[slice_.slice_id] = (
                    f"pipeline {upstream} has published it with a spec that has no column {', '.join(lacking)} (it has "
                    f"{', '.join(sorted(own))}), and the spec of pipeline {self.reader.name} names it"
                )
        return missing


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamPlace:
    """A table of another pipeline as the event log of `pipeline` (`LogPlace`)."""

    lake: Lake
    pipeline: Pipeline
    slices_at_once: int = field(default=SLICES_AT_ONCE, repr=False)

    @property
    def upstream(self) -> str:
        """The name of the other pipeline."""
        name = self.pipeline.log.pipeline
        assert name is not None, "the log is a table of a pipeline"
        return name

    @property
    def uri(self) -> str:
        """The directory of the files."""
        return self.lake.table(self.pipeline.name, UPSTREAM)

    def open(self, version: int | None = None) -> UpstreamVersion:
        """Return the rows that are published at a version of the other pipeline's ledger (None: the newest).

        Files that do not exist yet are written.

        Raises:
            NothingPublishedError: nothing is published.
            LogError: the table does not exist, or no pane is known to be final.
            SpecError: as for `check`.
            StoreError, LedgerError: the other pipeline's tables cannot be read, or differ from its ledger.
        """
        view = self._ledger().view(version)
        self.check(view)
        log = self.pipeline.log
        slices = [part for part in upstream_slices(self.lake, view, log) if self._nests(view, part.run)]
        own: dict[Slice, list[frozenset[str]]] = {slice_: [] for slice_ in self.slices(view)}
        for part in slices:
            own.get(self._slice_of(view, part.run), []).extend(_own(view, part, table=log.table))
        every = frozenset[str]().union(*(columns for sets in own.values() for columns in sets))
        facts = listed_facts(self._listing(view, slices), is_replaceable=False)
        facts["nodes"] = {**facts["nodes"], **self._without_values(facts["nodes"])}
        return UpstreamVersion(
            version=view.version,
            table_id=f"pipeline-{fingerprint([log.pipeline, log.table, log.panes])[:16]}",
            **facts,
            reader=self.pipeline,
            own={slice_.slice_id: every.intersection(*sets) for slice_, sets in own.items()},
            every=every,
            other_cut=[
                (run.result.slice, format_duration(spec_of(view, run).log.slice.every_ms))
                for run in published_runs(view)
                if not self._nests(view, run)
            ],
        )

    def _without_values(self, nodes: Mapping[str, Node]) -> dict[str, Node]:
        """Return the columns of the records that no file has, because no record has a value."""
        log = self.pipeline.log
        record = table_columns(self.lake.table(self.upstream, log.table)).get("record", "string")
        fields = struct_fields(record)
        return {column: fields[name] for name, column in record_names(fields, log).items() if column not in nodes}

    def is_newest(self, version: int) -> bool:
        """Return whether the other pipeline's ledger has this version, and no newer one. No file is read."""
        return is_newest(self.lake.ledger(self.upstream), version)

    def tip(self) -> LogTip:
        """Return the newest state of what is published. No row is read.

        Raises NothingPublishedError: nothing is published.
        """
        view = self._ledger().view()
        self._newest_run(view)
        system, root = file_system(self.uri)
        listing = ParquetListing(uri=self.uri, system=system, root=root, files=())
        return LogTip(version=view.version, commit=fingerprint(dict(view.published)), files=listing.log_files())

    def files_since(self, since_ms: int) -> frozenset[str]:
        """Return the paths of the files that the log has now, or had at a publication since an instant. Reads no row.

        Raises LogError, StoreError, LedgerError: as for `open`.
        """
        view, log, store = self._ledger().view(), self.pipeline.log, _Store.of(self.uri)
        before = [publication.seq for publication in view.publications if publication.at_ms <= since_ms]
        since = [publication.seq for publication in view.publications if publication.at_ms > since_ms]
        paths: set[str] = set()
        for seq in (*before[-1:], *since):
            seen = view.published_at(seq)
            published = {slice_id: run_id for slice_id, run_id in sorted(seen.items()) if run_id in view.runs}
            slices = upstream_slices(self.lake, replace(view, published=published), log)
            paths.update(store.place(slice_, slice_.digest(log)) for slice_ in slices)
        return frozenset(paths)

    def _ledger(self) -> Ledger:
        return Ledger(self.lake.ledger(self.upstream), now_ms=now_ms)

    def slices(self, view: LedgerView) -> tuple[Slice, ...]:
        """Return the slices of the reader that are published, whole or in shorter slices."""
        published_ms = Counter[Slice]()
        for run in published_runs(view):
            if self._nests(view, run):
                published_ms[self._slice_of(view, run)] += run.result.slice.end_ms - run.result.slice.start_ms
        return tuple(slice_ for slice_, ms in published_ms.items() if ms == slice_.end_ms - slice_.start_ms)

    def lacking(self, own: LedgerView, slice_ids: Iterable[str]) -> frozenset[str]:
        """Return the slices of the reader that are not published now, neither as they are cut nor in shorter slices.

        `own` is a view of the reader's ledger.
        """
        view = self._ledger().view()
        readable = {*(run.result.slice for run in published_runs(view)), *self.slices(view)}
        return frozenset(slice_id for slice_id in slice_ids if own.slices.get(slice_id) not in readable)

    def _slice_of(self, view: LedgerView, run: StagedRun) -> Slice:
        """Return the slice of the reader that has the slice of a run."""
        slice_ = run.result.slice
        fits = spec_of(view, run).log.slice.cut == self.pipeline.log.slice.cut
        return slice_ if fits else slice_at(slice_grid(self.pipeline), slice_.start_ms)

    def _nests(self, view: LedgerView, run: StagedRun) -> bool:
        """Return whether the slice of a run is one of the reader, or a part of one."""
        return reads_slices_of(self.pipeline, spec_of(view, run).log.slice)

    def check(self, view: LedgerView) -> None:
        """Check the ledger of the other pipeline.

        Raises:
            NothingPublishedError: nothing is published.
            SpecError: no published slice is one of the reader or a part of one, or the pipelines read each other.
        """
        log, source = self.pipeline.log, self.pipeline.source
        theirs = spec_of(view, self._newest_run(view)).log.slice
        if not any(self._nests(view, run) for run in reversed(published_runs(view))):
            raise SpecError(
                f"{source}: log.slice: the slices must be those of pipeline {self.upstream}: found {_cut(log.slice)}, "
                f"allowed: {_cut(theirs)}"
            )
        path = [self.pipeline.name, self.upstream]
        while (further := _upstream_of(view)) is not None:
            path.append(further)
            if further in path[:-1]:
                raise SpecError(f"{source}: log.pipeline: pipelines read each other: {' -> '.join(path)}")
            view = Ledger(self.lake.ledger(further), now_ms=now_ms).view()

    def _newest_run(self, view: LedgerView) -> StagedRun:
        """Return the newest published run of the other pipeline; raises `NothingPublishedError` if there is none."""
        if runs := published_runs(view):
            return runs[-1]
        raise NothingPublishedError(
            f"pipeline {self.upstream} has published nothing in lake {self.lake.root}, and its "
            f"{self.pipeline.log.table} is the log of pipeline {self.pipeline.name}; "
            f"`hindcast status {self.upstream}` shows its open requests"
        )

    def _listing(self, view: LedgerView, slices: Sequence[UpstreamSlice]) -> ParquetListing:
        """Return the files of slices. Those that do not exist are written before.

        A process that may not write there, such as Airflow's API server in its container, has its own directory.
        """
        log, store = self.pipeline.log, _Store.of(self.uri)
        made_of = [slice_.digest(log) for slice_ in slices]
        if not all(map(store.has, slices, made_of)) and not may_write(self.uri):
            store = store.own_copy()
        lacking = [
            (slice_, digest) for slice_, digest in zip(slices, made_of, strict=True) if not store.has(slice_, digest)
        ]
        for first in range(0, len(lacking), self.slices_at_once):
            together = lacking[first : first + self.slices_at_once]
            made = rows_of(self.lake, view, log, slices=[slice_ for slice_, _ in together])
            store.add((own, digest) for (_, digest), own in zip(together, made, strict=True))
        if lacking:
            store.write_index()
        files = (store.file(slice_, digest) for slice_, digest in zip(slices, made_of, strict=True))
        listed = tuple(sorted(files, key=lambda file: file.path))
        return ParquetListing(uri=store.uri, system=store.system, root=store.root, files=listed)


@dataclass(slots=True, kw_only=True)
class _Store:
    """The files in the directory: path -> size; and digest of what a slice is made of -> digest of its rows."""

    uri: str
    system: "pafs.FileSystem"
    root: str
    sizes: dict[str, int]
    index: dict[str, str]

    @classmethod
    def of(cls, uri: str) -> "_Store":
        """Read a directory, which may not exist. A damaged index is as good as none."""
        with log_errors(uri, "listing its files"):
            system, root = file_system(uri)
            infos = system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
            sizes = {info.path.removeprefix(f"{root}/"): info.size for info in infos if info.type == pafs.FileType.File}
            index: dict[str, str] = {}
            if _INDEX in sizes:
                with system.open_input_stream(f"{root}/{_INDEX}") as stream, suppress(ValueError):
                    index = TypeAdapter(dict[str, str]).validate_json(stream.read())
        return cls(uri=uri, system=system, root=root, sizes=sizes, index=index)

    def own_copy(self) -> "_Store":
        """Return the directory of this process, with links to these files."""
        from jobs.spark.private_dir import private_directory  # few processes may not write to the lake

        own = private_directory() / UPSTREAM / fingerprint(self.root)[:16]
        for path in self.sizes:
            (own / path).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                (own / path).symlink_to(f"{self.root}/{path}")
        return self.of(str(own))

    def has(self, slice_: UpstreamSlice, digest: str) -> bool:
        """Return whether the file of a slice exists."""
        return _path(slice_, self.index.get(digest, "")) in self.sizes

    def place(self, slice_: UpstreamSlice, digest: str) -> str:
        """Return the path of the file of a slice in the file system. If the index does not have it, there is none."""
        return f"{self.root}/{_path(slice_, self.index.get(digest, ''))}"

    def add(self, made: Iterable[tuple[SliceRows, str]]) -> None:
        """Write the files of slices, unless there is one with equal rows. Each comes with the digest of its parts."""
        paths = list[str]()
        with durable_files() as put:
            for rows, digest in made:
                path = _path(rows.slice, rows.digest)
                if path not in self.sizes:
                    self._write(put, path, partial(write_parquet, rows=rows.rows))
                    paths.append(path)
                self.index[digest] = rows.digest
        with log_errors(self.uri, "listing its new files"):
            infos = self.system.get_file_info([f"{self.root}/{path}" for path in paths])
        self.sizes |= dict(zip(paths, [info.size for info in infos], strict=True))

    def write_index(self) -> None:
        """Store the index of the files that exist.

        Two processes may replace the index of each other: what it lacks is made again.
        """
        names = {path.rpartition("/")[2].removesuffix(".parquet") for path in self.sizes}
        index = {made_of: digest for made_of, digest in self.index.items() if digest in names}
        text = json.dumps(index, sort_keys=True, indent=0).encode("ascii")
        with durable_files() as put:
            self._write(put, _INDEX, partial(write_bytes, content=text))

    def file(self, slice_: UpstreamSlice, digest: str) -> ListedParquet:
        """Return the file of a slice. Its name tells its rows, so the time of its writing does not matter."""
        path, slice_id = _path(slice_, self.index[digest]), slice_.run.result.slice.slice_id
        place, values = f"{self.root}/{path}", {SLICE_COLUMN: slice_id}
        return ListedParquet(path=encoded_path(path), place=place, values=values, bytes=self.sizes[path], mtime_ns=0)

    def _write(self, put: Put, path: str, write: Callable[[str], None]) -> None:
        """Write a file, whole or not at all, also after a loss of power: its name tells that it is right."""
        place = f"{self.uri}/{path}"
        with log_errors(self.uri, f"writing {path}"), writing(self.uri):
            make_directory(place.rpartition("/")[0])
            put(place, write)


def _path(slice_: UpstreamSlice, digest: str) -> str:
    """Return the path of the file of a slice, relative to the directory."""
    return f"{SLICE_COLUMN}={quote(slice_.run.result.slice.slice_id, safe='')}/{digest}.parquet"


def _own(view: LedgerView, slice_: UpstreamSlice, *, table: str) -> list[frozenset[str]]:
    """Return the keys and outputs of each part of a slice that has rows: the other parts give no record."""
    parts = (part for part in slice_.parts if part.result.digests.get(table) != NO_ROWS)
    return [own_columns(spec_of(view, part), table) for part in parts]


def reads_slices_of(reader: Pipeline, by: SliceGrammar) -> bool:
    """Return whether slices of another pipeline are those of a reader, or parts of them.

    Only final windows go on in their order from one part to the next. The order of other rows begins anew.
    """
    log = reader.log
    return log.slice.cut == by.cut or (log.panes == "final" and log.slice.is_made_of(by))


def _cut(by: SliceGrammar) -> str:
    """Return how slices are cut, as a file states it."""
    return f"{{every: {format_duration(by.every_ms)}, timezone: {by.timezone}}}"


def _upstream_of(view: LedgerView) -> str | None:
    """Return the pipeline whose table the newest published run has read; None if it has read another log."""
    runs = published_runs(view)
    return spec_of(view, runs[-1]).log.pipeline if runs else None
