"""Waits until a disk has what was written, so that a loss of power loses nothing that a command has reported.

Linux writes a file to the disk some seconds after a process has written it, unless the process calls fsync for the file
and for the directory that has its name. deltalake and Arrow do not. An object store has what it has acknowledged.
"""

import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from jobs.storage import is_remote, put_file
from windowlib.errors import RequestError

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

    Raises:
        RequestError: the setting has another value.
    """
    setting = os.environ.get(SETTING) or "on"
    if setting not in {"on", "off"}:
        raise RequestError(f"{SETTING} must be on or off, found {setting!r}")
    return setting == "on" and not is_remote(uri)


def sync_files(paths: Iterable[Path]) -> None:
    """Wait until the disk has the content of files, and the names in directories. What is gone is left out.

    Raises:
        OSError: a path cannot be opened, or the disk failed.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        for done in [pool.submit(_sync, path) for path in paths]:
            done.result()


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


def put_durably(place: str, write: Callable[[str], None]) -> None:
    """Let a function write a file that readers see whole or not at all, also after a loss of power, as `put_file`.

    Raises:
        OSError: the disk failed.
    """
    is_waiting = waits_for_disk(place)

    def written(hidden: str) -> None:
        write(hidden)
        if is_waiting:
            sync_files([Path(hidden)])

    put_file(place, written)
    if is_waiting:
        sync_files([*Path(place).resolve().parents][:_PARENTS])
