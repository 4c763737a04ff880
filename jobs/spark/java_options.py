"""The options of the JVM that this process starts: Delta's class path, the class archive, the compiler.

A cold JVM spends most of its time on loading classes and on compiling. Two options save it:

- The class archive (AppCDS) holds the classes of Spark and Delta as they are in memory. `make setup` makes it
  (`class_archive`). Its name has a hash of the JDK and of all jars, so an archive of other versions is not used.
  Without an archive, the JVM loads the classes from the jars.
- `-XX:TieredStopAtLevel=1` turns the optimising compiler C2 off. It costs more than it saves in a short job.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from jobs.project import CACHE
from jobs.spark.jars import class_path, delta_jars

ARCHIVES: Final = CACHE / "jvm"
OPTIMISE_FROM: Final = 2_000_000
"""From this number of records on, the JVM has the optimising compiler.

C2 costs about 15 to 20 CPU-seconds of a cold JVM. It saves about 0.5 to 0.9 CPU-seconds for a million records in sorts,
windows and aggregations, of which a replay has several.
"""
_FEW = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Without C2, the JVM's own limit of 48 MB for compiled code is too small for a process with many plans."""
# The JVM writes its warnings to stdout, where a command prints its result. An archive that does not fit is no problem.
QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def spark_jars() -> list[Path]:
    """Return Spark's own jars, in the order of their names."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        spec = find_spec("pyspark")  # its import takes 0.3 s
        assert spec is not None, "pyspark is installed"
        assert spec.origin is not None, "pyspark is a package with files"
        home = str(Path(spec.origin).parent)
    return sorted(Path(home, "jars").glob("*.jar"))


def class_path_option(jars: Sequence[Path], own: Sequence[Path]) -> str | None:
    """Return the extra class path of the driver; None if a path cannot be part of one."""
    entries = [str(jar) for jar in class_path(jars, own)]
    return None if any(os.pathsep in entry for entry in entries) else os.pathsep.join(entries)


def archive_file(java_home: Path, jars: Sequence[Path], own: Sequence[Path]) -> Path:
    """Return the path of the class archive for this JDK and these jars, whether it exists or not."""
    release = java_home / "release"
    lines = [release.read_text(encoding="utf-8") if release.is_file() else "", str(java_home.resolve())]
    for jar in [*jars, *own]:
        info = jar.stat()
        lines.append(f"{jar} {info.st_size} {info.st_mtime_ns}")  # the JVM compares the same
    return ARCHIVES / f"{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}.jsa"


def java_options(archive: Path | None, *, records: int | None = None) -> list[str]:
    """Return the options for a JVM that will process about this many records (None: unknown).

    A class archive that does not exist is not used. From `OPTIMISE_FROM` records on, and if their number is unknown,
    the optimising compiler is on.
    """
    is_small = records is not None and records < OPTIMISE_FROM
    shared = [_quoted(f"-XX:SharedArchiveFile={archive}"), *QUIET] if archive is not None and archive.is_file() else []
    return [*shared, *(_FEW if is_small else ())]


def _quoted(option: str) -> str:
    """Return an option as Spark splits a list of options: one with white space is in quotes."""
    return f'"{option}"' if any(character.isspace() for character in option) else option


def find_archive() -> Path | None:
    """Return the path of the class archive for the jars and for the Java that pyspark starts; None without a Java."""
    java = shutil.which("java")
    home = os.environ.get("JAVA_HOME") or (Path(java).resolve().parent.parent if java else None)
    return None if home is None else archive_file(Path(home), delta_jars(), spark_jars())
