"""Writes a file that a person asked for, whole or not at all."""

import os
import tempfile
from pathlib import Path

from windowlib.errors import RequestError


def write_new(
    path: Path, text: str, *, replaces: bool = False, way_on: str = "choose another --output, or remove it"
) -> None:
    """Write a new file, whole or not at all.

    `way_on` tells, for the message, what to do if the file exists.
    Raises RequestError: the file exists, or cannot be written.
    """
    part = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False
        ) as file:
            part = Path(file.name)
            file.write(text)
            os.umask(umask := os.umask(0o077))  # the only way to read it
            os.fchmod(file.fileno(), 0o666 & ~umask)
        if replaces:
            part.replace(path)
        else:
            give_new_name(part, path)
    except FileExistsError as error:
        raise RequestError(f"{path} exists and is not overwritten; {way_on}") from error
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def give_new_name(part: Path, path: Path) -> None:
    """Give a file a name that no file has. Its old name may stay.

    Raises OSError: there is such a file (FileExistsError), or the directory cannot be written.
    """
    try:
        os.link(part, path)  # fails if there is such a file; a rename would replace it
    except FileExistsError:
        raise
    except OSError:  # the file system has no hard links: an empty file takes the name
        path.open("xb").close()
        part.replace(path)
