"""The order of a chunk's records, from the metadata of its files: no record is read or sorted.

The pinned log has the place of each file in the order of appending (`PinnedFile.appended`). A file that no OPTIMIZE has
written is in this order inside. So log order is: slice, commit, place of the file in it, row in the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.lake.event_log import PinnedLog
from jobs.lake.pinned_files import AppendPlace, PinnedFile
from jobs.replay.files.blocks import Block
from jobs.runs import Slice
from jobs.storage import file_system
from windowlib.columnar.plan import SliceRange
from windowlib.columnar.steps import Int64s
from windowlib.errors import InvariantBroken, LogError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The blocks of a chunk in log order, and the slices along its sequence numbers, which are 0, 1, 2 ..."""

    blocks: tuple[Block, ...]
    ranges: tuple[SliceRange, ...]

    @property
    def records(self) -> int:
        """The number of records in the chunk."""
        return self.ranges[-1].end_sequence

    def first(self, slice_no: int) -> int:
        """Return the sequence number of the first record of a slice."""
        return self.ranges[slice_no - 1].end_sequence if slice_no else 0

    def locate(self, sequence: Int64s) -> tuple[Int64s, Int64s]:
        """Return the arrays (slice_no, rank) of sequence numbers. A number before all records gives the first."""
        inside = np.clip(sequence, 0, max(self.records - 1, 0))
        if len(self.ranges) == 1:
            return np.zeros(len(inside), dtype=np.int64), inside
        ends = np.array([one.end_sequence for one in self.ranges], dtype=np.int64)
        firsts = np.concatenate(([0], ends[:-1]))
        slice_no = np.minimum(np.searchsorted(ends, inside, side="right"), len(ends) - 1)
        return slice_no.astype(np.int64), np.maximum(inside - firsts[slice_no], 0)


def layout_of(pinned: PinnedLog, slices: Sequence[Slice], *, records_per_block: int) -> Layout:
    """Return the layout of a chunk.

    Args:
        pinned: a log that tasks may read directly.
        slices: the slices of the chunk, in order.
        records_per_block: a file with more records is read in several blocks, at its row groups.

    Raises:
        LogError: the footer of a file cannot be read.
    """
    numbers = {one.slice_id: number for number, one in enumerate(slices)}
    files = sorted(pinned.files, key=lambda file: (numbers[file.slice_id], *_place(file)))
    commits = _commit_numbers(files)
    blocks: list[Block] = []
    sequence, rank, slice_no = 0, 0, -1
    ends = [0] * len(slices)
    for file in files:
        if numbers[file.slice_id] != slice_no:
            slice_no, rank = numbers[file.slice_id], 0
        path = pinned.place(file)
        whole = Block(
            path=path,
            named=file.path,
            partition=file.values,
            slice_no=slice_no,
            commit=commits[file.slice_id, _place(file).commit],
            sequence=sequence,
            rank=rank,
            row=0,
            records=_records(pinned, file, path),
        )
        blocks += _parts(pinned, whole, records_per_block)
        sequence, rank = sequence + whole.records, rank + whole.records
        ends[slice_no] = sequence
    ranges = []
    for number, one in enumerate(slices):
        ends[number] = max(ends[number], ends[number - 1] if number else 0)
        ranges.append(SliceRange(slice_no=number, start_ms=one.start_ms, end_ms=one.end_ms, end_sequence=ends[number]))
    return Layout(blocks=tuple(blocks), ranges=tuple(ranges))


def _place(file: PinnedFile) -> AppendPlace:
    if file.appended is None:
        raise InvariantBroken(f"file {file.path} has no row ids, and was to be read in their order; please report this")
    return file.appended


def _commit_numbers(files: Sequence[PinnedFile]) -> Mapping[tuple[str, int], int]:
    """Return (slice, commit version) -> number of the commit in the slice, from 0; `files` are in log order."""
    numbers: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    for file in files:
        place = file.slice_id, _place(file).commit
        if place not in numbers:
            numbers[place] = counts.get(file.slice_id, 0)
            counts[file.slice_id] = numbers[place] + 1
    return numbers


def _records(pinned: PinnedLog, file: PinnedFile, path: str) -> int:
    if file.records is not None:
        return file.records
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path, filesystem=file_system(pinned.uri)[0]).num_rows)
    except (OSError, ValueError) as error:
        raise LogError(
            f"file {file.path} (slice {file.slice_id}) of version {pinned.version} of event log {pinned.uri} cannot be "
            "read: it is damaged. Restore it from a backup, or replay a range that does not need it"
        ) from error


def _parts(pinned: PinnedLog, whole: Block, records_per_block: int) -> list[Block]:
    """Cut a block at row groups. A file whose row groups do not add up stays whole: the scan reports it."""
    if whole.records <= records_per_block:
        return [whole]
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(whole.path, filesystem=file_system(pinned.uri)[0])
    except (OSError, pa.ArrowException):
        return [whole]
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if sum(rows) != whole.records:
        return [whole]
    parts: list[Block] = []
    groups: list[int] = []
    start = count = 0
    for group, number in enumerate(rows):
        if groups and count + number > records_per_block:
            parts.append(_part(whole, start, records=count, groups=groups))
            start, count, groups = start + count, 0, []
        groups.append(group)
        count += number
    return [*parts, _part(whole, start, records=count, groups=groups)]


def _part(whole: Block, start: int, *, records: int, groups: Sequence[int]) -> Block:
    return whole._replace(
        sequence=whole.sequence + start, rank=whole.rank + start, row=start, records=records, row_groups=tuple(groups)
    )
