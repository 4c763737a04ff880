"""A directory of this process alone for what Spark spills: mode 0700, removed at the end, whoever ends it.

Spark's block files hold records, and below the temporary directory every user of the machine could read them. A
process that is killed cannot remove its directory; the next one does, which knows by a lock that its owner is gone.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

PREFIX = "hindcast-spark-"
_LOCK, _LOCK_HALF = "lock", "lock.half"


@cache
def private_directory() -> Path:
    """The directory of this process, made with the first call; below SPARK_LOCAL_DIRS or the temporary directory."""
    # Spark prefers this variable to its setting, so it chooses where our directory is instead.
    chosen = os.environ.pop("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir()
    root = Path(chosen)
    remove_left_over(root)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    descriptor = os.open(directory / _LOCK_HALF, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until this process ends
    (directory / _LOCK_HALF).rename(directory / _LOCK)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def remove_left_over(root: Path) -> None:
    """Remove the directories of our processes that were killed. One without a lock file is being made."""
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
