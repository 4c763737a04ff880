"""The first task of a chunk: it reads blocks of the log, judges each record, and passes on narrow columns by bucket.

Where that saves work, it combines the records of a key and a slice of time before (windowlib.kernels.partials). It
counts ids of records, for the audit and for the fingerprint of the input. It finds the rises of event time inside each
block. The driver joins them to the rises of the chunk, without a record.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs.replay.chunk.input_sums import InputSums
from jobs.replay.intake.blocks import Block
from jobs.replay.stages.ascending import Ascending
from jobs.replay.stages.bloom_filter import BloomFilter, key_words
from jobs.replay.stages.combine import BlockCombiner
from jobs.replay.stages.judging import Judged, ScanPlan, judged_batches
from jobs.replay.stages.shuffle_files import ShuffleBatch, ShuffleWriter, shuffle_writers
from jobs.replay.tasks import Tasks
from windowlib.columnar import instants
from windowlib.columnar.record_hashes import content_ids, duplicate_ids, invalid_ids, record_hashes
from windowlib.columnar.time_groups import TimeGroups
from windowlib.columnar.watermark_steps import Int64s, latest_before
from windowlib.kernels.partials import Combiner
from windowlib.records.row_ids import IdSum

Buckets: TypeAlias = NDArray[np.uint16]

NEVER_MS: Final = -(1 << 61)
"""Before all event times, and far enough from the least integer to subtract the bound of a watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What a scan task counts in one block, or in one run of a block, of which `block` tells as of a block.

    `latest_ms` is the greatest event time of a valid record, `NEVER_MS` without one. `rises_at` and `rises_to` are the
    sequence numbers and event times of the valid records that exceed all earlier ones of the block. `groups` are those
    of the event times of the valid records, if the plan asks for them. The last block of a task has in `keys` the
    packed set of the keys of all valid records of the task: a log of small files has many blocks, and a set is large.
    """

    block: Block
    sums: InputSums
    latest_ms: int
    rises_at: Ascending
    rises_to: Ascending
    partials_of_buckets: tuple[ShuffleBatch, ...]
    records_of_buckets: tuple[ShuffleBatch, ...]
    records_of_time: tuple[ShuffleBatch, ...]
    invalid_records: tuple[ShuffleBatch, ...]
    duplicate_records: tuple[ShuffleBatch, ...] = ()
    keys: bytes | None = None
    groups: TimeGroups | None = None


def scan_all(
    tasks: Tasks, groups: Sequence[tuple[Block, ...]], plan: ScanPlan, *, beside: Sequence[tuple[Block, ...]] = ()
) -> tuple[list[Scanned], list[dict[int, IdSum]]]:
    """Read the blocks of a chunk in tasks. Return what they count, in log order.

    Further tasks read the blocks `beside` for the audit (`scan_again`). They are the second result.
    Raises LogError: a file cannot be read.
    """
    asked = [*((scan, group) for group in groups), *((scan_again, group) for group in beside)]
    done: list[Any] = tasks.run(lambda task: task[0](task[1], plan), asked)
    scanned = sorted(chain.from_iterable(done[: len(groups)]), key=lambda scanned: scanned.block.sequence)
    return scanned, done[len(groups) :]


def scan(blocks: Sequence[Block], plan: ScanPlan) -> list[Scanned]:
    """Read blocks. Raises LogError: a file cannot be read."""
    name = f"records-{blocks[0].sequence}"
    writers = _Writers(*(ShuffleWriter(plan.directory, f"{kind}-{name}") for kind in _Writers._fields))
    combiner = None if plan.partials is None else plan.partials.combining.combiner()
    keys = None if plan.key_bits is None else BloomFilter.empty(plan.key_bits)
    scanned: list[Scanned] = []
    with shuffle_writers(*writers):
        for block in blocks:
            scanned += _scan_block(block, plan, writers=writers, combiner=combiner, keys=keys)
    return scanned if keys is None else [*scanned[:-1], replace(scanned[-1], keys=keys.packed())]


class _Writers(NamedTuple):
    partials: ShuffleWriter
    records: ShuffleWriter
    time: ShuffleWriter
    invalid: ShuffleWriter
    duplicates: ShuffleWriter


@dataclass(slots=True)
class _BlockCounts:
    sums: InputSums = field(default_factory=InputSums)
    rises_at: list[Int64s] = field(default_factory=list)
    rises_to: list[Int64s] = field(default_factory=list)
    latest_ms: int = NEVER_MS
    keys: BloomFilter | None = None
    combiner: BlockCombiner | None = None
    partials: list[pa.RecordBatch] = field(default_factory=list)
    """Those that no file has yet."""
    groups: TimeGroups | None = None
    written: tuple[list[ShuffleBatch], ...] = field(default_factory=lambda: tuple([] for _ in _Writers._fields))
    """The batches of each writer."""

    @contextmanager
    def noting(self, writers: _Writers) -> Iterator[None]:
        """Note what is written while the context lasts."""
        before = [len(writer.shuffled) for writer in writers]
        yield
        for own, writer, start in zip(self.written, writers, before, strict=True):
            own.extend(writer.shuffled[start:])


def _scan_block(
    block: Block, plan: ScanPlan, *, writers: _Writers, combiner: Combiner | None, keys: BloomFilter | None
) -> list[Scanned]:
    runs = block.in_log_order()
    counts_of = [
        _BlockCounts(
            keys=keys,
            combiner=BlockCombiner.of(run, plan.partials, combiner),
            groups=None if plan.gap_ms is None else TimeGroups.none(plan.gap_ms),
        )
        for run in runs
    ]
    for judged in judged_batches(block, plan, columns=plan.columns):
        counts = counts_of[judged.run]
        with counts.noting(writers):
            _scan_batch(judged, plan, slice_no=block.slice_no, writers=writers, counts=counts)
    for counts in counts_of:
        with counts.noting(writers):
            _write_partials(counts.partials, plan, writers.partials, slice_no=block.slice_no)
    return [_scanned(run, counts) for run, counts in zip(runs, counts_of, strict=True)]


def _scan_batch(judged: Judged, plan: ScanPlan, *, slice_no: int, writers: _Writers, counts: _BlockCounts) -> None:
    before_ms = _count_rises(judged, counts)
    if plan.asked is not None:
        writers.time.write(_time_columns(judged, plan, slice_no), slice_no=slice_no)
    if counts.groups is not None:
        counts.groups = counts.groups.with_times(judged.event_time_ms[judged.valid()])
    if plan.columns is not None:
        return
    _count(judged, plan, counts.sums)
    if plan.feeds:
        _write_records(judged, plan, slice_no=slice_no, writers=writers, counts=counts, before_ms=before_ms)
    if (judged.problems > 0).any():
        writers.invalid.write(_invalid(judged), slice_no=slice_no)
    if judged.earlier is not None:
        writers.duplicates.write(_duplicates(judged, judged.earlier), slice_no=slice_no)


def _scanned(block: Block, counts: _BlockCounts) -> Scanned:
    partials, records, passed, invalid, duplicates = (tuple(batches) for batches in counts.written)
    return Scanned(
        block=block,
        sums=counts.sums,
        latest_ms=counts.latest_ms,
        rises_at=Ascending.of(_joined(counts.rises_at)),
        rises_to=Ascending.of(_joined(counts.rises_to)),
        partials_of_buckets=partials,
        records_of_buckets=records,
        records_of_time=passed,
        invalid_records=invalid,
        duplicate_records=duplicates,
        groups=counts.groups,
    )


def _count(judged: Judged, plan: ScanPlan, sums: InputSums) -> None:
    commit = judged.commit if plan.needs_commits else None
    sums.content.merge(IdSum.of_array(content_ids(judged.rank, judged.hashes, commit)))
    sums.records.merge(IdSum.of_array(judged.hashes))
    is_filtered = judged.problems == instants.FILTERED
    if is_filtered.any():
        sums.filtered.merge(IdSum.of_array(judged.hashes[is_filtered]))
    is_duplicate = judged.problems == instants.DUPLICATE
    if is_duplicate.any():
        hashes = judged.hashes[is_duplicate]
        sums.duplicate.merge(IdSum.of_array(hashes))
        sums.duplicate_rows.merge(IdSum.of_array(duplicate_ids(pa.array(hashes))))
        sums.duplicate_content.merge(IdSum.of_array(content_ids(judged.rank[is_duplicate], hashes, commit)))
    bad = judged.problems > 0
    if bad.any():
        hashes = judged.hashes[bad]
        sums.invalid.merge(IdSum.of_array(hashes))
        sums.invalid_rows.merge(
            IdSum.of_array(invalid_ids(pa.array(hashes), instants.problem_names(judged.problems[bad])))
        )


def _count_rises(judged: Judged, counts: _BlockCounts) -> Int64s:
    """Find the rises of event time in a batch. Return the greatest event time before each valid record of the block."""
    valid = judged.valid()
    times = judged.event_time_ms[valid]
    before_ms = latest_before(times, counts.latest_ms)
    risen = np.flatnonzero(times > before_ms)
    if len(risen):
        counts.rises_at.append(judged.sequence[valid][risen])
        counts.rises_to.append(times[risen])
        counts.latest_ms = int(times[risen[-1]])
    return before_ms


def _write_records(
    judged: Judged, plan: ScanPlan, *, slice_no: int, writers: _Writers, counts: _BlockCounts, before_ms: Int64s
) -> None:
    """Write the narrow columns of the valid records (`fed_records`), or partials (`PartialRows`), by bucket."""
    valid = judged.valid()
    rows = judged.rows if isinstance(valid, slice) else judged.rows.take(pa.array(valid))
    words = {
        "rank": judged.rank.astype(np.int32 if plan.has_short_ranks else np.int64)[valid],
        "event_time_ms": judged.event_time_ms[valid],
        "record_hash": judged.hashes[valid],
    }
    columns: dict[str, pa.Array] = {name: pa.array(word) for name, word in words.items()}
    keys = {f"k{place}": feed_form(rows.column(name)) for place, name in enumerate(plan.reading.key)}
    inputs = {f"v{place}": feed_form(rows.column(name)) for place, name in enumerate(plan.inputs)}
    if counts.keys is not None:
        counts.keys.add(key_words(keys))
    fed = pa.RecordBatch.from_pydict({**columns, **keys, **inputs})
    if counts.combiner is not None:
        partials, fed = counts.combiner.combine(fed, before_ms)
        if partials is not None:
            counts.partials.append(partials)
        if sum(rows.num_rows for rows in counts.partials) >= plan.log.rows_per_batch:
            _write_partials(counts.partials, plan, writers.partials, slice_no=slice_no)
    _write_by_bucket(writers.records, fed, plan, slice_no=slice_no)


def _write_partials(partials: list[pa.RecordBatch], plan: ScanPlan, writer: ShuffleWriter, *, slice_no: int) -> None:
    """Write the partials of several batches together: 20 million records need 120 writes instead of 970."""
    if partials:
        _write_by_bucket(writer, pa.concat_batches(partials), plan, slice_no=slice_no)
        partials.clear()


def _write_by_bucket(writer: ShuffleWriter, rows: pa.RecordBatch, plan: ScanPlan, *, slice_no: int) -> None:
    """Write rows with key columns, in their order inside each bucket."""
    if plan.buckets == 1 or not rows.num_rows:
        writer.write(rows, slice_no=slice_no)
        return
    keys = [f"k{place}" for place in range(len(plan.reading.key))]
    owners = bucket_of({name: rows.column(name) for name in keys}, plan.buckets)
    # One pass for each of a few buckets takes a third of the time of a sort.
    own = [np.flatnonzero(owners == bucket) for bucket in range(plan.buckets)]
    sorted_rows = pc.take(rows, pa.array(np.concatenate(own)), boundscheck=False)
    start = 0
    for bucket, rows_of_bucket in enumerate(own):
        writer.write(sorted_rows.slice(start, len(rows_of_bucket)), slice_no=slice_no, bucket=bucket)
        start += len(rows_of_bucket)


def fed_records(rows: pa.RecordBatch, *, first: int) -> pa.RecordBatch:
    """Return narrow columns as `Executor.process` takes them. `first` is the first sequence number of their slice."""
    rank = rows.column("rank").to_numpy().astype(np.int64, copy=False)
    others = {name: rows.column(name) for name in rows.schema.names if name != "rank"}
    return pa.RecordBatch.from_pydict({"sequence": pa.array(rank + first), "rank": pa.array(rank), **others})


def bucket_of(keys: Mapping[str, pa.Array], buckets: int) -> Buckets:
    """Return the bucket of each row by its key columns in feed form. There are at most 2**16 buckets."""
    words = key_words(keys)
    # The upper half of a word, scaled to the number of buckets: a remainder takes 15 times as long.
    owners: Buckets = ((words >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.uint16)
    return owners


def feed_form(values: pa.Array) -> pa.Array:
    """Return a column in the form that executors read: times as integers, and -0.0 as 0.0."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        return values.cast(pa.int64())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_floating(kind):
        return pc.add(values, pa.scalar(0.0, kind))
    return values


def _time_columns(judged: Judged, plan: ScanPlan, slice_no: int) -> pa.RecordBatch:
    valid = judged.valid()
    rows = judged.rows if isinstance(valid, slice) else judged.rows.take(pa.array(valid))
    count = rows.num_rows
    arrival = pa.nulls(count, pa.int64()) if judged.arrival_ms is None else pa.array(judged.arrival_ms[valid])
    commit = pa.repeat(pa.scalar(judged.commit if plan.needs_commits else None, pa.int64()), count)
    source = pa.nulls(count, pa.string()) if plan.source is None else rows.column(plan.source).cast(pa.string())
    asked = {f"c{place}": feed_form(rows.column(name)) for place, name in enumerate(plan.asked or ())}
    return pa.RecordBatch.from_pydict(
        {
            "sequence": pa.array(judged.sequence[valid]),
            "slice_no": pa.repeat(pa.scalar(slice_no, pa.int32()), count),
            "event_time_ms": pa.array(judged.event_time_ms[valid]),
            "arrival_ms": arrival,
            "commit": commit,
            "source": source,
            **asked,
        }
    )


def _invalid(judged: Judged) -> pa.RecordBatch:
    bad = np.flatnonzero(judged.problems > 0)
    return pa.RecordBatch.from_pydict(
        {
            "rank": pa.array(judged.rank[bad]),
            "record_hash": pa.array(judged.hashes[bad]),
            "reason": instants.problem_names(judged.problems[bad]),
        }
    )


def _duplicates(judged: Judged, earlier: pa.RecordBatch) -> pa.RecordBatch:
    own = np.flatnonzero(judged.problems == instants.DUPLICATE)
    columns = {name: earlier.column(name) for name in earlier.schema.names}
    ranks = {"rank": pa.array(judged.rank[own]), "record_hash": pa.array(judged.hashes[own])}
    return pa.RecordBatch.from_pydict({**ranks, **columns})


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def scan_again(blocks: Sequence[Block], plan: ScanPlan) -> dict[int, IdSum]:
    """Read blocks a second time, for the audit. Return slice number -> ids of its records.

    Raises LogError: a file cannot be read.
    """
    ids_of_slices: dict[int, IdSum] = {}
    for block in blocks:
        for rows in plan.log.batches(block):
            ids = IdSum.of_array(record_hashes(rows, plan.reading.widened, constant=block.partition))
            ids_of_slices.setdefault(block.slice_no, IdSum()).merge(ids)
    return ids_of_slices
