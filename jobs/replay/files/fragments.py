"""Fragments: Arrow files through which the tasks of one attempt pass rows to the next tasks.

A fragment file holds record batches, one after the other, each as an Arrow stream of its own. A batch belongs to one
slice, one bucket and one table. Readers take single batches. On one machine they map the file into memory, so a
fragment costs no copy. The driver passes the checksum of each batch from the writer to the readers.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
from typing_extensions import Buffer

from jobs.replay.files.lane_sums import LaneSum
from jobs.storage import open_input, open_output
from windowlib.errors import AuditError


class Fragment(NamedTuple):
    """One batch of a fragment file.

    It has the bytes `[start, start + size)` of the file at `path`, with their `LaneSum`: schema, batch and end mark.
    """

    path: str
    start: int
    size: int
    checksum: int
    slice_no: int
    bucket: int
    rows: int


class _CheckedSink:
    """What Arrow writes a stream to: passes the bytes on to a file without a copy, and sums them up."""

    closed = False

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self.sum = LaneSum()

    def write(self, data: Buffer) -> None:
        self._file.write(data)
        self.sum.add(data)

    def flush(self) -> None:
        """Do nothing: the file is complete when it is closed."""


@dataclass(slots=True)
class FragmentWriter:
    """Writes one fragment file. The file is created with the first batch."""

    directory: str
    name: str
    fragments: list[Fragment] = field(default_factory=list)
    _path: str = ""
    _size: int = 0
    _file: pa.NativeFile | None = None

    def write(self, rows: pa.Table | pa.RecordBatch, *, slice_no: int, bucket: int = 0) -> None:
        """Append rows as one batch."""
        batch = rows if isinstance(rows, pa.RecordBatch) else _one_batch(rows)
        if not batch.num_rows:
            return
        if self._file is None:
            # A retried task writes another file, so no reader sees a half-written one.
            self._path, self._size = f"{self.directory}/{self.name}-{uuid4().hex}.arrow", 0
            self._file = open_output(self._path)
        sink = _CheckedSink(self._file)
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        size, checksum = sink.sum.size, sink.sum.value()
        self.fragments.append(Fragment(self._path, self._size, size, checksum, slice_no, bucket, batch.num_rows))
        self._size += size

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


@contextmanager
def fragment_writers(*writers: FragmentWriter) -> Iterator[None]:
    """Close the writers at the end of the context."""
    try:
        yield
    finally:
        for writer in writers:
            writer.close()


def read_fragments(fragments: Iterable[Fragment]) -> Iterator[tuple[Fragment, pa.RecordBatch]]:
    """Yield the batches of fragments in the given order.

    Raises:
        AuditError: the bytes of a fragment are not those that a task wrote; the attempt is void.
    """
    opened: dict[str, pa.NativeFile] = {}
    for fragment in fragments:
        if fragment.path not in opened:
            opened[fragment.path] = open_input(fragment.path)
        yield fragment, _checked_batch(fragment, opened[fragment.path])


def _checked_batch(fragment: Fragment, file: pa.NativeFile) -> pa.RecordBatch:
    end = fragment.start + fragment.size
    if end > file.size():
        raise _damaged(fragment, f"the file has {file.size()} bytes")
    file.seek(fragment.start)
    stored = file.read_buffer(fragment.size)
    checksum = LaneSum.of(stored)
    if checksum != fragment.checksum:
        raise _damaged(fragment, f"their checksum was {fragment.checksum:08x}, and it is {checksum:08x}")
    return pa.ipc.open_stream(stored).read_next_batch()


def _damaged(fragment: Fragment, difference: str) -> AuditError:
    end = fragment.start + fragment.size
    return AuditError(
        f"file {fragment.path}, in which tasks of one attempt pass rows on, was damaged after it was written: bytes "
        f"{fragment.start} to {end} are not those of the task: {difference}. Nothing of this attempt will be "
        "published. A run replays it once by itself; if it happens again, check the disk and the memory of the machine"
    )


def joined_fragments(fragments: Iterable[Fragment], *, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (slice number, batch) over consecutive fragments. All batches of a slice but its last have `rows` rows."""
    waiting: list[pa.RecordBatch] = []
    count, slice_no = 0, -1
    for fragment, batch in read_fragments(fragments):
        if fragment.slice_no != slice_no:
            if waiting:
                yield slice_no, pa.concat_batches(waiting)
            waiting, count, slice_no = [], 0, fragment.slice_no
        start = 0
        while count + batch.num_rows - start >= rows:
            waiting.append(batch.slice(start, rows - count))
            start += rows - count
            yield slice_no, pa.concat_batches(waiting)
            waiting, count = [], 0
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            count += batch.num_rows - start
    if waiting:
        yield slice_no, pa.concat_batches(waiting)


def by_bucket(fragments: Iterable[Fragment]) -> dict[int, tuple[Fragment, ...]]:
    """Return the fragments of each bucket, in the given order."""
    found: dict[int, list[Fragment]] = {}
    for one in fragments:
        found.setdefault(one.bucket, []).append(one)
    return {bucket: tuple(own) for bucket, own in found.items()}


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
