"""The Delta jars. The set-up fetches them once and checks them against setup/jars.sha256; later use is offline."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.project import ROOT
from windowlib.errors import HindcastError

SUMS_FILE = ROOT / "setup" / "jars.sha256"
DEFAULT_DIRECTORY = ROOT / ".cache" / "ivy" / "jars"


class JarsMissing(HindcastError):  # noqa: N818
    """A jar is missing. The user has to run the set-up, or to set HINDCAST_JARS."""


def listed_jars() -> dict[str, str]:
    """Return file name -> SHA-256 (hex) of every jar that Delta on Spark needs, in the order of setup/jars.sha256."""
    lines = SUMS_FILE.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if line.strip())}


def delta_jars(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the absolute paths for `spark.jars`, from the directory HINDCAST_JARS or the cache of `make setup`.

    Raises:
        JarsMissing: a listed jar is missing. Only the set-up checks the contents.
    """
    directory = Path(environ.get("HINDCAST_JARS") or DEFAULT_DIRECTORY).resolve()
    jars = [directory / name for name in listed_jars()]
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        raise JarsMissing(
            f"{directory} has {len(jars) - len(missing)} of the {len(jars)} jars of Delta ({missing[0]} is missing). "
            "Run `make setup` in the clone, or set HINDCAST_JARS to a directory that has them."
        )
    return jars


def class_path(jars: Sequence[Path], spark_jars: Sequence[Path]) -> list[Path]:
    """Return the jars of Delta that Spark does not have itself, in any version.

    The JVM searches an extra class path before Spark's own jars. So a second version of Jackson or Parquet there would
    replace that of Spark.

    Args:
        jars: the result of `delta_jars`; their names are `<group>_<artifact>-<version>.jar`.
        spark_jars: Spark's own jars; their names are `<artifact>-<version>.jar`.
    """
    own = {_artifact(jar.name) for jar in spark_jars}
    return [jar for jar in jars if _artifact(jar.name.partition("_")[2]) not in own]


def _artifact(name: str) -> str:
    return re.sub(r"-\d.*", "", name)
