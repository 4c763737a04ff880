"""Is this machine able to run Hindcast? Prints all that is missing at once, each with the package that brings it.

Runs before anything is installed, so it uses the standard library only. Exit status 0 or 1.
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
    """One paragraph for each thing that is missing; empty if the machine will do."""
    problems = []
    if platform.system() != "Linux":
        problems.append(
            f"Hindcast runs on Linux; this is {platform.system()}. Use a Linux machine, a VM or the docker-compose.yml."
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
            f"{ROOT} has {free_gb:.1f} GB of disk left, and the set-up needs {DISK_NEEDED_GB} GB. "
            "Free some, or put the clone on a larger disk."
        )
    return problems


def main() -> int:
    """Print what is missing, if anything, to the standard error."""
    problems = missing_parts()
    for problem in problems:
        print(f"set-up: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
