"""Check that this machine can run Hindcast. Prints everything that is missing, each with the package to install.

It runs before anything is installed, so it uses the standard library only. Exit status 0 or 1.
"""

import platform
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jobs.spark.java import JavaNotFound, find_java  # noqa: E402  (jobs is not installed yet)

DISK_NEEDED_GB = 3
TOOLS = {"make": "make", "setpriv": "util-linux"}


def missing_parts() -> list[str]:
    """Return one paragraph for each thing that is missing."""
    problems = []
    if platform.system() != "Linux":
        problems.append(
            f"Hindcast runs on Linux; this is {platform.system()}. Use Linux, a virtual machine, or docker-compose.yml."
        )
    problems += [
        f"`{tool}` is not on the PATH. Install the package {package} (Debian and Ubuntu: apt-get install {package})."
        for tool, package in TOOLS.items()
        if shutil.which(tool) is None
    ]
    try:
        find_java()
    except JavaNotFound as error:
        problems.append(str(error))
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    if free_gb < DISK_NEEDED_GB:
        problems.append(
            f"The disk of {ROOT} has {free_gb:.1f} GB left, and the set-up needs {DISK_NEEDED_GB} GB. "
            "Free some space, or move the clone to a larger disk."
        )
    return problems


def main() -> int:
    """Print what is missing to the standard error, and return the exit status."""
    problems = missing_parts()
    for problem in problems:
        print(f"set-up: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
