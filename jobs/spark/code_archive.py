"""The archive of the project's packages, which Spark sends to executors that have no directory with the code.

An executor needs the libraries of requirements.lock, and nothing of this project: the driver sends `jobs`, `windowlib`
and `expectations` as one zip file, and users' functions with the tasks that call them (`jobs.engine.user_functions`).
The file's name has a hash of its content, so it is made once for each state of the code.
"""

import hashlib
import importlib.util
import io
import os
import py_compile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from jobs.project import ROOT
from jobs.spark.private_dir import users_directory

PACKAGES: Final = ("expectations", "jobs", "windowlib")
ARCHIVES: Final = ROOT / ".cache" / "code"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The date of every member. Zip files have no earlier one."""


def code_archive(root: Path = ROOT, directory: Path = ARCHIVES) -> Path:
    """Return the zip file of the packages below `root`; it is made if it is missing.

    If `directory` cannot be written, a private directory of this user is used, below the temporary directory.
    Raises OSError: neither directory can be written.
    """
    members = sorted(_members(root))
    name = f"hindcast-{_content_hash(members)}.zip"
    if os.access(directory / name, os.R_OK):  # not the file of another user
        return directory / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _written(directory / name, members)
    except OSError:
        return _in_private_place(name, members)


def _members(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name in the archive, path) of every file that the packages have in the clone, without bytecode."""
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix(), path


def _content_hash(members: Sequence[tuple[str, Path]]) -> str:
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for name, path in members:
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _in_private_place(name: str, members: Sequence[tuple[str, Path]]) -> Path:
    """Return the archive in a directory that no other user can write, because its content is executed."""
    directory = users_directory(Path(tempfile.gettempdir()), "code")
    return directory / name if (directory / name).is_file() else _written(directory / name, members)


def _written(path: Path, members: Sequence[tuple[str, Path]]) -> Path:
    """Write the archive atomically, so that a killed or a second process leaves a whole file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for name, source in members:
            _add(archive, name, source.read_bytes())
    descriptor, scratch = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(buffer.getvalue())
    Path(scratch).replace(path)
    return path


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    if name.endswith(".py"):
        archive.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), _bytecode(name, content), zipfile.ZIP_DEFLATED)


def _bytecode(name: str, content: bytes) -> bytes:
    """Return a module's bytecode. Without it, each worker process of Python would compile each module again.

    The bytecode has a hash of its source that Python does not compare (PEP 552), because both are in one file.
    """
    with tempfile.TemporaryDirectory() as directory:
        source, compiled = Path(directory) / "module.py", Path(directory) / "module.pyc"
        source.write_bytes(content)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), str(compiled), name, doraise=True, invalidation_mode=mode)
        return compiled.read_bytes()
