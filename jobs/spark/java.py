"""Search for a Java 17, which Spark 4.2 needs. No library, because the set-up runs it before any install."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from windowlib.errors import RequestError

JAVA_VERSION = 17
_SDKMAN = os.path.expanduser("~/.sdkman/candidates/java")  # noqa: PTH111 - Path.home() fails for a user without one
_JVM_DIRECTORIES = (Path("/usr/lib/jvm"), Path("/usr/java"), Path("/opt"), Path(_SDKMAN))


class JavaNotFound(RequestError):  # noqa: N818
    """This machine has no Java 17. The message says which Java was found and what to install."""


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the home directory of a Java 17: JAVA_HOME, else the `java` on the PATH, else the usual directories.

    Raises JavaNotFound: none of them is a Java 17.
    """
    seen: list[str] = []
    for home in _candidates(environ):
        version = _major_version(home / "bin" / "java")
        if version == JAVA_VERSION:
            return home
        seen.append(f"{home} {_described(version)}")
    others = f" (found: {'; '.join(seen)})" if seen else ""
    raise JavaNotFound(
        f"Spark 4.2 needs Java {JAVA_VERSION}, which this machine does not have{others}. Install the package "
        f"openjdk-{JAVA_VERSION}-jre-headless (Debian and Ubuntu: apt-get install openjdk-{JAVA_VERSION}-jre-headless; "
        f"Fedora: java-{JAVA_VERSION}-openjdk-headless), or set JAVA_HOME to a Java {JAVA_VERSION}."
    )


def export_java_home() -> Path:
    """Set JAVA_HOME of this process to `find_java()`, which Spark then starts, and return it."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def ensure_java() -> None:
    """Set JAVA_HOME if the Java that Spark would start, of JAVA_HOME or else the PATH, is missing.

    Raises JavaNotFound: this machine has no Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        export_java_home()


def why_not_started() -> str:
    """Return why Spark could not start the Java of JAVA_HOME, or else of the PATH, and what to set.

    Raises JavaNotFound: this Java does not fit, and the machine has no Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    version = _major_version(java)
    if version is None or version < JAVA_VERSION:
        return (
            f"Spark 4.2 needs Java {JAVA_VERSION}, and could not start {java}, which {_described(version)}. Set "
            f"JAVA_HOME to {find_java()}"
        )
    return (
        f"Java {version} ({java}) ended before Spark had started, and printed the reason above. If it is the memory, "
        f"set HINDCAST_DRIVER_MEMORY, which is {os.environ.get('HINDCAST_DRIVER_MEMORY', '3g')}; if it is an option, "
        "correct SPARK_SUBMIT_OPTS"
    )


def _described(version: int | None) -> str:
    return "does not work" if version is None else f"is Java {version}"


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if configured := environ.get("JAVA_HOME"):
        yield Path(configured)
    if on_path := shutil.which("java", path=environ.get("PATH")):
        yield Path(on_path).resolve().parent.parent
    for directory in _JVM_DIRECTORIES:
        with suppress(OSError):  # it does not exist, or this user may not list it
            yield from (path for path in sorted(directory.iterdir()) if os.access(path / "bin" / "java", os.X_OK))


def _major_version(java: Path) -> int | None:
    """Return 17 for `openjdk version "17.0.15" …`, or None if the program fails or prints no version."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None
