"""The layout of a chunk: its blocks in log order, and its slices along the sequence numbers of the records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.replay.intake.blocks import Block
from jobs.runs import Slice
from jobs.storage import file_system
from windowlib.columnar.watermark_steps import SliceRange
from windowlib.libraries import pa, pq


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The blocks of a chunk in log order, and the slices along its sequence numbers, which are 0, 1, 2 ..."""

    blocks: tuple[Block, ...]
    ranges: tuple[SliceRange, ...]

    @property
    def records(self) -> int:
        return self.ranges[-1].end_sequence

    def first(self, slice_no: int) -> int:
        return self.ranges[slice_no - 1].end_sequence if slice_no else 0


def layout_of(ordered: Mapping[int, Sequence[Block]], slices: Sequence[Slice]) -> Layout:
    """Return the layout of blocks that are in log order.

    `ordered` maps the place of a slice to its blocks, without their places in the chunk and in the slice.
    """
    blocks: list[Block] = []
    ranges: list[SliceRange] = []
    sequence = 0
    for place, slice_ in enumerate(slices):
        rank = 0
        for block in ordered.get(place, ()):
            own = rank if not block.runs else 0
            blocks.append(block._replace(sequence=sequence - rank + own, rank=own))
            sequence, rank = sequence + block.records, rank + block.records
        ranges.append(SliceRange(slice_no=place, start_ms=slice_.start_ms, end_ms=slice_.end_ms, end_sequence=sequence))
    return Layout(blocks=tuple(blocks), ranges=tuple(ranges))


def parts_of(whole: Block, *, uri: str, records_per_block: int) -> list[Block]:
    """Cut a whole file of the log at `uri` at its row groups, into parts of about so many records.

    If the row groups do not add up, the file stays whole: the scan reports it.
    """
    if whole.records <= records_per_block:
        return [whole]
    footer = footer_of(whole, uri)
    rows = [] if footer is None else [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    if sum(rows) != whole.records:
        return [whole]
    return joined_groups(whole, [(whole.commit, records) for records in rows], records_per_block=records_per_block)


def joined_groups(whole: Block, groups: Iterable[tuple[int, int]], *, records_per_block: int) -> list[Block]:
    """Return blocks of the row groups of a file, given as (commit, records). A block has records of one commit."""
    parts: list[Block] = []
    row = 0
    for number, (commit, records) in enumerate(groups):
        before = parts[-1] if parts else None
        if before is not None and before.commit == commit and before.records + records <= records_per_block:
            joined = (*(before.row_groups or ()), number)
            parts[-1] = before._replace(records=before.records + records, row_groups=joined)
        else:
            parts.append(whole._replace(commit=commit, row=row, records=records, row_groups=(number,)))
        row += records
    return parts


def footer_of(block: Block, uri: str) -> "pq.FileMetaData | None":
    """Return the footer of the file of a block; None if it cannot be read, which the scan reports."""
    system, path = file_system(block.path) if block.is_copied else (file_system(uri)[0], block.path)
    try:
        return pq.read_metadata(path, filesystem=system)
    except (OSError, pa.ArrowException):
        return None
