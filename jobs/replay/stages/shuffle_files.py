"""Shuffle files: Arrow files through which the tasks of one attempt pass rows to the next tasks.

A shuffle file holds record batches, one after the other, each as an Arrow stream of its own. A batch belongs to one
slice, one bucket and one table. Readers take single batches. On one machine they map the file into memory, so a
shuffle file costs no copy. The driver passes the checksum of each batch from the writer to the readers.
"""

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from jobs.disk_errors import writing
from jobs.replay.groups import ARRAY_BYTES, groups_of, joined
from jobs.storage import open_input, open_output
from windowlib.errors import AuditError

_LANES: Final = 509
"""The words of a row. It is prime, so blocks of a disk that change places add their words to other lanes."""
_ROW: Final = 8 * _LANES


class LaneSum:
    """The checksum of bytes that come in pieces; how they are cut does not matter.

    The bytes are rows of 509 words of 64 bits. Each column of words, a lane, is summed up modulo 2**64. The value is
    the CRC-32 of the sums and of the bytes after the last whole row. If one bit changes, the value always changes.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(_LANES, dtype="<u8")
        self._begun = b""
        self.size = 0

    @classmethod
    def of(cls, data: Buffer) -> int:
        """Return the value for bytes that are in one piece."""
        whole = cls()
        whole.add(data)
        return whole.value()

    def add(self, data: Buffer) -> None:
        """Continue with a piece."""
        piece = memoryview(data).cast("B")
        self.size += len(piece)
        if self._begun:
            missing = _ROW - len(self._begun)
            self._begun += piece[:missing]
            piece = piece[missing:]
            if len(self._begun) < _ROW:
                return
            self._sums += np.frombuffer(self._begun, dtype="<u8")
        end = len(piece) - len(piece) % _ROW
        if end:
            self._sums += np.frombuffer(piece[:end], dtype="<u8").reshape(-1, _LANES).sum(axis=0)
        self._begun = bytes(piece[end:])

    def value(self) -> int:
        """Return the checksum of all pieces: 32 bits."""
        return zlib.crc32(self._begun, zlib.crc32(self._sums.tobytes()))


class ShuffleBatch(NamedTuple):
    """One batch of a shuffle file.

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
class ShuffleWriter:
    """Writes one shuffle file. The file is created with the first batch. A table is one batch up to `batch_bytes`."""

    directory: str
    name: str
    batch_bytes: int = ARRAY_BYTES
    shuffled: list[ShuffleBatch] = field(default_factory=list)
    _path: str = ""
    _size: int = 0
    _file: pa.NativeFile | None = None

    def write(self, rows: pa.Table | pa.RecordBatch, *, slice_no: int, bucket: int = 0) -> None:
        """Append rows in as few batches as possible."""
        batches = [rows] if isinstance(rows, pa.RecordBatch) else joined(rows.to_batches(), self.batch_bytes)
        for batch in batches:
            if batch.num_rows:
                with writing(self.directory):
                    self._write(batch, slice_no=slice_no, bucket=bucket)

    def _write(self, batch: pa.RecordBatch, *, slice_no: int, bucket: int) -> None:
        if self._file is None:
            # A retried task writes another file, so no reader sees a half-written one.
            self._path, self._size = f"{self.directory}/{self.name}-{uuid4().hex}.arrow", 0
            self._file = open_output(self._path)
        sink = _CheckedSink(self._file)
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        size, checksum = sink.sum.size, sink.sum.value()
        self.shuffled.append(ShuffleBatch(self._path, self._size, size, checksum, slice_no, bucket, batch.num_rows))
        self._size += size

    def close(self) -> None:
        if self._file is not None:
            with writing(self.directory):
                self._file.close()
            self._file = None


@contextmanager
def shuffle_writers(*writers: ShuffleWriter) -> Iterator[None]:
    """Close the writers at the end of the context."""
    try:
        yield
    finally:
        for writer in writers:
            writer.close()


def read_shuffled(shuffled: Iterable[ShuffleBatch]) -> Iterator[tuple[ShuffleBatch, pa.RecordBatch]]:
    """Yield the batches of shuffle files in the given order.

    Raises AuditError: the bytes of a shuffle file are not those that a task wrote; the attempt is void.
    """
    opened: dict[str, pa.NativeFile] = {}
    for entry in shuffled:
        if entry.path not in opened:
            opened[entry.path] = open_input(entry.path)
        yield entry, _checked_batch(entry, opened[entry.path])


def _checked_batch(entry: ShuffleBatch, file: pa.NativeFile) -> pa.RecordBatch:
    end = entry.start + entry.size
    if end > file.size():
        raise _damaged(entry, f"the file has {file.size()} bytes")
    file.seek(entry.start)
    stored = file.read_buffer(entry.size)
    checksum = LaneSum.of(stored)
    if checksum != entry.checksum:
        raise _damaged(entry, f"their checksum was {entry.checksum:08x}, and it is {checksum:08x}")
    return pa.ipc.open_stream(stored).read_next_batch()


def _damaged(entry: ShuffleBatch, difference: str) -> AuditError:
    end = entry.start + entry.size
    return AuditError(
        f"file {entry.path}, in which tasks of one attempt pass rows on, was damaged after it was written: bytes "
        f"{entry.start} to {end} are not those of the task: {difference}. Nothing of this attempt will be "
        "published. A run replays it once by itself; if it happens again, check the disk and the memory of the machine"
    )


def joined_batches(
    shuffled: Iterable[ShuffleBatch], *, rows: int, most_bytes: int = ARRAY_BYTES
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (slice number, batch). Consecutive batches of a slice are put together, up to so many rows and bytes."""
    for slice_no, own in groupby(read_shuffled(shuffled), key=lambda pair: pair[0].slice_no):
        for group in groups_of(own, lambda pair: max(pair[0].rows / rows, pair[0].size / most_bytes), 1):
            yield slice_no, pa.concat_batches([batch for _, batch in group])


def by_bucket(shuffled: Iterable[ShuffleBatch]) -> dict[int, tuple[ShuffleBatch, ...]]:
    """Return the shuffle files of each bucket, in the given order."""
    of_bucket: dict[int, list[ShuffleBatch]] = {}
    for batch in shuffled:
        of_bucket.setdefault(batch.bucket, []).append(batch)
    return {bucket: tuple(own) for bucket, own in of_bucket.items()}
