"""Fetches jars with Spark's own Ivy, once, into the cache, and checks them against the list of sums beside this module.

`make setup` runs `python -m jobs.spark.fetch_jars` for the jars of Delta, and `make s3` runs it with `--s3` for the S3
file system. `hindcast setup` of a wheel does the same. Ivy's output goes to a log in the cache. Exit status 0 or 1.
With `--write`, it writes the list anew from the fetched jars: use that for a new version, and review the difference.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from jobs.project import CACHE, setup_command
from jobs.spark.jars import DEFAULT_DIRECTORY, S3_DIRECTORY, S3_SUMS_FILE, SUMS_FILE, listed_jars
from jobs.spark.java import export_java_home


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Some packages of Maven Central with all that they need.

    `directory` gets the jars, and `sums` lists them. `without` are packages that are left out. `command` fetches them.
    """

    name: str
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()
    directory: Path
    sums: Path
    command: str

    @property
    def log(self) -> Path:
        return CACHE / f"{self.directory.parent.name}.log"


DELTA = JarSet(
    name="Delta",
    packages=("io.delta:delta-spark_4.2_2.13:4.4.0",),
    directory=DEFAULT_DIRECTORY,
    sums=SUMS_FILE,
    command=setup_command(),
)
_SDK = "software.amazon.awssdk"
_SDK_VERSION = "2.35.4"  # that of hadoop-aws 3.5.0
S3 = JarSet(
    name="the S3 file system",
    # The version of Spark's Hadoop. Its SDK in one jar has 600 MB; these parts of the SDK have 24 MB.
    packages=(
        "org.apache.hadoop:hadoop-aws:3.5.0",
        *(f"{_SDK}:{part}:{_SDK_VERSION}" for part in ("s3", "s3-transfer-manager", "sts")),
    ),
    without=(f"{_SDK}:bundle",),
    directory=S3_DIRECTORY,
    sums=S3_SUMS_FILE,
    command=setup_command(s3=True),
)


def fetch_jars(jars: JarSet, *, write: bool = False) -> int:
    """Fetch the jars if one is missing or wrong, compare every jar with its sum, and return the exit status."""
    home = jars.directory.parent
    if write or any(wrong_jars(jars)):
        shutil.rmtree(home, ignore_errors=True)
        status = fetch(jars)
        if status:
            _tell(f"Spark could not fetch {jars.packages[0]} (exit status {status}). {advice(jars)}")
            return 1
    if write:
        lines = [f"{sha256(jar)}  {jar.name}\n" for jar in sorted(jars.directory.glob("*.jar"))]
        jars.sums.write_text("".join(lines), encoding="utf-8")
    problems = wrong_jars(jars)
    for problem in problems:
        _tell(problem)
    if problems:
        _tell(f"the jars of {jars.name} are not those of {jars.sums.name}. {advice(jars)}")
        return 1
    shutil.rmtree(home / "cache", ignore_errors=True)  # Ivy keeps a second copy of the jars here
    return 0


def fetch(jars: JarSet) -> int:
    """Resolve the jars with spark-submit and an empty script, which starts no session. Return its exit status."""
    export_java_home()
    jars.log.parent.mkdir(parents=True, exist_ok=True)
    submit = Path(sys.executable).parent / "spark-submit"
    with tempfile.TemporaryDirectory() as scratch, jars.log.open("w", encoding="utf-8") as log:
        script = Path(scratch) / "nothing.py"
        script.write_text("", encoding="utf-8")
        command: list[str | Path] = [
            submit,
            "--master",
            "local[1]",
            "--packages",
            ",".join(jars.packages),
            *(("--exclude-packages", ",".join(jars.without)) if jars.without else ()),
            "--conf",
            f"spark.jars.ivy={jars.directory.parent}",
            script,
        ]
        environ = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",  # else Spark needs an address of the machine's name
        }
        process = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environ, check=False)  # noqa: S603
    return process.returncode


def _tell(text: str) -> None:
    sys.stderr.write(f"set-up: {text}\n")


def wrong_jars(jars: JarSet) -> list[str]:
    """Return a text for each jar that is missing, has another content, or is not in the list."""
    listed = listed_jars(jars.sums) if jars.sums.exists() else {}
    present = {jar.name: jar for jar in jars.directory.glob("*.jar")}
    problems = [f"{name} is missing" for name in listed.keys() - present.keys()]
    problems += [f"{name} is not in the list" for name in present.keys() - listed.keys()]
    for name in sorted(listed.keys() & present.keys()):
        digest = sha256(present[name])
        if digest != listed[name]:
            problems.append(f"{name} has SHA-256 {digest}, expected {listed[name]}")
    return problems


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def advice(jars: JarSet) -> str:
    """Return what the user can do when a fetch failed."""
    return (
        f"The log is {jars.log}. If Maven Central is reachable, run "
        f"`rm -r {jars.directory.parent}; {jars.command}`. "
        "Java does not know https_proxy: behind a proxy, run "
        "`export SPARK_SUBMIT_OPTS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'` first. "
        "If a jar still differs from its sum, do not use it and report it."
    )


if __name__ == "__main__":
    sys.exit(fetch_jars(S3 if "--s3" in sys.argv[1:] else DELTA, write="--write" in sys.argv[1:]))
