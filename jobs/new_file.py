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
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=True
        ) as file:
            file.write(text)
            file.flush()
            os.umask(umask := os.umask(0o077))  # the only way to read it
            os.fchmod(file.fileno(), 0o666 & ~umask)
            if replaces:
                os.link(file.name, other := f"{file.name}-new")
                Path(other).replace(path)
            else:
                os.link(file.name, path)  # fails if there is such a file; a rename would replace it
    except FileExistsError as error:
        raise RequestError(f"{path} exists and is not overwritten; {way_on}") from error
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error
