"""The keys of a state that a chunk may change: those of its records, and those with a timer that it reaches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.lake.checkpoint_rows import Bounds, PartFiles
from jobs.lake.table_files import TableFile
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.stages.bloom_filter import BloomFilter, key_words
from jobs.replay.stages.scan import Scanned, feed_form
from windowlib.columnar.arrow import one_array
from windowlib.columnar.watermark_steps import Bools
from windowlib.columnar.xxhash import Words
from windowlib.keyed.timers import EVENT


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedFilter:
    """The keys of a state that a chunk may change, as a packed set (`BloomFilter`).

    The last watermark of the chunk is `watermark_ms`.
    """

    keys: bytes
    index_bits: int
    watermark_ms: int


def touched_by(scanned: Sequence[Scanned], time: ChunkTime, *, key_bits: int | None) -> TouchedFilter | None:
    """Return the keys of the records of a chunk; None if the scan collected no keys: all rows go to the buckets."""
    if key_bits is None:
        return None
    keys = BloomFilter.together(key_bits, [block.keys for block in scanned if block.keys is not None])
    watermarks_ms = time.steps.watermark_ms
    last_ms = int(watermarks_ms[-1]) if len(watermarks_ms) else time.beginning.watermark_ms
    return TouchedFilter(
        keys=keys.packed(), index_bits=key_bits, watermark_ms=max(last_ms, time.beginning.watermark_ms)
    )


def with_keys(chunk: TouchedFilter, others: Sequence[bytes]) -> TouchedFilter:
    """Return the keys of a chunk and others, which are packed sets of the same size."""
    return replace(chunk, keys=BloomFilter.together(chunk.index_bits, [chunk.keys, *others]).packed())


def reached_keys(
    timers: PartFiles, files: Sequence[TableFile], chunk: TouchedFilter, *, keys: Sequence[str], rows: int
) -> bytes:
    """Return the packed set of the keys with a timer that the chunk reaches. Timers that are removed do no harm.

    `timers` are the files of the table `timers`, of which `files` are read, at most `rows` rows at once. Row groups
    that have no such timer by their statistics are not read. Statistics leave nulls out: a timer with a null is
    damaged, and the task that reads its row finds the damage. `chunk` has the watermark.
    Raises StoreError: a file cannot be read; the message names it.
    """
    reached = BloomFilter.empty(chunk.index_bits)
    columns = [*keys, "domain", "at_ms"]
    for _, batch in timers.batches(columns, rows=rows, only=files, may_have=_may_reach(chunk.watermark_ms)):
        is_reached = reached_timers(batch, chunk.watermark_ms)
        if is_reached.any():
            reached.add(words_of(batch.filter(pa.array(is_reached)), keys))
    return reached.packed()


def reached_timers(rows: pa.RecordBatch | pa.Table, watermark_ms: int) -> Bools:
    """Return which timers a chunk may reach: all but those of event time after its last watermark."""
    domains = one_array(rows.column("domain")).dictionary_encode()
    at_ms = one_array(rows.column("at_ms"))
    known = pc.equal(domains.dictionary, EVENT).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    is_event = np.append(known, np.False_)[domains.indices.fill_null(len(known)).to_numpy()]
    are_reached: Bools = ~is_event | (at_ms.fill_null(watermark_ms).to_numpy() <= watermark_ms)
    return are_reached


def words_of(rows: pa.RecordBatch | pa.Table, keys: Sequence[str]) -> Words:
    """Return the words of the keys of stored rows (`key_words`)."""
    return key_words({name: feed_form(one_array(rows.column(name))) for name in keys})


def _may_reach(watermark_ms: int) -> Callable[[Bounds], bool]:
    """Return whether a row group may have a timer that is reached, by its statistics."""

    def may_reach(bounds: Bounds) -> bool:
        at_ms, domain = bounds.get("at_ms"), bounds.get("domain")
        if at_ms is None or domain is None:
            return True
        return not (domain["min"] == domain["max"] == EVENT and at_ms["min"] > watermark_ms)

    return may_reach
