"""Fetch the Delta jars with Spark's own Ivy, once, into .cache/ivy/jars, and check them against setup/jars.sha256.

`make setup` runs this with the Python of .venv. Ivy's output goes to .cache/ivy.log. Exit status 0 or 1.
With `--write`, it writes the list anew from the fetched jars: use that for a new version, and review the difference.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from jobs.project import ROOT
from jobs.spark.jars import DEFAULT_DIRECTORY, SUMS_FILE, listed_jars
from jobs.spark.java import export_java_home

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
IVY_HOME = DEFAULT_DIRECTORY.parent
LOG_FILE = ROOT / ".cache" / "ivy.log"


def main(*, write: bool) -> int:
    """Fetch the jars if one is missing or wrong, compare every jar with its sum, and return the exit status."""
    if write or any(wrong_jars()):
        shutil.rmtree(IVY_HOME, ignore_errors=True)
        status = fetch()
        if status:
            print(f"set-up: Spark could not fetch {DELTA} (exit status {status}). {advice()}", file=sys.stderr)
            return 1
    if write:
        lines = [f"{sha256(jar)}  {jar.name}\n" for jar in sorted(DEFAULT_DIRECTORY.glob("*.jar"))]
        SUMS_FILE.write_text("".join(lines), encoding="utf-8")
    problems = wrong_jars()
    for problem in problems:
        print(f"set-up: {problem}", file=sys.stderr)
    if problems:
        print(f"set-up: the Delta jars are not those of setup/jars.sha256. {advice()}", file=sys.stderr)
        return 1
    shutil.rmtree(IVY_HOME / "cache", ignore_errors=True)  # Ivy keeps a second copy of the jars here
    return 0


def fetch() -> int:
    """Resolve the jars with spark-submit and an empty script, which starts no session. Return its exit status."""
    export_java_home()
    LOG_FILE.parent.mkdir(parents=True, exist_ok=True)
    submit = Path(sys.executable).parent / "spark-submit"
    with tempfile.TemporaryDirectory() as scratch, LOG_FILE.open("w", encoding="utf-8") as log:
        script = Path(scratch) / "nothing.py"
        script.write_text("", encoding="utf-8")
        command: list[str | Path] = [
            submit,
            "--master",
            "local[1]",
            "--packages",
            DELTA,
            "--conf",
            f"spark.jars.ivy={IVY_HOME}",
            script,
        ]
        environ = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",  # else Spark fails where the machine's own name has no address
        }
        found = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environ, check=False)  # noqa: S603
    return found.returncode


def wrong_jars() -> list[str]:
    """Return a text for each jar that is missing, has another content, or is not in the list."""
    listed = listed_jars() if SUMS_FILE.exists() else {}
    present = {jar.name: jar for jar in DEFAULT_DIRECTORY.glob("*.jar")}
    problems = [f"{name} is missing" for name in listed.keys() - present.keys()]
    problems += [f"{name} is not in the list" for name in present.keys() - listed.keys()]
    for name in sorted(listed.keys() & present.keys()):
        found = sha256(present[name])
        if found != listed[name]:
            problems.append(f"{name} has SHA-256 {found}, expected {listed[name]}")
    return problems


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def advice() -> str:
    """Return what the user can do when a fetch failed."""
    return (
        f"The log is {LOG_FILE}. If Maven Central is reachable, run `rm -r {IVY_HOME}; make setup`. "
        "If a jar still differs from its sum, do not use it and report it."
    )


if __name__ == "__main__":
    sys.exit(main(write="--write" in sys.argv[1:]))
