"""Finds the runs of a compacted file: records with consecutive row ids, at equal distances in the file.

OPTIMIZE writes the rows of its source files one after the other, or takes turns between some of them. So a file has few
runs, and a scan that reads it in its own order knows the rank of each record without a sort.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jobs.replay.intake.blocks import Block, Run

Ints: TypeAlias = NDArray[np.int64]


class RowRun(NamedTuple):
    """Records of one commit with consecutive row ids: every `step`-th record of a part of a file from `first` on.

    `row_id` is that of the first record. `latest_ms` is the greatest event time, if the event times were read.
    """

    commit: int
    row_id: int
    first: int
    step: int
    records: int
    latest_ms: int | None

    @property
    def end(self) -> tuple[int, int]:
        """The commit, and the row id after the last one."""
        return self.commit, self.row_id + self.records


@dataclass(slots=True, kw_only=True)
class RunFinder:
    """Finds the runs of a part of a file, batch by batch, until they have fewer than `least_records` on average.

    The records of a run are neighbours, or are up to `most_steps` apart.
    """

    most_steps: int
    least_records: int
    runs: list[RowRun] = field(default_factory=list)
    _records: int = 0
    _open: dict[tuple[int, ...], int] = field(default_factory=dict)
    """What continues a run -> the number of the run."""

    def add(self, order: Sequence[pa.Array], times: Ints | None) -> list[RowRun] | None:
        """Return the runs of the next batch; None if there are too many.

        `order` has the commit and the row id of each record, and `times` its event time, if a bound of them is asked.
        """
        commits, ids = (values.to_numpy().astype(np.int64, copy=False) for values in order)
        runs: list[RowRun] = []
        # The ends of a batch cut as many runs as there are steps.
        most = self.most_steps + (self._records + len(ids)) // self.least_records
        for start, end, step in _stretches(commits, ids, self.most_steps):
            for first in range(start, min(start + step, end)):
                latest_ms = None if times is None else int(times[first:end:step].max())
                count = -(-(end - first) // step)
                runs.append(RowRun(int(commits[first]), int(ids[first]), first, step, count, latest_ms))
            if len(self.runs) + len(runs) > most:
                return None
        for run in runs:
            self._append(run._replace(first=self._records + run.first))
        self._records += len(ids)
        return runs

    def _append(self, run: RowRun) -> None:
        """Append a run, or add its records to the run of an earlier batch that it continues."""
        number = self._open.pop((*run[:3], run.step), len(self.runs))
        if number == len(self.runs):
            self.runs.append(run)
        else:
            before = self.runs[number]
            known = [ms for ms in (before.latest_ms, run.latest_ms) if ms is not None]
            latest_ms = max(known, default=None)
            self.runs[number] = before._replace(records=before.records + run.records, latest_ms=latest_ms)
        self._open[(*run.end, run.first + run.step * run.records, run.step)] = number


def _stretches(commits: Ints, ids: Ints, most_steps: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, step) of stretches: a record follows the one that is `step` records before it."""
    breaks: dict[int, Ints] = {}

    def end_of(start: int, step: int) -> int:
        if step not in breaks:
            follows = (ids[step:] == ids[:-step] + 1) & (commits[step:] == commits[:-step])
            breaks[step] = np.flatnonzero(~follows)
        place = int(np.searchsorted(breaks[step], start))
        return int(breaks[step][place]) + step if place < len(breaks[step]) else len(ids)

    start = 0
    while start < len(ids):
        end, step = start + 1, 1
        for tried in range(1, min(most_steps, len(ids) - start - 1) + 1):
            reached = end_of(start, tried)
            # A stretch of as many records as steps has no record that follows another one.
            if reached - start > max(end - start, tried):
                end, step = reached, tried
            if end == len(ids):
                break
        yield start, end, step
        start = end


def in_log_order(parts: Sequence[Sequence[RowRun]]) -> list[tuple[RowRun, int]] | None:
    """Return the runs of parts of files with the numbers of their parts, in log order; None if some overlap."""
    runs = sorted((run, number) for number, own in enumerate(parts) for run in own)
    return None if any(before[0].end > after[0][:2] for before, after in pairwise(runs)) else runs


def with_runs(blocks: Sequence[Block], parts: Sequence[Sequence[RowRun]], *, rank: int) -> list[Block]:
    """Return the parts of files with records as blocks with runs, in the order of their files.

    `rank` is the first one of all.
    """
    runs_of: list[list[Run]] = [[] for _ in blocks]
    for run, number in in_log_order(parts) or ():
        runs_of[number].append(
            Run(run.first, run.step, run.records, rank=rank, commit=run.commit, latest_ms=run.latest_ms)
        )
        rank += run.records
    return [block._replace(runs=tuple(runs)) for block, runs in zip(blocks, runs_of, strict=True) if runs]
