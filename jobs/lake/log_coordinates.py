"""The coordinates of slices: facts from the Delta log about the files that the runs of the slices read."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.lake.pinned_files import PinnedFile
from jobs.pipeline.look_back import LookBack
from jobs.runs import LogCoordinates


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFiles:
    """The files of slices, and of the slices before that their runs read as well.

    `digests` maps a slice to a digest of the files that its run reads. It tells whether these are the same files.
    """

    back: LookBack
    of: Mapping[str, Sequence[PinnedFile]]
    digests: Mapping[str, str]

    @classmethod
    def grouped(cls, files: Iterable[PinnedFile], back: LookBack) -> "SliceFiles":
        """Return files by slice."""
        found: dict[str, list[PinnedFile]] = {one.slice_id: [] for one in back.every}
        for file in files:
            found[file.slice_id].append(file)
        read = {
            slice_id: [*own, *(file for one in back.of.get(slice_id, ()) for file in found[one.slice_id])]
            for slice_id, own in found.items()
        }
        return cls(back=back, of=found, digests={slice_id: _digest(own) for slice_id, own in read.items()})

    def own(self, files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """Return those of the files that are in the slices themselves."""
        outside = {one.slice_id for one in self.back.outside}
        return tuple(file for file in files if file.slice_id not in outside)

    def earlier(self, files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """Return those of the files that are in slices before, and not in the slices themselves."""
        outside = {one.slice_id for one in self.back.outside}
        return tuple(file for file in files if file.slice_id in outside)

    def own_digests(self) -> dict[str, str]:
        """Return the digests of the slices themselves."""
        return {one.slice_id: self.digests[one.slice_id] for one in self.back.slices}

    def coordinates(self, shared: LogCoordinates, commits: Mapping[str, set[int]]) -> dict[str, LogCoordinates]:
        """Return the coordinates of each slice. The first slice has the digests of the files of `_delta_log`.

        Args:
            shared: those of a slice without files.
            commits: the commits that added records to each slice.
        """
        records = {slice_id: sum(file.records or 0 for file in own) for slice_id, own in self.of.items()}
        first = self.back.slices[0].slice_id if self.back.slices else None
        return {
            slice_id: replace(
                shared,
                commits=tuple(
                    sorted({one for name in (slice_id, *self._before(slice_id)) for one in commits.get(name, ())})
                ),
                files=len(own),
                records=records[slice_id],
                earlier_records=sum(records[one] for one in self._before(slice_id)),
                bytes=sum(file.bytes for file in own),
                digest=self.digests[slice_id],
                log_digests=shared.log_digests if slice_id == first else "",
            )
            for slice_id, own in self.of.items()
        }

    def _before(self, slice_id: str) -> tuple[str, ...]:
        return tuple(one.slice_id for one in self.back.of.get(slice_id, ()))


def _digest(files: Iterable[PinnedFile]) -> str:
    """Return a hash over path, size, records and modification time of files; equal for the same files.

    Files with a deletion vector are the same only with the same one.
    """
    lines = sorted(
        f"{file.path}\0{file.bytes}\0{file.records}\0{file.modified_ms}" + (f"\0{file.vector}" if file.vector else "")
        for file in files
    )
    return hashlib.sha256("\n".join(lines).encode("utf-8", errors="surrogatepass")).hexdigest()
