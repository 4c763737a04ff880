"""Commits to Delta tables: tries again after another process, and waits until the disk has the commit and its files."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from cachetools import LRUCache

from jobs.durability import sync_files, unconfirmed, waits_for_disk
from jobs.lake.damage import one_line, reading
from jobs.lake.delta_tables import MAX_ATTEMPTS, commit_file, forget_table, open_delta, pause_s
from jobs.plain_text import agreeing, first_of
from jobs.storage import FileStamp, file_stamp, names_in
from windowlib.errors import StoreError

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties, Schema

log = logging.getLogger(__name__)

LAST_CHECKPOINT: Final = "_last_checkpoint"
_KEEPS_ALL: Final = ("delta.enableExpiredLogCleanup", "false")
"""The property of a table whose old commits are never removed."""
UNAWAITED: Final = 4
"""With a commit, so many before it are awaited: their writers may have been killed before they have waited."""
_AWAITED: Final = LRUCache[Path, FileStamp](1_024)
"""What the commit files were that this process has awaited with the files that they add. They are not awaited again."""
_LOCK: Final = threading.Lock()
_DIGITS: Final = 20
"""The name of a file in a log begins with its version in so many digits."""


class _Together(threading.local):
    """The tables to which this thread has committed in `commits_awaited_together`, and their versions before."""

    before: dict[str, int] | None = None


_TOGETHER: Final = _Together()


def commit_hooks(uri: str) -> "PostCommitHookProperties | None":
    """Return what deltalake does after a commit to a table; None for all that it usually does.

    When it has written a checkpoint, it removes old commits. `remove_old_commits` does so when the disk has the
    checkpoint.
    """
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(cleanup_expired_logs=False) if waits_for_disk(uri) else None


def until_committed(uri: str, commit: Callable[[], None], *, attempts: int = MAX_ATTEMPTS) -> None:
    """Call `commit` until it succeeds and the disk has it; it must read the table's present state at each call."""
    from deltalake.exceptions import CommitFailedError

    for attempt in range(attempts):
        with reading(uri):
            try:
                with durable_commits(uri):
                    return commit()
            except BaseException as error:
                forget_table(uri)
                if not isinstance(error, CommitFailedError):  # `reading` would look for a damaged file in the table
                    raise
        time.sleep(pause_s(attempt))
    raise StoreError(
        f"table {uri}: another process committed first {attempts} times in a row; find the other processes that run "
        "this pipeline, and run again when they are done"
    )


def renew_properties(
    uri: str, table: "DeltaTable", configuration: Mapping[str, str], *, former: Mapping[str, str | None]
) -> bool:
    """Give a table the present values of the properties that still have their former ones; None is no value.

    Return whether one has changed. A person may have set others.
    """
    from deltalake import CommitProperties

    stored = table.metadata().configuration
    renewed = {name: configuration[name] for name, value in former.items() if stored.get(name) == value}
    if renewed:
        table.alter.set_table_properties(
            renewed,
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=commit_hooks(uri),
        )
    return bool(renewed)


def declare_features(uri: str, table: "DeltaTable", schema: "Schema") -> None:
    """Declare the feature for TIMESTAMP_NTZ before a schema with the first such column is committed.

    deltalake does that if it adds a column, but not in `create_write_transaction`. No reader of Delta's kernel opens a
    table with the column and without the feature.

    Raises:
        CommitFailedError: the feature was declared, or another process committed first. Open the table again.
    """
    from deltalake import TableFeatures
    from deltalake.exceptions import CommitFailedError

    features = table.protocol().reader_features or ()
    if "timestampNtz" in features or '"timestamp_ntz"' not in schema.to_json():
        return
    table.alter.add_feature(
        TableFeatures.TimestampWithoutTimezone,
        allow_protocol_versions_increase=True,
        post_commithook_properties=commit_hooks(uri),
    )
    raise CommitFailedError("the table has another version now: a feature was declared")


@contextmanager
def durable_commits(uri: str) -> Iterator[None]:
    """Wait at the end of the context until the disk has the commits to a table that were made meanwhile.

    A few commits before them are awaited, too: a table cannot be read without them.

    Raises:
        StoreError: the disk failed. The commits are made, and a loss of power may still undo them.
        RequestError: as for `waits_for_disk`, before the context.
    """
    if not waits_for_disk(uri):
        yield
        return
    before = newest_in_log(uri)
    yield
    if _TOGETHER.before is None:
        _await({uri: before})
    else:
        _TOGETHER.before.setdefault(uri, before)


@contextmanager
def commits_awaited_together() -> Iterator[None]:
    """Let `durable_commits` of this thread wait at the end of this context, for all tables at once.

    That takes little longer than the wait for one table. Make at most UNAWAITED commits to a table in the context.

    Raises StoreError: as for `durable_commits`.
    """
    _TOGETHER.before = before = dict[str, int]()
    try:
        yield
    finally:
        _TOGETHER.before = None
    _await(before)


def _await(before: Mapping[str, int]) -> None:
    """Wait for the commits to tables after the version of each."""
    newest = sync_commits({uri: max(version - UNAWAITED, -1) for uri, version in before.items()})
    for uri, version in newest.items():
        if version > before[uri]:
            remove_old_commits(uri, version)


def sync_commits(after: Mapping[str, int]) -> dict[str, int]:
    """Wait until the disk has all commits to tables after the version of each, and the files that they add.

    Files of these commits that are gone are left out: a later commit has removed them. Returns the newest of these
    commits of each table that has one and is awaited.
    Raises StoreError: as for `durable_commits`.
    """
    newest, stamps, paths = dict[str, int](), dict[Path, FileStamp](), set[Path]()
    with unconfirmed(f"table {first_of([*after], 1)} {agreeing(len(after), 'have')} a new commit"):
        for uri, root in [(uri, Path(uri).resolve()) for uri in after if waits_for_disk(uri)]:
            new = {path: version for version, path in log_files(str(root), after=after[uri])}
            if new:
                newest[uri] = max(new.values())
            unawaited = {path: stamp for path in new if (stamp := _unawaited(path)) is not None}
            if unawaited:
                stamps |= unawaited
                paths |= _paths(root, unawaited, is_new=0 in map(new.get, unawaited))
        sync_files(paths)
    with _LOCK:
        _AWAITED.update(stamps)
    return newest


def sync_newest(uri: str) -> None:
    """Wait until the disk has the newest commit to a table, whose writer may have been killed before it has waited.

    Raises StoreError: as for `durable_commits`.
    """
    if waits_for_disk(uri):
        sync_commits({uri: newest_in_log(uri) - 1})


def _paths(root: Path, commits: Iterable[Path], *, is_new: bool) -> set[Path]:
    """Return commit files, the files that they add, and directories that have the name of one, or of a new table."""
    added = [path for commit in commits if commit.suffix == ".json" for path in _still_added(commit)]
    inner = {"_delta_log", "", *(str(parent) for path in added for parent in PurePosixPath(path).parents)}
    above = [parent for parent in root.parents if os.access(parent, os.R_OK)] if is_new else []
    return {*commits, *above, *(root / path for path in [f"_delta_log/{LAST_CHECKPOINT}", *added, *inner])}


def remove_old_commits(uri: str, version: int) -> None:
    """Remove the commits that a table does not keep any longer, if `version` has a checkpoint. The disk has it.

    The process that has committed this version calls it. If it fails, the process of a later checkpoint removes them.
    """
    from deltalake.exceptions import DeltaError

    checkpoint = commit_file(uri, version).with_suffix(".checkpoint.parquet")
    if not waits_for_disk(uri) or not checkpoint.exists():
        return
    try:
        table = open_delta(uri, version)
        if _KEEPS_ALL not in table.metadata().configuration.items():
            table.cleanup_metadata()
    except (OSError, DeltaError) as error:  # such as a file that another process has just removed
        log.info("old commits of table %s were not all removed: %s", uri, one_line(error))


def newest_in_log(uri: str) -> int:
    """Return the version of the newest commit in the log of a table on this machine; -1 if it has none."""
    names = (name for name in names_in(f"{uri}/_delta_log") if name.endswith(".json") and name[:_DIGITS].isdecimal())
    return int(max(names, default="-1").partition(".")[0])


def log_files(uri: str, *, after: int = -1) -> Iterator[tuple[int, Path]]:
    """Yield (version, file) of the commits and checkpoints after a version, of a table on this machine, in any order.

    A log may have many files, so names are compared before anything is made of them: names begin with the version.
    """
    directory, first = Path(uri, "_delta_log"), f"{after + 1:0{_DIGITS}}"
    for name in names_in(str(directory)):
        if name >= first:
            version, _, kind = name.partition(".")
            if version.isdecimal() and kind in {"json", "checkpoint.parquet"}:
                yield int(version), directory / name


def _unawaited(commit: Path) -> FileStamp | None:
    """Return the stamp of a commit file if this process has not awaited it; None if it has, or the file is gone."""
    try:
        stamp = file_stamp(commit)
    except FileNotFoundError:
        return None  # another process has removed this old commit
    with _LOCK:
        return None if _AWAITED.get(commit) == stamp else stamp


def _still_added(commit: Path) -> list[str]:
    try:
        return [*added_paths(commit)]
    except FileNotFoundError:
        return []  # another process has removed this old commit


def added_paths(commit: Path) -> Iterator[str]:
    """Yield the paths of the files that a commit adds, relative to the table."""
    for line in commit.read_bytes().splitlines():
        action = json.loads(line)
        if "add" in action:
            yield unquote(action["add"]["path"])
