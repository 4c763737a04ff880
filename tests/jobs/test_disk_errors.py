"""The errors of a disk are recognised in the words of Python, Arrow and Rust."""

import errno

import pyarrow as pa
import pytest

from jobs.disk_errors import disk_problem, writing
from jobs.lake.damage import unreadable
from windowlib.errors import StoreError

FULL = "No space left on device. Free space on that disk, and run the same command again"


def _caused() -> Exception:
    error = ValueError("the commit failed")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/lake/x"),
        OSError("Error writing bytes to file. Detail: [errno 28] No space left on device"),
        RuntimeError("Generic LocalFileSystem error: Unable to rename file: No space left on device (os error 28)"),
        OSError('Could not create local directory: /lake Error: Os { code: 28, kind: StorageFull, message: "full" }'),
        _caused(),
    ],
    ids=["python", "arrow", "rust", "rust debug", "cause"],
)
def test_a_full_disk_is_recognised(error: Exception) -> None:
    assert disk_problem(error) == FULL
    assert str(unreadable("/lake/t", error)).startswith(f"table /lake/t: {FULL} (")


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file"),
        BlockingIOError(errno.EAGAIN, "write could not complete without blocking"),
        ValueError("code 28"),
        RuntimeError("(os error 2)"),
        None,
    ],
)
def test_other_errors_are_none_of_a_disk(error: Exception | None) -> None:
    assert disk_problem(error) is None


def test_a_place_that_a_user_may_not_use_is_recognised() -> None:
    for error in (PermissionError(errno.EACCES, "x"), OSError("x. Detail: [errno 1] Operation not permitted")):
        assert "Give this user the right to use it, and run the same command again" in (disk_problem(error) or "")


def test_a_file_system_without_hard_links_is_recognised() -> None:
    """Delta's commit to a lake on a disk is a hard link, and deltalake tells only the number of the error."""
    for code in (errno.EPERM, errno.ENOSYS, errno.ENOTSUP):
        text = f"Generic LocalFileSystem error: Unable to rename file (os error {code})"
        assert "file system with hard links" in (disk_problem(OSError(text)) or "")


class OutOfMemoryException(Exception):  # noqa: N818 - named as DuckDB's
    pass


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError("Unable to copy data to file: File too large (os error 27)"), "ulimit -f"),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "more memory"),
        (OutOfMemoryException("Failed to allocate block"), "more memory"),
        (RuntimeError("can't start new thread"), "processes and threads"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "processes and threads"),
    ],
)
def test_a_limit_of_the_process_is_recognised(error: Exception, advice: str) -> None:
    """Defect: they were "a bug in Hindcast", or the advice was to restore the ledger from a backup."""
    assert advice in (disk_problem(error) or "")


def test_a_writer_names_the_place_of_a_failed_disk_and_passes_other_errors() -> None:
    with pytest.raises(StoreError, match=r"/lake/t cannot be written: Disk quota exceeded\. Free space there or raise"):  # noqa: SIM117
        with writing("/lake/t"):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
    with pytest.raises(FileNotFoundError), writing("/lake/t"):
        raise FileNotFoundError(errno.ENOENT, "No such file")
