"""Commits to Delta tables: tries again after another process, and waits until the disk has the commit and its files."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jobs.durability import sync_files, waits_for_disk
from jobs.lake.damage import reading
from jobs.lake.delta_tables import MAX_ATTEMPTS, commit_file, forget_table, open_delta, pause_s
from jobs.storage import names_in
from windowlib.errors import StoreError

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties

LAST_CHECKPOINT = "_last_checkpoint"


def commit_hooks(uri: str) -> "PostCommitHookProperties | None":
    """Return what deltalake does after a commit to a table; None for all that it usually does.

    When it has written a checkpoint, it removes old commits. `sync_commits` does so when the disk has the checkpoint.
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


def renew_properties(table: "DeltaTable", configuration: Mapping[str, str], former: Mapping[str, str | None]) -> bool:
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
            post_commithook_properties=commit_hooks(table.table_uri),
        )
    return bool(renewed)


@contextmanager
def durable_commits(uri: str) -> Iterator[None]:
    """Wait at the end of the context until the disk has the commits to a table that were made meanwhile.

    Raises:
        OSError: the disk failed. The commits are made, and a loss of power may still undo them.
        RequestError: as for `waits_for_disk`, before the context.
    """
    if not waits_for_disk(uri):
        yield
        return
    before = max((version for version, _ in log_files(uri)), default=-1)
    yield
    sync_commits(uri, after=before)


def sync_commits(uri: str, *, after: int) -> None:
    """Wait until the disk has all commits to a table after a version, and the files that they add.

    Files of these commits that are gone are left out: a later commit has removed them.

    Raises:
        OSError: as for `durable_commits`.
    """
    if not waits_for_disk(uri):
        return
    root = Path(uri).resolve()
    new = {path: version for version, path in log_files(str(root)) if version > after}
    if not new:
        return
    added = [root / path for commit in new if commit.suffix == ".json" for path in added_paths(commit)]
    files = [*added, *new, root / "_delta_log" / LAST_CHECKPOINT]
    directories = {parent for file in files for parent in file.parents if parent == root or root in parent.parents}
    above = root.parents if after < 0 else ()  # the commit that creates a table may have made them
    sync_files([*files, *directories, *(parent for parent in above if os.access(parent, os.R_OK))])
    if commit_file(str(root), max(new.values())).with_suffix(".checkpoint.parquet") in new:
        open_delta(uri).cleanup_metadata()


def log_files(uri: str) -> Iterator[tuple[int, Path]]:
    """Yield (version, file) of the commits and checkpoints in the log of a table on this machine, in any order."""
    log = Path(uri, "_delta_log")
    for name in names_in(str(log)):
        version, _, kind = name.partition(".")
        if version.isdecimal() and kind in {"json", "checkpoint.parquet"}:
            yield int(version), log / name


def added_paths(commit: Path) -> Iterator[str]:
    """Yield the paths of the files that a commit adds, relative to the table."""
    for line in commit.read_bytes().splitlines():
        action = json.loads(line)
        if "add" in action:
            yield unquote(action["add"]["path"])
