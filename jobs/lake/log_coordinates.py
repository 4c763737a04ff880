"""The coordinates of slices: facts from the Delta log about the files that their runs read, and their commits."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, chain

from jobs.lake.commit_history import CommitHistory, read_history
from jobs.lake.known_log import KnownLog
from jobs.lake.log_files import LogFiles
from jobs.lake.log_version import NO_COMMITS, LogVersion
from jobs.lake.pinned_files import PinnedFile
from jobs.lake.rewrites import removed_records
from jobs.lake.slicing import Slicing
from jobs.pipeline.look_back import LookBack
from jobs.runs import FORMERLY, NO_ID, LogCoordinates, hash_pairs, known_pairs


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
        by_slice: dict[str, list[PinnedFile]] = {slice_.slice_id: [] for slice_ in back.every}
        for file in files:
            by_slice[file.slice_id].append(file)
        lines = [[_line(file) for file in own] for own in by_slice.values()]
        digests = {}
        for slice_id, own in zip(by_slice, lines, strict=True):
            before = back.before(slice_id)
            digests[slice_id] = _digest(chain(own, *lines[before.start : before.stop]))
        return cls(back=back, of=by_slice, digests=digests)

    def own(self, files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """Return those of the files that are in the slices themselves."""
        outside = {slice_.slice_id for slice_ in self.back.outside}
        return tuple(file for file in files if file.slice_id not in outside)

    def earlier(self, files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """Return those of the files that are in slices before, and not in the slices themselves."""
        outside = {slice_.slice_id for slice_ in self.back.outside}
        return tuple(file for file in files if file.slice_id in outside)

    def own_digests(self) -> dict[str, str]:
        return {slice_.slice_id: self.digests[slice_.slice_id] for slice_ in self.back.slices}

    def coordinates(
        self,
        shared: LogCoordinates,
        commits: Mapping[str, set[int]],
        *,
        columns: Mapping[str, str],
        since: Mapping[str, int],
    ) -> dict[str, LogCoordinates]:
        """Return the coordinates of each slice. The first slice has the digests of the files of `_delta_log`.

        `shared` are those of a slice without files, `commits` those that added records to each slice, and `columns`
        those of slices that a reading has seen. `since` is what `own_since` returns.
        """
        records = {slice_id: sum(file.records or 0 for file in own) for slice_id, own in self.of.items()}
        first = self.back.slices[0].slice_id if self.back.slices else None
        totals = [0, *accumulate(records.values())]
        uncounted = {slice_id: sum(file.records is None for file in own) for slice_id, own in self.of.items()}
        without = [0, *accumulate(uncounted.values())]
        return {
            slice_id: replace(
                shared,
                commits=tuple(sorted(commits[slice_id])),
                files=sum(file.records != 0 for file in own),
                records=records[slice_id],
                earlier_records=totals[before.stop] - totals[before.start],
                uncounted=uncounted[slice_id] + without[before.stop] - without[before.start],
                bytes=sum(file.bytes for file in own),
                since=since.get(slice_id, shared.since),
                digest=self.digests[slice_id],
                columns=columns.get(slice_id, shared.columns),
                log_digests=shared.log_digests if slice_id == first else "",
            )
            for slice_id, own in self.of.items()
            for before in [self.back.before(slice_id)]
        }


def _line(file: PinnedFile) -> str:
    """Return path, size, records and modification time of a file; equal for the same file.

    Files with a deletion vector are the same only with the same one.
    """
    vector = f"\0{file.vector}" if file.vector else ""
    return f"{file.path}\0{file.bytes}\0{file.records}\0{file.modified_ms}{vector}"


def _digest(lines: Iterable[str]) -> str:
    """Return a hash of the lines of files in any order."""
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", errors="surrogatepass")).hexdigest()


def known_history(
    log: LogVersion, slicing: Slicing, files: LogFiles, *, by_slice: SliceFiles, known: KnownLog, few: int
) -> CommitHistory:
    """Return what the commits did that earlier readers have not covered; raises as `read_history` does."""
    accepted, start = known.accepted_of(log.table_id), _first_commit(log, by_slice, known)
    history = read_history(log, slicing.groups, start=start, files=files, few=few, accepted=accepted)
    if history.is_broken and any(version < start for version in accepted):
        # A RESTORE may have brought back what an accepted commit had removed: only the commits from before tell it.
        return read_history(log, slicing.groups, files=files, few=few, accepted=accepted)
    return history


def known_since(log: LogVersion, history: CommitHistory, files: LogFiles, *, known: KnownLog) -> int:
    """Return the first of the commits that are known without a gap: they were read now, or by earlier readers."""
    if not log.has_commits:
        return NO_COMMITS
    since, sound = history.since, known.sound.get(log.table_id, -1)
    while since - 1 in files.commits and since - 1 <= sound:
        since -= 1
    return _without_gap(since, known.read.get(log.table_id, ()))


def own_since(log: LogVersion, history: CommitHistory, files: SliceFiles, *, known: KnownLog) -> dict[str, int]:
    """Return slice -> the first of the commits that are known without a gap to those who have seen the slice itself.

    What others have read tells that no record was removed, and not which commits have added records to the slice. If
    records are counted, their numbers tell that, and the result is empty.
    """
    if not log.has_commits or _are_counted(files, known):
        return {}
    return {
        name: _without_gap(history.since, [(place.since, place.version) for place in places])
        for name, places in _seen_before(known, log).items()
        if places
    }


def _without_gap(since: int, reads: Iterable[tuple[int, int]]) -> int:
    """Return the first of the commits that are known without a gap: from `since` on, and in ranges that were read."""
    for first, last in sorted(reads, key=lambda read: read[1], reverse=True):
        since = first if first < since <= last + 1 else since
    return since


def _are_counted(files: SliceFiles, known: KnownLog) -> bool:
    """Return whether numbers of records tell which slices, or slices before them, have got records since a reading."""
    if any(file.records is None for own in files.of.values() for file in own):
        return False
    return not any(place.has_unknown_records for places in known.seen.values() for place in places)


def _first_commit(log: LogVersion, files: SliceFiles, known: KnownLog) -> int:
    """Return the first commit to read.

    Commits up to the known sound version are needed only for slices whose files differ from those that a run has read.
    If records are not counted, the oldest reading of a slice decides: a newer one may have been without the slices
    before, because `log.distinct` was edited.
    """
    sound = known.sound.get(log.table_id, -1)
    if sound > log.version:
        return 0
    start, deciding = sound + 1, max if _are_counted(files, known) else min
    for slice_id, digest in files.own_digests().items():
        seen = [place for place in known.seen.get(slice_id, ()) if place.table_id == log.table_id]
        if seen and all(place.digest != digest for place in seen):
            start = min(start, 1 + deciding(place.sound for place in seen))
    return start


def _seen_before(known: KnownLog, log: LogVersion) -> dict[str, list[LogCoordinates]]:
    """Return slice -> what earlier reads saw of it, in order. A restored table has lost what newer reads saw."""
    return {
        slice_id: sorted(
            (place for place in places if place.table_id == log.table_id and place.version <= log.version),
            key=lambda place: place.version,
        )
        for slice_id, places in known.seen.items()
    }


def followed_columns(history: CommitHistory, known: KnownLog, *, log: LogVersion) -> dict[str, str]:
    """Return slice -> its columns now, followed since a reading has seen it last.

    A commit that removes column mapping writes all files again, with the names that the columns have then. So the names
    do not tell which columns they were before, also if they are mapped again later.
    """
    followed = {}
    for name, places in _seen_before(known, log).items():
        if places:
            then = places[-1]
            changes = (columns for version, columns in history.columns.items() if version > then.version)
            followed[name] = _followed(then.columns, (*changes, log.column_hashes))
    return followed


@lru_cache(maxsize=16)
def _followed(then: str, later: tuple[str, ...]) -> str:
    """Return the last columns of `later`, of versions after `then`, with those that their names were before."""
    named, known = dict(hash_pairs(then)), dict(known_pairs(then))
    for columns in later:
        own = dict(hash_pairs(columns))
        if NO_ID in own.values():
            known = {name: known.get(name, NO_ID) for name in own}
        else:
            former = {name if column == NO_ID else column: known[name] for name, column in named.items()}
            former = {column: before for column, before in former.items() if before != NO_ID}
            known = {name: former.get(column, column) for name, column in own.items()}
        named = own
    return later[-1] if known == named else later[-1] + FORMERLY + "".join(chain.from_iterable(known.items()))


def slice_commits(
    history: CommitHistory, slicing: Slicing, *, back: LookBack, known: KnownLog, log: LogVersion, may_be_broken: bool
) -> dict[str, set[int]]:
    """Return slice -> versions of the commits that changed what its run reads, with those that were found before.

    Commits that change no data (OPTIMIZE, VACUUM, properties) are ignored. A change that a later RESTORE reverted is
    ignored, too.
    Raises LogError: a commit removed or changed records of a slice.
    """
    new = {slice_.slice_id: set[int]() for slice_ in back.every}
    for version, rewrite in known.accepted_of(log.table_id).items():
        for name in rewrite.slices if version <= log.version else ():  # log retention may have removed the commit
            new.setdefault(name, set()).add(version)
    for group, group_history in history.groups.items():
        slice_id = slicing.slice_of(group)
        if slice_id is None:
            continue
        if group_history.broken is not None and not may_be_broken:
            raise removed_records(log.uri, slice_id, group_history.broken, why_not_accepted=log.why_not_accepted)
        new.setdefault(slice_id, set()).update(group_history.commits)
    before, ids = _seen_before(known, log), [slice_.slice_id for slice_ in back.every]
    seen = {name: {commit for place in places for commit in place.commits} for name, places in before.items()}
    commits = {}
    for name in ids:
        own = before.get(name)
        # What was seen of another slice covers those before that one as well, which the run of this slice may not read.
        unread = range(own[-1].version + 1 if own else 0, history.since)
        others = ids[back.before(name).start : back.before(name).stop]
        of_others = (new[other].union(filter(unread.__contains__, seen.get(other, ()))) for other in others)
        commits[name] = new[name].union(seen.get(name, ()), *of_others)
    return commits
