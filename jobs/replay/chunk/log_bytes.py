"""Checks the bytes of a chunk's part of the log once, before any record is used, whatever reads the records."""

from collections.abc import Mapping
from typing import Final

from jobs.lake.covered_files import CoveredFile, digests_text
from jobs.lake.event_log import PinnedLog
from jobs.lake.known_log import checked_files
from jobs.replay.tasks import LocalTasks, Tasks
from jobs.storage import is_remote, is_s3
from windowlib.errors import LogError

BYTES_PER_TASK: Final = 64_000_000
"""A task reads about this many bytes, in a twentieth of a second."""


def check_log_bytes(tasks: Tasks, log: PinnedLog, *, bytes_per_task: int = BYTES_PER_TASK) -> Mapping[str, str]:
    """Compare every file that is read with its checksum file, or with the digest that an earlier reading has stored.

    Returns slice -> the digests of its files that no checksum file covers, as `LogCoordinates.file_digests`.
    Raises LogError: a file is not as it was written, or as an earlier reading has found it, or it cannot be read.
    """
    log = log.whole
    files = log.covered_files()
    parts = min(-(-sum(file.bytes for file in log.files) // bytes_per_task), len(files))
    # Tasks read places of Spark's other file systems only through Spark.
    is_here = parts <= 1 or (is_remote(log.uri) and not is_s3(log.uri))
    shares = [files[number::parts] for number in range(parts)]
    digests: dict[str, bytes] = {}
    for file_digests in (LocalTasks() if is_here else tasks).run(_digests, shares):
        digests.update(file_digests)
    by_slice: dict[str, dict[str, bytes]] = {}
    for file in log.files:
        if file.path in digests:
            by_slice.setdefault(file.slice_id, {})[file.digest_name] = digests[file.path]
    return {slice_id: digests_text(own) for slice_id, own in by_slice.items()}


def _digests(files: tuple[CoveredFile, ...]) -> dict[str, bytes]:
    """Check files. Return path -> digest of those that no checksum file covers."""
    digests: dict[str, bytes] = {}
    for file, digest in zip(files, checked_files(files), strict=True):
        if isinstance(digest, LogError):
            raise digest
        if digest is not None:
            digests[file.path] = digest
    return digests
