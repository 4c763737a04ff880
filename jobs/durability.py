"""Waits until a disk has what was written, so that a loss of power loses nothing that a command has reported.

Linux writes a file to the disk some seconds after a process has written it, unless the process calls fsync for the file
and for the directory that has its name. deltalake and Arrow do not. An object store has what it has acknowledged.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from jobs.disk_errors import disk_problem
from jobs.storage import hidden_file, is_remote
from windowlib.errors import RequestError, StoreError

SETTING: Final = "HINDCAST_FSYNC"
"""The variable that states whether to wait: `on`, the default, or `off`."""
_THREADS: Final = 8
"""So many files are awaited at the same time: the file system then writes them together."""
_PARENTS: Final = 3
"""A new file may be in new directories: so many levels of them are awaited."""
_NOT_SUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP)
"""The errors of file systems that have no fsync for a file or a directory."""


def waits_for_disk(uri: str) -> bool:
    """Return whether commits to a place are awaited: it is on this machine, and the setting is `on`.

    Raises RequestError: the setting has another value.
    """
    setting = os.environ.get(SETTING) or "on"
    if setting not in {"on", "off"}:
        raise RequestError(f"{SETTING} must be on or off, found {setting!r}")
    return setting == "on" and not is_remote(uri)


def sync_files(paths: Iterable[Path]) -> None:
    """Wait until the disk has the content of files, and the names in directories. What is gone is left out.

    Raises OSError: a path cannot be opened, or the disk failed.
    """
    files, directories = list[Path](), list[Path]()
    for path in paths:
        (directories if path.is_dir() else files).append(path)
    if len(files) > 1:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(_sync, files))  # raises the error of a thread
        files = []
    for path in [*files, *directories]:  # the wait for the first directory writes the names in all of them
        _sync(path)


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


@contextmanager
def unconfirmed(what: str) -> Iterator[None]:
    """Turn the error of a disk that does not confirm `what` into a `StoreError` that tells what to do."""
    try:
        yield
    except OSError as error:
        advice = disk_problem(error) or "Check that disk and its mount, and run the same command again"
        raise StoreError(f"{what}, and the disk has not confirmed it ({error}): {advice}") from error


Put = Callable[[str, Callable[[str], None]], None]


@contextmanager
def durable_files() -> Iterator[Put]:
    """Give a function that lets another one write a file, as in `hidden_file`, but also whole after a loss of power.

    The files get their names at the end of the context, when the disk has the content of all of them. They are awaited
    together, which takes little longer than one. If the context raises, there are none of them.
    Raises StoreError: the disk has not confirmed the files.
    """
    awaited = dict[str, Path]()
    with ExitStack() as names:

        def put(place: str, write: Callable[[str], None]) -> None:
            hidden = names.enter_context(hidden_file(place))
            write(hidden)
            if waits_for_disk(place):
                awaited[place] = Path(hidden)

        yield put
        with unconfirmed("a new file is written"):
            sync_files(awaited.values())
    with unconfirmed("the name of a new file is written"):
        sync_files({parent for place in awaited for parent in [*Path(place).resolve().parents][:_PARENTS]})
