"""Asks a service for the known vulnerabilities of all locked packages (`make audit`). Standard library only.

`pip-audit` asks. If the service cannot be reached, or does not know the packages, no vulnerability is excluded: the
program says so, and lists the locked packages with their versions and the days on which these were uploaded, which uv
asks the registry for.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOCKS = [*sorted(ROOT.glob("requirements*.lock")), ROOT / "requirements-bootstrap.txt"]
FOUND, UNKNOWN = 1, 3
"""Exit statuses: a vulnerability is known; not all packages could be audited. 0: none is known."""


class Package(NamedTuple):
    """A locked package. `uploaded` is the day of its upload, empty if the registry does not tell it."""

    uploaded: str
    name: str
    version: str


class Vulnerability(NamedTuple):
    """A known vulnerability of a locked package, and the versions without it."""

    package: str
    identifier: str
    fixed_in: str


def main() -> int:
    """Audit the locks, print the result, and return the exit status."""
    answers = [audited(lock) for lock in LOCKS]
    if any(answer is None for answer in answers):
        packages = sorted({package for lock in LOCKS for package in listed(lock)})
        print("\n".join(without_service(packages)))
        return UNKNOWN
    told = [answer for answer in answers if answer is not None]
    known = sorted({each for answer in told for each in vulnerabilities(answer)})
    unknown = sorted({package["name"] for answer in told for package in answer["dependencies"] if is_skipped(package)})
    print("\n".join(" ".join(each) for each in known) or "audit: no known vulnerability of a locked package")
    if unknown:
        print(f"audit: NOT AUDITED, because the service does not know them: {', '.join(unknown)}")
    return FOUND if known else UNKNOWN if unknown else 0


def audited(lock: Path) -> Mapping[str, Any] | None:
    """Return the answer of pip-audit for a lock file; None if its service cannot be reached, or knows no package.

    A registry that has only the files of packages answers each question with "not found". pip-audit calls such a
    package skipped, and succeeds.
    """
    command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "--format", "json"]
    command += ["--progress-spinner", "off", "--timeout", "20", "--requirement", str(lock)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603
    try:
        answer = json.loads(asked.stdout)
    except ValueError:
        lines = asked.stderr.strip().splitlines() or ["no answer"]
        print(f"audit: {lock.name}: {lines[-1][:300]}", file=sys.stderr)
        return None
    packages = answer.get("dependencies", ()) if isinstance(answer, dict) else ()
    return answer if not all(map(is_skipped, packages)) else None


def is_skipped(package: Mapping[str, Any]) -> bool:
    """Return whether the service does not know a package."""
    return "skip_reason" in package


def vulnerabilities(answer: Mapping[str, Any]) -> Iterator[Vulnerability]:
    """Yield the vulnerabilities of an answer of pip-audit."""
    for package in answer.get("dependencies", ()):
        for each in package.get("vulns", ()):
            fixed_in = ", ".join(each.get("fix_versions", ())) or "no version yet"
            yield Vulnerability(f"{package['name']} {package['version']}", each["id"], f"fixed in {fixed_in}")


def listed(lock: Path) -> Iterator[Package]:
    """Yield the packages of a lock file with the days of their uploads, from the registry."""
    with tempfile.TemporaryDirectory() as scratch:
        facts = Path(scratch) / "pylock.audit.toml"
        command = [str(ROOT / ".cache/uv/bin/uv"), "pip", "compile", "--quiet", "--no-deps", "--python-version", "3.11"]
        subprocess.run([*command, str(lock), "--output-file", str(facts)], check=True, cwd=ROOT)  # noqa: S603
        yield from packages_of(tomllib.loads(facts.read_text(encoding="utf-8")))


def packages_of(facts: Mapping[str, Any]) -> Iterator[Package]:
    """Yield the packages of a `pylock.toml`."""
    for package in facts["packages"]:
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        days = [str(file["upload-time"])[:10] for file in files if "upload-time" in file]
        yield Package(min(days, default=""), package["name"], package["version"])


def without_service(packages: Iterable[Package]) -> Iterator[str]:
    """Yield the lines that are printed in place of an audit, the oldest versions first."""
    every = list(packages)
    yield (
        f"audit: NOT AUDITED: the service of vulnerabilities cannot be reached. Whether one of the {len(every)} locked "
        "packages has a known vulnerability is not known. Their versions, and the days of the uploads:"
    )
    yield from (f"{package.uploaded or 'unknown   '}  {package.name} {package.version}" for package in every)


if __name__ == "__main__":
    sys.exit(main())
