"""Slices of a log without a partition of the arrival: by a column of times, told from the statistics of the files.

A file whose records are all in one slice is a file of this slice. Of a file with records of several slices, the row
groups whose statistics tell no single slice are read, only this column of them, and the records of each slice are
counted. So the number of records of a slice is exact, and a file is listed only for slices that it has records of.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from typing_extensions import override

from jobs.lake.damage import log_errors
from jobs.lake.log_files import place_of
from jobs.lake.log_version import DataFile, DeletedRows, LogVersion
from jobs.lake.parquet_files import open_parquet
from jobs.lake.pinned_files import PinnedFile, SlicePart
from jobs.lake.slice_instants import Span, TimeKind, slice_instants, statistics_span
from jobs.lake.slicing import EVER, SlicedFiles, Slicing, null_slices, overlapped
from jobs.pipeline.slices import SliceGrid, first_edge_ms, last_edge_ms
from jobs.runs import Slice
from jobs.storage import file_system
from windowlib.errors import LogError
from windowlib.libraries import np, pa, pc, pq

READERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileTimes:
    """The times of a file: their span (None: there are none), the number of nulls, and the records of each slice.

    `former` is the span before a deletion vector hid rows, if the file has one.
    """

    span: Span | None
    nulls: int
    records: Mapping[str, int]
    former: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSlicing(Slicing):
    """Slices by a column of times that is no partition column. A group is a slice, or OUTSIDE.

    `_spans` has the span of each file whose groups were told, so that its `add` and its `remove` have equal groups.
    `_former` has the version at which the spans of removed files were looked for, if a `remove` did not tell them.
    """

    _spans: dict[str, Span] = field(default_factory=dict)
    _former: list[int] = field(default_factory=list)

    @property
    def column(self) -> str:
        return self.cut.by.columns[0]

    @override
    def sliced(self) -> SlicedFiles:
        known = self._known_times()
        unknown = [file for file in self.log.files() if file.records != 0 and file.path not in known]
        system, root = file_system(self.log.uri)

        def read(file: DataFile) -> _FileTimes:
            with (
                log_errors(self.log.uri, f"reading the slice column of {file.path}"),
                system.open_input_file(place_of(root, file.path)) as data,
            ):
                return self._read_times(data, file.deleted)

        with ThreadPoolExecutor(max_workers=READERS) as pool:
            times = known | dict(zip((file.path for file in unknown), pool.map(read, unknown), strict=True))
        nulls = [file_times.nulls for file_times in times.values()]
        refusal = null_slices(self.log, self.cut.by, nulls) if any(nulls) else None
        self._spans.update({path: own.span for path, own in times.items() if own.span is not None})
        refusal = refusal or self._refusal_of_far()
        # The commit that hid rows has removed them from the days that the file had before.
        self._spans.update({path: own.former for path, own in times.items() if own.former is not None})
        files = [pin for file in self.log.files() if file.path in times for pin in self._parts(file, times[file.path])]
        return SlicedFiles(files=tuple(files), data_ms=self._data_ms(times.values()), refusal=refusal)

    def _refusal_of_far(self) -> LogError | None:
        """Return that records are outside the years 1 to 9999, where no slice is; None if the bounds leave them out."""
        by = self.cut.by
        grid = SliceGrid(every_ms=by.every_ms, zone=by.zone, first_ms=None, last_ms=None)
        for path, span in self._spans.items():
            if span.first_ms < first_edge_ms(grid) and by.first is None:
                is_where, key = "before the year 1", "first"
            elif span.last_ms >= last_edge_ms(grid) and by.last is None:
                is_where, key = "after the year 9999", "last"
            else:
                continue
            return LogError(
                f"event log {self.log.uri} has in file {path} a record whose slice column {self.column!r} is {is_where}"
                f", where no slice is. Remove the record, or set `log.slice.{key}`, which leaves it out"
            )
        return None

    def _known_times(self) -> dict[str, _FileTimes]:
        """Return the times of the files whose statistics tell them: all in one slice of the range, or outside of it."""
        known: dict[str, _FileTimes] = {}
        files = {file.path: file for file in self.log.files()}
        for path, low, high, nulls in self._bounds(self.log):
            span, count = Span.of(low, high), files[path].records
            slices = overlapped(self.cut, span)
            if nulls and files[path].deleted is not None:
                continue  # the rows with a null may be deleted
            if count and (nulls or not slices or self._is_in(slices[0], span)):
                records = {slices[0].slice_id: count} if slices else {}
                known[path] = _FileTimes(span=span, nulls=nulls, records=records)
        return known

    def _instants(self, values: "pa.Array") -> "pa.Array":
        kind = cast("TimeKind", self.log.nodes[self.column])
        return slice_instants(values, kind, self.cut.by.zone)

    @staticmethod
    def _is_in(slice_: Slice, span: Span) -> bool:
        return slice_.start_ms <= span.first_ms and span.last_ms < slice_.end_ms

    def _read_times(self, data: "pa.NativeFile", deleted: DeletedRows | None) -> _FileTimes:
        """Return the times of a file. Row groups whose statistics tell their slice are not read.

        The statistics count deleted rows, too, so a file with such rows is read.
        """
        from jobs.lake.conforming import stored_names  # it imports numpy

        file = open_parquet(data, coerce_int96_timestamp_unit="us")  # as the tasks do; ns have no year after 2262
        column = next(field for field in self.log.fields if field["name"] == self.column)
        (name,) = stored_names([column], file.schema_arrow)
        if name is None:  # the column was added to the table later
            nulls = file.metadata.num_rows - (0 if deleted is None else deleted.count)
            return _FileTimes(span=None, nulls=nulls, records={})
        if deleted is not None:
            values = file.read(columns=[name]).column(0).combine_chunks()
            left = self._times_in(values.filter(pa.array(deleted.is_kept(0, len(values)))))
            return replace(left, former=self._times_in(values).span)
        groups = [self._read_group(file, group, name) for group in range(file.num_row_groups)]
        spans = [group.span for group in groups if group.span is not None]
        records: Counter[str] = Counter()
        for group in groups:
            records.update(group.records)
        span = Span(min(own.first_ms for own in spans), max(own.last_ms for own in spans)) if spans else None
        return _FileTimes(span=span, nulls=sum(group.nulls for group in groups), records=records)

    def _read_group(self, file: "pq.ParquetFile", group: int, name: str) -> _FileTimes:
        footer = file.metadata.row_group(group)
        statistics = footer.column(file.schema_arrow.names.index(name)).statistics if _is_flat(file) else None
        kind = file.schema_arrow.field(name).type
        is_exact = pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit in {"ms", "us"})
        if is_exact and statistics is not None and statistics.has_min_max and statistics.has_null_count:
            bounds = pa.array([statistics.min_raw, statistics.max_raw], kind)  # Python has no year after 9999
            span = Span.of(*self._instants(bounds).to_pylist())
            slices = overlapped(self.cut, span)
            if not slices or self._is_in(slices[0], span):
                rows = footer.num_rows - statistics.null_count
                records = {slices[0].slice_id: rows} if slices else {}
                return _FileTimes(span=span, nulls=statistics.null_count, records=records)
        return self._times_in(file.read_row_group(group, columns=[name]).column(0).combine_chunks())

    def _times_in(self, column: "pa.Array") -> _FileTimes:
        instants = self._instants(column)
        values = np.sort(pc.drop_null(instants).to_numpy(zero_copy_only=False))
        span = Span(int(values[0]), int(values[-1])) if len(values) else None
        return _FileTimes(span=span, nulls=instants.null_count, records=dict(self._counted(values, span)))

    def _counted(self, values: "np.ndarray[Any, Any]", span: Span | None) -> Iterator[tuple[str, int]]:
        """Yield the slices of sorted instants with the number of instants in each."""
        for slice_ in () if span is None else overlapped(self.cut, span):
            first, end = np.searchsorted(values, [slice_.start_ms, slice_.end_ms])
            if end > first:
                yield slice_.slice_id, int(end - first)

    def _parts(self, file: DataFile, times: _FileTimes) -> Iterator[PinnedFile]:
        """Yield a file once for each slice that it has records of; as a whole if it has records of no other slice."""
        for slice_ in () if times.span is None else overlapped(self.cut, times.span):
            records = times.records.get(slice_.slice_id, 0)
            if not records:
                continue
            is_whole = self._is_in(slice_, times.span) if times.span is not None else False
            part = None if is_whole else SlicePart(slice_.start_ms, slice_.end_ms)
            yield replace(PinnedFile.of(file, slice_id=slice_.slice_id), part=part, records=records)

    def _data_ms(self, times: Iterable[_FileTimes]) -> tuple[int, ...]:
        """Return instants of all slices that have records. Outside the range, those are of the bounds of files."""
        instants: set[int] = set()
        starts = {slice_.slice_id: slice_.start_ms for slice_ in self.cut.slices}
        for file_times in times:
            if file_times.span is not None:
                instants.update(file_times.span)
                instants.update(max(starts[slice_id], file_times.span.first_ms) for slice_id in file_times.records)
        return tuple(sorted(instants))

    @override
    def span(self, path: str, action: Mapping[str, Any], *, version: int) -> Span:
        """Return the span of the times of a file. A `remove` may have no statistics, so the `add` told it.

        If the `add` was not read, because it is older than the commits to read, the version before the removal tells.
        """
        if path not in self._spans:
            name = self.log.physical[self.column]
            span = statistics_span(action.get("stats"), name, self.cut.by.zone)
            if span is None and "modificationTime" not in action and not self._former:  # only an `add` has it
                self._former.append(version - 1)
                self._spans.update(self._spans_at(version - 1) | self._spans)
            self._spans.setdefault(path, span or EVER)
        return self._spans[path]

    def _spans_at(self, version: int) -> dict[str, Span]:
        """Return file -> the span of its times, for the files of an earlier version; none if it cannot be opened."""
        former = self.log.former(version)
        if former is None:
            return {}
        return {path: Span.of(low, high) for path, low, high, _ in self._bounds(former)}

    def _bounds(self, log: LogVersion) -> Iterator[tuple[str, int, int, int]]:
        """Yield path, least and greatest instant and number of nulls of the files of a version with statistics."""
        bounds = log.bounds(self.column)
        lows, highs = (self._instants(bounds[name].combine_chunks()).to_pylist() for name in ("low", "high"))
        return zip(bounds["path"].to_pylist(), lows, highs, bounds["nulls"].to_pylist(), strict=True)


def _is_flat(file: "pq.ParquetFile") -> bool:
    """Return whether each column of the footer is one column of the schema, so that both have equal positions."""
    return bool(file.metadata.num_columns == len(file.schema_arrow.names))
