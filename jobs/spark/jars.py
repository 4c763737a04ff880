"""The jars of Delta and of the S3 file system. The set-up fetches them once and checks them; later use is offline.

`make setup` fetches the jars of Delta, which jars.sha256 lists. `make s3` fetches those of jars-s3.sha256. Where
Hindcast is installed as a wheel, `hindcast setup` and `hindcast setup --s3` do (`jobs.spark.fetch_jars`).
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.project import CACHE, setup_command
from windowlib.errors import HindcastError

SUMS_FILE = Path(__file__).with_name("jars.sha256")
DEFAULT_DIRECTORY = CACHE / "ivy" / "jars"
S3_SUMS_FILE = Path(__file__).with_name("jars-s3.sha256")
S3_DIRECTORY = CACHE / "ivy-s3" / "jars"


class JarsMissing(HindcastError):  # noqa: N818
    """A jar is missing. The user has to run the set-up, or to set HINDCAST_JARS."""


def listed_jars(sums: Path | None = None) -> dict[str, str]:
    """Return file name -> SHA-256 (hex) of every jar of a list (None: that of Delta), in the order of the list."""
    lines = (sums or SUMS_FILE).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if line.strip())}


def delta_jars(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the absolute paths for `spark.jars`, from the directory HINDCAST_JARS or the cache of `make setup`.

    Raises JarsMissing: a listed jar is missing. Only the set-up checks the contents.
    """
    directory = Path(environ.get("HINDCAST_JARS") or DEFAULT_DIRECTORY).resolve()
    jars = [directory / name for name in listed_jars()]
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        raise JarsMissing(
            f"{directory} has {len(jars) - len(missing)} of the {len(jars)} jars of Delta ({missing[0]} is missing). "
            f"Run `{setup_command()}`, or set HINDCAST_JARS to a directory that has them."
        )
    return jars


def s3_jars() -> list[Path]:
    """Return the absolute paths of the S3 file system's jars, from HINDCAST_S3_JARS or the cache of `make s3`.

    Raises JarsMissing: a listed jar is missing.
    """
    directory = Path(os.environ.get("HINDCAST_S3_JARS") or S3_DIRECTORY).resolve()
    jars = [directory / name for name in listed_jars(S3_SUMS_FILE)]
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        raise JarsMissing(
            f"Spark has to read object storage itself, and its S3 file system is not in {directory} ({missing[0]} is "
            f"missing). Run `{setup_command(s3=True)}`, or set HINDCAST_S3_JARS to a directory that has the jars. A "
            "replay through files does not need them; `hindcast plan --explain` shows why this one uses DataFrames"
        )
    return jars


def class_path(jars: Sequence[Path], spark_jars: Sequence[Path]) -> list[Path]:
    """Return the jars of Delta that Spark does not have itself, in any version.

    The JVM searches an extra class path before Spark's own jars. So a second version of Jackson or Parquet there would
    replace that of Spark. `jars` are the result of `delta_jars`, named `<group>_<artifact>-<version>.jar`. Spark's own
    are named `<artifact>-<version>.jar`.
    """
    own = {_artifact(jar.name) for jar in spark_jars}
    return [jar for jar in jars if _artifact(jar.name.partition("_")[2]) not in own]


def _artifact(name: str) -> str:
    return re.sub(r"-\d.*", "", name)
