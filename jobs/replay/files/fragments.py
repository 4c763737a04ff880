"""Fragments: Arrow files through which the tasks of one attempt pass rows to the next tasks.

A fragment file holds record batches of one schema. A batch belongs to one slice, one bucket and one table. Readers take
single batches. On one machine they map the file into memory, so a fragment costs no copy.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa

from jobs.storage import open_input, open_output


class Fragment(NamedTuple):
    """One batch of a fragment file: its file, its number there, its slice and bucket, and its number of rows."""

    path: str
    number: int
    slice_no: int
    bucket: int
    rows: int


@dataclass(slots=True)
class FragmentWriter:
    """Writes one fragment file. The file is created with the first batch."""

    directory: str
    name: str
    fragments: list[Fragment] = field(default_factory=list)
    _path: str = ""
    _writer: pa.RecordBatchFileWriter | None = None
    _file: pa.NativeFile | None = None

    def write(self, rows: pa.Table | pa.RecordBatch, *, slice_no: int, bucket: int = 0) -> None:
        """Append rows as one batch."""
        batch = rows if isinstance(rows, pa.RecordBatch) else _one_batch(rows)
        if not batch.num_rows:
            return
        if self._writer is None:
            # A retried task writes another file, so no reader sees a half-written one.
            self._path = f"{self.directory}/{self.name}-{uuid4().hex}.arrow"
            self._file = open_output(self._path)
            self._writer = pa.ipc.new_file(self._file, batch.schema)
        self._writer.write_batch(batch)
        self.fragments.append(Fragment(self._path, len(self.fragments), slice_no, bucket, batch.num_rows))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
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
    """Yield the batches of fragments in the given order."""
    opened: dict[str, pa.RecordBatchFileReader] = {}
    for one in fragments:
        if one.path not in opened:
            opened[one.path] = pa.ipc.open_file(open_input(one.path))
        yield one, opened[one.path].get_batch(one.number)


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
