"""Reads the whole content of a file of limited size. No pipe is waited for, and no device is read."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 2**30
"""No file that is read whole is nearly so large."""


def read_regular(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file, or of one that a link leads to.

    It may have at most `most` bytes.

    Raises:
        OSError: the file is missing, unreadable, too large, or not a regular file. `strerror` is a text for a person.
        ValueError: the path has a NUL character.
    """
    with open(path, "rb", opener=_opened) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, and may have at most {most:,}", str(path))
        return file.read()


def _opened(path: str, flags: int) -> int:
    """Open a file. Without the flag, the opening of a pipe waits until somebody writes into it."""
    return os.open(path, flags | os.O_NONBLOCK)
