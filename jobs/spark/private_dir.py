"""The private directory for Spark's temporary files: mode 0700, one for each process, removed when the process ends.

Spark's block files contain records. Directly below the temporary directory, every user of the machine could read them.
A killed process cannot remove its directory. The next process removes it, if no process holds the lock in it.
"""

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path

from windowlib.errors import StoreError

PREFIX = "hindcast-spark-"
_LOCK, _LOCK_HALF = "lock", "lock.half"


@cache
def private_directory() -> Path:
    """Return the directory of this process, below SPARK_LOCAL_DIRS or the temporary directory. Created at first use.

    Raises StoreError: no directory can be made there.
    """
    root = scratch()
    remove_left_over(root)
    try:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    except OSError as error:
        raise StoreError(
            f"no directory can be made in {root}: {error.strerror}. Name another one with SPARK_LOCAL_DIRS, or TMPDIR"
        ) from error
    # Spark prefers this variable to `spark.local.dir`. Here it only chooses the parent directory.
    os.environ.pop("SPARK_LOCAL_DIRS", None)
    descriptor = os.open(directory / _LOCK_HALF, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until this process ends
    (directory / _LOCK_HALF).rename(directory / _LOCK)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def scratch() -> Path:
    """Return where large temporary files are: SPARK_LOCAL_DIRS, or the temporary directory, which may be in memory."""
    if private_directory.cache_info().currsize:  # it has removed the variable
        return private_directory().parent
    return Path(os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir())


def users_directory(root: Path, purpose: str) -> Path:
    """Return a directory in another one that all processes of this user share, and no other user can read or write.

    Raises OSError: it cannot be made, or somebody else has made it.
    """
    directory = root / f"hindcast-{purpose}-{os.geteuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(f"{directory} is not a directory that only this user can write; remove it")
    return directory


def remove_left_over(root: Path) -> None:
    """Remove the directories of killed processes. A directory without a lock file is being made by its process."""
    for directory in root.glob(f"{PREFIX}*"):
        try:
            if directory.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
