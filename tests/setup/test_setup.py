"""The set-up: its requirements, the packages that it installs, and its messages if something is missing."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from jobs.spark.jars import JarsMissing, delta_jars, listed_jars
from jobs.spark.java import JavaNotFound, ensure_java, find_java, why_not_started
from tests.support.places import ROOT
from windowlib.errors import RequestError

LOCKS = (
    "requirements.lock",
    "requirements-fast.lock",
    "requirements-dev.lock",
    "requirements-build.lock",
    "requirements-docs.lock",
    "requirements-audit.lock",
    "requirements-bootstrap.txt",
)


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def _java_home(directory: Path, version: str) -> Path:
    _script(directory / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    return directory


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "setup" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen, on_path = _java_home(tmp_path / "a", "17.0.15"), _java_home(tmp_path / "b", "17.0.1")
    assert find_java({"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}) == chosen
    assert find_java({"PATH": str(on_path / "bin")}) == on_path


def test_a_java_of_another_version_is_skipped(tmp_path: Path) -> None:
    new, right = _java_home(tmp_path / "new", "21.0.2"), _java_home(tmp_path / "right", "17.0.15")
    assert find_java({"JAVA_HOME": str(new), "PATH": str(right / "bin")}) == right


def test_without_java_17_the_message_says_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.spark.java._JVM_DIRECTORIES", (tmp_path / "nowhere",))
    old = _java_home(tmp_path / "old", "1.8.0_392")
    with pytest.raises(JavaNotFound, match=r"old is Java 8\).*openjdk-17-jre-headless"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_java_is_found_in_the_usual_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.spark.java._JVM_DIRECTORIES", (tmp_path,))
    _java_home(tmp_path / "java-11", "11.0.2")
    right = _java_home(tmp_path / "java-17", "17.0.9")
    assert find_java({"PATH": ""}) == right


def test_spark_starts_a_java_that_is_installed_or_the_error_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: without Java, or with a JAVA_HOME that is gone, a replay with Spark was "a bug in Hindcast"."""
    monkeypatch.setattr("jobs.spark.java._JVM_DIRECTORIES", (tmp_path,))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RequestError, match=r"needs Java 17.*or set JAVA_HOME"):
        ensure_java()
    right = _java_home(tmp_path / "java-17", "17.0.9")
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(right)
    right.joinpath("bin", "java").write_text("not started again")
    ensure_java()


def test_a_java_that_spark_cannot_start_is_named_with_one_that_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: with JAVA_HOME at Java 11, or at a broken Java, a replay with Spark was "a bug in Hindcast"."""
    monkeypatch.setattr("jobs.spark.java._JVM_DIRECTORIES", (tmp_path / "jvm",))
    monkeypatch.setenv("PATH", "")
    _script(tmp_path / "broken" / "bin" / "java", "exit 1")
    for home in (_java_home(tmp_path / "old", "11.0.2"), tmp_path / "broken"):
        monkeypatch.setenv("JAVA_HOME", str(home))
        with pytest.raises(JavaNotFound, match=r"does not have \(found: .*(old is Java 11|broken does not work)"):
            why_not_started()
    right = _java_home(tmp_path / "jvm" / "17", "17.0.9")
    assert why_not_started().endswith(f"broken/bin/java, which does not work. Set JAVA_HOME to {right}")
    monkeypatch.setenv("JAVA_HOME", str(right))
    monkeypatch.setenv("HINDCAST_DRIVER_MEMORY", "3x")
    assert "HINDCAST_DRIVER_MEMORY, which is 3x" in why_not_started()


def test_spark_refuses_a_java_that_ends_at_once(tmp_path: Path) -> None:
    old = _script(tmp_path / "bin" / "java", 'test "$1" = -version && echo \'version "11.0.2"\' >&2; exit 1').parents[1]
    code = "from jobs.spark.session import spark_context; spark_context('java')"
    environ = os.environ | {"JAVA_HOME": str(old), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1].startswith("windowlib.errors.RequestError: Spark 4.2 needs Java 17, and could")


def test_a_directory_that_this_user_may_not_read_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.spark.java._JVM_DIRECTORIES", (tmp_path / "secret", tmp_path))
    right = _java_home(tmp_path / "zulu", "17.0.9")
    (tmp_path / "private").mkdir()

    def refused(path: Path, **_options: object) -> os.stat_result:
        if "private" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return os.stat(path)  # noqa: PTH116 - Path.stat is this function

    monkeypatch.setattr(Path, "stat", refused)
    assert find_java({"PATH": ""}) == right


def test_one_run_names_everything_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    check = _load("check_machine")
    monkeypatch.setattr(check.shutil, "which", lambda _tool, **_options: None)
    monkeypatch.setattr(check, "DISK_NEEDED_GB", 10**9)
    monkeypatch.setattr(check.platform, "system", lambda: "Plan 9")
    problems = "\n".join(check.missing_parts())
    for expected in ("this is Plan 9", "package make", "package util-linux", "the set-up needs 1000000000 GB"):
        assert expected in problems


def test_this_machine_has_everything() -> None:
    assert _load("check_machine").missing_parts() == []


def test_another_python_is_refused_by_name(tmp_path: Path) -> None:
    other = _script(tmp_path / "python", "echo '3.9 /usr/bin/python3.9'")
    found = subprocess.run(
        [ROOT / "setup" / "find-python.sh"],
        env=os.environ | {"PYTHON": str(other)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert f"{other} is 3.9" in found.stderr
    assert "apt-get install python3.11" in found.stderr


def test_hindcast_jars_names_the_directory_of_the_jars(tmp_path: Path) -> None:
    names = list(listed_jars())
    assert len(names) == 33
    for name in names:
        (tmp_path / name).touch()
    assert delta_jars({"HINDCAST_JARS": str(tmp_path)}) == [tmp_path / name for name in names]
    (tmp_path / names[5]).unlink()
    with pytest.raises(JarsMissing, match=rf"has 32 of the 33 jars of Delta \({re.escape(names[5])} is missing\)"):
        delta_jars({"HINDCAST_JARS": str(tmp_path)})


def test_a_jar_with_another_content_is_refused(tmp_path: Path) -> None:
    from jobs.spark import fetch_jars as resolve

    (tmp_path / "good.jar").write_bytes(b"good")
    (tmp_path / "changed.jar").write_bytes(b"bad")
    (tmp_path / "stranger.jar").write_bytes(b"who?")
    sums = tmp_path / "sums"
    digest = hashlib.sha256(b"good").hexdigest()
    sums.write_text("".join(f"{digest}  {name}.jar\n" for name in ("good", "changed", "absent")), encoding="utf-8")
    assert resolve.wrong_jars(replace(resolve.DELTA, directory=tmp_path, sums=sums)) == [
        "absent.jar is missing",
        "stranger.jar is not in the list",
        f"changed.jar has SHA-256 {hashlib.sha256(b'bad').hexdigest()}, expected {digest}",
    ]


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_version_and_hashes(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    requirements = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n", "", text).strip())
    assert requirements
    for requirement in requirements:
        assert re.match(r"[a-z0-9._-]+==\S+", requirement), requirement[:80]
        assert "--hash=sha256:" in requirement, requirement[:80]
    assert "://" not in text, "a lock names no index"


@pytest.mark.parametrize("part", ["requirements", "requirements-fast", "requirements-dev", "requirements-docs"])
def test_every_required_package_is_locked(part: str) -> None:
    wanted = re.findall(r"(?m)^([A-Za-z][A-Za-z0-9_.-]*)", (ROOT / f"{part}.in").read_text(encoding="utf-8"))
    locked = set(re.findall(r"(?m)^([a-z0-9._-]+)==", (ROOT / f"{part}.lock").read_text(encoding="utf-8")))
    assert {name.lower() for name in wanted} - locked == set()
    assert "pyspark-client" not in locked, "it would overwrite files of pyspark"


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"(?m)^\.PHONY: (.*)$", makefile)
    assert phony is not None
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in set(phony[1].split()) - {"FORCE"}:
        assert f"make {target} " in shown


@pytest.mark.parametrize(
    "name", ["setup/find-python.sh", ".ci/run", "jobs/bin/airflow", "jobs/bin/spark-submit-pdeathsig"]
)
def test_scripts_are_executable_and_strict(name: str) -> None:
    path = ROOT / name
    assert path.stat().st_mode & 0o111
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text


def test_a_clone_that_was_moved_or_copied_is_set_up_again(tmp_path: Path) -> None:
    clone = tmp_path / "another 'place'"
    shutil.copytree(ROOT / "setup", clone / "setup")
    for name in ("Makefile", *LOCKS):
        shutil.copy(ROOT / name, clone)
    place = clone / ".cache/setup/place"
    stamps = [clone / name for name in (".cache/uv/installed", ".venv/synced", ".cache/docs/synced")]
    for written, is_again in ((tmp_path / "before", True), (clone, False)):
        for path in (clone / "jobs/spark/java.py", clone / ".cache/setup/python", place, *stamps):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        place.write_text(f"{written}\n", encoding="utf-8")
        subprocess.run(["make", "--dry-run", "clean"], cwd=clone, capture_output=True, check=True)
        assert all(stamp.exists() for stamp in stamps), "`make clean` needs .venv to stop Airflow"
        command = ["make", "--dry-run", str(stamps[0].relative_to(clone))]
        steps = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout
        assert ("installing uv" in steps) == is_again, steps
        assert [stamp.exists() for stamp in stamps] == [not is_again] * 3
        assert place.read_text(encoding="utf-8") == f"{clone}\n"
