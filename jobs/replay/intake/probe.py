"""A task of the intake that reads only the columns that order the records: is a file in log order already?"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.replay.intake.blocks import Block
from jobs.replay.intake.order_keys import OrderKey, ends, key_at, signs
from jobs.replay.intake.runs import Ints, RowRun, RunFinder, in_log_order
from jobs.replay.intake.source_files import OrderReading
from windowlib.columnar.instants import decodable, read_instants

SAMPLES: Final = 256
"""A sample has about so many places for as many bytes as a task orders in memory."""


class Probed(NamedTuple):
    """The order of the records of one file, or of a part of it.

    `span` is the least and the greatest place of its records; None without a record. `is_ascending`: each record comes
    after the one before it in log order, and none shares its place. `reorder_by` are the columns of the file that order
    its records, empty if some of them have their place elsewhere, or if the records of a whole file ascend. `bytes` is
    about what the records take in memory. `sample` are the places of some records, the more the more bytes there are.
    `runs` are those of each part, if row ids order the records and there are few runs.
    """

    span: tuple[OrderKey, OrderKey] | None
    is_ascending: bool
    reorder_by: tuple[str, ...] = ()
    bytes: int = 0
    sample: tuple[OrderKey, ...] = ()
    runs: tuple[tuple[RowRun, ...], ...] | None = None


class ProbeSizes(NamedTuple):
    """A task orders records of `memory_bytes` in memory. The others are as those of `RunFinder`."""

    memory_bytes: int
    run_steps: int
    run_records: int

    def finder(self, reading: OrderReading) -> RunFinder | None:
        """Return what finds runs; None if no row ids order the records."""
        if reading.columns is not None or not self.run_steps:
            return None
        return RunFinder(most_steps=self.run_steps, least_records=self.run_records)


class Cluster(NamedTuple):
    """Files of a slice whose places overlap.

    `is_ordered`: it is one file that tasks read in log order. If it is not, the parts of its files have `runs`, or the
    records between two of the `bounds` fit into the memory of a task.
    """

    files: tuple[Block, ...]
    is_ordered: bool
    bounds: tuple[OrderKey, ...] = ()
    runs: tuple[tuple[RowRun, ...], ...] = ()

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


def probe(file: Block, reading: OrderReading, sizes: ProbeSizes) -> Probed:
    """Read the order of the records of a file. Raises LogError: the file cannot be read."""
    own_bytes = reading.log.bytes_of(file)
    chosen = _chosen_rows(file.records, 1 + own_bytes * SAMPLES // sizes.memory_bytes)
    spans: list[tuple[OrderKey, OrderKey]] = []
    sample: list[OrderKey] = []
    is_ascending, row = True, 0
    finder = sizes.finder(reading)
    for rows, order in reading.batches(file, whole=False):
        count = len(order[0])
        if not count:
            continue
        runs = None if finder is None else finder.add(order, _times(rows, reading))
        if runs is None:
            finder = None
            first, last = key_at(order, 0), key_at(order, count - 1)
            is_ascending = is_ascending and (not spans or first > spans[-1][1]) and bool((signs(order) > 0).all())
            spans.append((first, last) if is_ascending else ends(order))
        else:
            is_ascending = is_ascending and all(run.step == 1 for run in runs)
            for run in runs:
                span = _span(run)
                is_ascending = is_ascending and (not spans or span[0] > spans[-1][1])
                spans.append(span)
        sample += [
            key_at(order, at - row) for at in chosen[bisect_left(chosen, row) : bisect_left(chosen, row + count)]
        ]
        row += count
    is_in_order = is_ascending and file.row_groups is None
    return Probed(
        span=_joined(spans),
        is_ascending=is_ascending,
        reorder_by=() if is_in_order else reading.reorder_columns(file),
        bytes=own_bytes,
        sample=tuple(sample),
        runs=None if finder is None else (tuple(finder.runs),),
    )


def _times(rows: pa.RecordBatch, reading: OrderReading) -> Ints | None:
    if reading.time is None:
        return None
    readable, _ = decodable(rows.select([reading.time.name]))
    return read_instants(readable.column(reading.time.name), reading.time.unit).ms


def _span(run: RowRun) -> tuple[OrderKey, OrderKey]:
    commit, end = run.end
    return ((1, commit), (1, run.row_id)), ((1, commit), (1, end - 1))


def probed_file(parts: Sequence[Probed]) -> Probed:
    """Return the order of the records of a file from that of its parts, which are in the order of the file."""
    spans = [part.span for part in parts if part.span is not None]
    follow = all(before[1] < after[0] for before, after in pairwise(spans))
    return Probed(
        span=_joined(spans),
        is_ascending=follow and all(part.is_ascending for part in parts),
        reorder_by=parts[0].reorder_by if all(part.reorder_by for part in parts) else (),
        bytes=sum(part.bytes for part in parts),
        sample=tuple(chain.from_iterable(part.sample for part in parts)),
        runs=_runs_of(parts),
    )


def _runs_of(parts: Iterable[Probed]) -> tuple[tuple[RowRun, ...], ...] | None:
    """Return the runs of all parts; None if those of a part are not known."""
    runs = [part.runs for part in parts]
    return None if None in runs else tuple(chain.from_iterable(own or () for own in runs))


def _joined(spans: Sequence[tuple[OrderKey, OrderKey]]) -> tuple[OrderKey, OrderKey] | None:
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None


def _chosen_rows(records: int, count: int) -> list[int]:
    """Return the numbers of some rows in ascending order, always the same ones for the same numbers."""
    drawn: list[int] = np.random.default_rng(records).integers(0, max(records, 1), min(count, records)).tolist()
    return sorted(drawn)


def clusters(probes: list[tuple[Block, Probed]], *, memory_bytes: int) -> list[Cluster]:
    """Return the files of a slice that have records as clusters, in log order.

    A task orders `memory_bytes` of records in memory.
    """
    filled = [(probed.span, file, probed) for file, probed in probes if probed.span is not None]
    filled.sort(key=lambda entry: entry[0])
    groups: list[list[tuple[Block, Probed]]] = []
    reached: OrderKey | None = None
    for (first, last), file, probed in filled:
        if reached is None or first > reached:
            groups.append([])
        groups[-1].append((file, probed))
        reached = last if reached is None else max(reached, last)
    return [_cluster(group, memory_bytes) for group in groups]


def whole_cluster(probes: list[tuple[Block, Probed]], *, memory_bytes: int) -> list[Cluster]:
    """Return all files of a slice that have records as one cluster that is not ordered."""
    filled = [(file, probed) for file, probed in probes if probed.span is not None]
    return [_in_runs(filled) or _divided(filled, memory_bytes)] if filled else []


def _cluster(group: list[tuple[Block, Probed]], memory_bytes: int) -> Cluster:
    (file, probed), *others = group
    if not others and probed.is_ascending:
        return Cluster((file,), is_ordered=True)
    if (in_runs := _in_runs(group)) is not None:
        return in_runs
    if others or not probed.reorder_by or probed.bytes > memory_bytes:
        return _divided(group, memory_bytes)
    return Cluster((file._replace(reorder_by=probed.reorder_by),), is_ordered=True)


def _in_runs(group: list[tuple[Block, Probed]]) -> Cluster | None:
    """Return a cluster of files that tasks read in their own order; None if it has not few runs."""
    runs = _runs_of(probed for _, probed in group)
    if runs is None or in_log_order(runs) is None:
        return None
    return Cluster(tuple(file for file, _ in group), is_ordered=False, runs=runs)


def _divided(group: list[tuple[Block, Probed]], memory_bytes: int) -> Cluster:
    """Return a cluster with bounds that the samples give. Ranges are aimed at three quarters of the memory."""
    sample = sorted(place for _, probed in group for place in probed.sample)
    ranges = -(-4 * sum(probed.bytes for _, probed in group) // (3 * memory_bytes))
    bounds = sorted({sample[len(sample) * number // ranges] for number in range(1, ranges)} if sample else ())
    return Cluster(tuple(file for file, _ in group), is_ordered=False, bounds=tuple(bounds))
