"""Recognises the errors of a disk that is full, over its quota, read-only, broken or forbidden, for any library.

A process with too many open files, without memory, or without a right to one more thread has such an error as well.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from windowlib.errors import StoreError

_OTHER_DISK: Final = "A lake, and a Delta table of an export, need a file system with hard links"
_ADVICE: Final = {
    errno.ENOSPC: "Free space on that disk, and run the same command again",
    errno.EDQUOT: "Free space there or raise the quota, and run the same command again",
    errno.EROFS: "Mount that disk writable, and run the same command again",
    errno.EIO: "Check that disk and its mount, and run the same command again",
    errno.EACCES: "Give this user the right to use it, and run the same command again",
    errno.EMFILE: "Raise the limit of open files of a process (ulimit -n), and run the same command again",
    errno.EPERM: f"Give this user the right to use it, and run the same command again. {_OTHER_DISK}",
    errno.ENOTSUP: _OTHER_DISK,
    errno.ENOSYS: _OTHER_DISK,
    errno.EFBIG: "Raise the limit of the size of a file (ulimit -f), and run the same command again",
    errno.ENOMEM: "Give the process more memory (the container's limit, ulimit -v), and run the same command again",
    errno.EAGAIN: "Raise the limit of processes and threads (of the user: ulimit -u; of the container: pids), and run "
    "the same command again",
}
_CODE: Final = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]|Os \{ code: (\d+),", re.IGNORECASE)
"""How Rust and Arrow write the number of an error in the text of an exception."""


def disk_problem(error: BaseException | None) -> str | None:
    """Return one text with the problem of the disk and what to do; None if an exception does not come from one.

    The causes of the exception are searched, too.
    """
    while error is not None:
        codes = [int(code) for match in _CODE.finditer(str(error)) for code in match.groups() if code]
        if isinstance(error, OSError) and error.errno is not None:
            codes.append(error.errno)
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException":  # DuckDB's
            codes.append(errno.ENOMEM)
        if str(error) == "can't start new thread":
            codes.append(errno.EAGAIN)
        for code in codes:
            if code in _ADVICE and "without blocking" not in str(error):  # a full pipe is no disk
                return _told(code)
        error = error.__cause__
    return None


def disk_problem_in(text: str) -> str | None:
    """Return the problem of a disk that a text of Spark or Java tells, in the words of the system, and what to do."""
    return next((_told(code) for code in _ADVICE if os.strerror(code) in text), None)


def _told(code: int) -> str:
    return f"{os.strerror(code)}. {_ADVICE[code]}"


def may_write(place: str) -> bool:
    """Return whether this process may write in a directory, or make it. Of a store, that is not known before."""
    if "://" in place:
        return True
    return os.access(next(path for path in (Path(place), *Path(place).absolute().parents) if path.exists()), os.W_OK)


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Turn the error of a disk into a `StoreError` that names the place. All other exceptions pass.

    Raises StoreError: the disk is full, over its quota, read-only or broken, or this user may not use the place.
    """
    try:
        yield
    except OSError as error:
        problem = disk_problem(error)
        if problem is None:
            raise
        raise StoreError(f"{place} cannot be written: {problem}") from error
