"""Blocks: contiguous records of a file. A scan task reads some. Tasks import this module, so it is light."""

from collections.abc import Mapping
from typing import NamedTuple

from jobs.lake.log_version import DeletedRows


class Run(NamedTuple):
    """Records of a block that follow each other in log order: every `step`-th one from the number `first` on.

    `rank` is the place of the first record in its slice. The other fields are as those of a block.
    """

    first: int
    step: int
    records: int
    rank: int
    commit: int
    latest_ms: int | None = None
    latest_before_ms: int | None = None


class Block(NamedTuple):
    """Some records of one data file: all, or some row groups. They follow each other in log order, or in `runs`.

    `sequence` is the place of the first record in the chunk, `rank` its place in the slice, `row` its row in the file.
    `row_groups` is None for a whole file. `commit` numbers the commits of a slice from 0. In the intake, it is that of
    the file in the order of appending, and `base_row_id` the id of the first row of the file; both count for rows that
    do not have them in columns. `partition` has the file's values of the partition columns as text. No record of the
    block has an event time after `latest_ms`, and no record of the chunk before it after `latest_before_ms`; None if
    that is not known (`partial_aggregation`). `is_copied`: the intake has written the file, and it is no file of the
    log. `part` is not None if only the records of the file with an instant of the slice column from `part[0]` until
    before `part[1]`, in ms, belong to the block. `within` is such a range in which all records must be, because
    statistics have told so; None if nothing is to be checked. `reorder_by` is not empty if the file has its records in
    another order: the reader then orders them by these columns, which are columns of the log or hidden ones. `deleted`
    are rows of the file that are no records any more; None if there are none. `only_inserts`: only the rows of the file
    that the change data feed calls inserted belong to the block. A block with `runs` has the records of other blocks
    between its own in log order. Its `rank` is 0, and its `sequence` that of the first record of the slice.
    """

    path: str
    named: str
    partition: Mapping[str, str | None]
    slice_no: int
    commit: int = 0
    sequence: int = 0
    rank: int = 0
    row: int = 0
    records: int = 0
    row_groups: tuple[int, ...] | None = None
    base_row_id: int = 0
    latest_ms: int | None = None
    latest_before_ms: int | None = None
    is_copied: bool = False
    part: tuple[int, int] | None = None
    within: tuple[int, int] | None = None
    reorder_by: tuple[str, ...] = ()
    deleted: DeletedRows | None = None
    only_inserts: bool = False
    runs: tuple[Run, ...] = ()

    def in_log_order(self) -> "tuple[Block, ...]":
        """Return the block, or one block for each run. They tell about the records, and cannot be read."""
        return tuple(
            self._replace(sequence=self.sequence + run.rank, runs=(), **{name: getattr(run, name) for name in _OF_RUN})
            for run in self.runs
        ) or (self,)


_OF_RUN = {*Run._fields} & {*Block._fields}
