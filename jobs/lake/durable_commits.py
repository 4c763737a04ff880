"""Waits until the disk has commits to Delta tables, with the files that they add."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from urllib.parse import unquote

from jobs.durability import sync_files, waits_for_disk
from jobs.lake.delta_tables import commit_file, open_table

_PARENTS = 3
"""A commit that creates a table may have made so many directories above it: the lake, and that of the pipeline."""


@contextmanager
def durable_commits(uri: str) -> Iterator[None]:
    """Wait at the end of the context until the disk has the commits to a table that were made meanwhile.

    Raises:
        OSError: the disk failed. The commits are made, and a loss of power may still undo them.
    """
    if not waits_for_disk(uri):
        yield
        return
    opened = open_table(uri)
    before = -1 if opened is None else opened.delta.version()
    yield
    sync_commits(uri, after=before)


def sync_commits(uri: str, *, after: int) -> None:
    """Wait until the disk has all commits to a table after a version, and the files that they add.

    Raises:
        OSError: as for `durable_commits`.
    """
    if not waits_for_disk(uri):
        return
    root = Path(uri).resolve()
    commits = [*takewhile(Path.exists, (commit_file(str(root), version) for version in count(after + 1)))]
    if not commits:
        return
    log = commits[0].parent
    added = [root / path for commit in commits for path in _added(commit)]
    checkpoints = [path for commit in commits if (path := commit.with_suffix(".checkpoint.parquet")).exists()]
    files = [*added, *commits, *checkpoints, *([log / "_last_checkpoint"] if checkpoints else [])]
    directories = {parent for file in files for parent in file.parents if parent == root or root in parent.parents}
    above = [] if after >= 0 else [parent for parent in root.parents[:_PARENTS] if _is_readable(parent)]
    sync_files([*files, *sorted(directories, reverse=True), *above])


def _added(commit: Path) -> Iterator[str]:
    """Yield the paths of the files that a commit adds, relative to the table."""
    for line in commit.read_bytes().splitlines():
        action = json.loads(line)
        if "add" in action:
            yield unquote(action["add"]["path"])


def _is_readable(directory: Path) -> bool:
    """Return whether this user may open a directory; that of a lake may be in one of another user."""
    return os.access(directory, os.R_OK)
