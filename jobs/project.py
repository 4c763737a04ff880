"""Where this code and its files are: in a clone, in a copy of one, or installed as a wheel. Standard library only."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""The directory of the packages: a clone, which also has the DAGs and the pipelines, or `site-packages`."""

IS_CLONE: Final = (ROOT / "dags" / "hindcast_dags.py").is_file()
"""Whether the code is in a clone or a copy of one, and not installed as a wheel."""

PROGRAMS: Final = Path(__file__).resolve().parent / "bin"
"""The directory of the programs that Airflow's tasks start."""

# Path.home() fails for a user without a home, whose cache is /.cache.
_OF_USER: Final = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache").removeprefix("~")  # noqa: PTH111
CACHE: Final = ROOT / ".cache" if IS_CLONE else Path(_OF_USER) / "hindcast"
"""The directory of what the set-up fetches and makes. It can be removed and made again."""

try:
    _USERS = ROOT if IS_CLONE else Path.cwd()
except FileNotFoundError:  # the working directory was removed
    _USERS = Path()

HOME: Final = _USERS / ".hindcast"
"""The directory of the lake and of the embedded Airflow, if the user names no other."""

PIPELINES: Final = _USERS / "pipelines"
"""The directory of pipeline files, if the user names no other."""


def demo_directories(target: str = "demo") -> tuple[Path, ...]:
    """Return the directories of the demonstrations, those of `make demo` or of `make year`, oldest first.

    Each demonstration makes a directory, whose name is the next number.
    """
    parent = HOME / target
    homes = [path for path in parent.iterdir() if path.name.isdecimal()] if parent.is_dir() else []
    return tuple(sorted(homes, key=lambda path: int(path.name)))


def demo_in_use() -> Path | None:
    """Return the directory of the newest demonstration with a lake, if commands use that lake; otherwise None.

    They use it in the directory of the clone only, and only if the clone has no lake of its own in `.hindcast/lake`.
    """
    if Path.cwd() != ROOT or (HOME / "lake").exists():
        return None
    return next((path for path in reversed(demo_directories()) if (path / "lake").is_dir()), None)


def setup_command(*, s3: bool = False) -> str:
    """Return the command that fetches Spark's jars: those of Delta, or those of the S3 file system."""
    if IS_CLONE:
        return "make s3" if s3 else "make setup"
    return "hindcast setup --s3" if s3 else "hindcast setup"
