"""The archive of the packages: complete, importable by itself, the same for the same code, and private."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from jobs.spark.code_archive import PACKAGES, code_archive
from tests.support.places import ROOT

SHOW = """
import sys
sys.path = [sys.argv[1], *(one for one in sys.path if one not in ("", sys.argv[2]))]
import jobs.replay.stages.windows, jobs.replay.stages.scan, windowlib.testkit
names = [name for name in sys.modules if name.split(".")[0] in ("jobs", "windowlib", "expectations")]
assert all(sys.modules[name].__file__.startswith(sys.argv[1]) for name in names), names
assert sys.modules["jobs"].__cached__.endswith(".pyc") or sys.modules["jobs"].__spec__.cached is None
print(len(names))
"""


def _clone(root: Path, text: str) -> Path:
    for package in PACKAGES:
        (root / package / "__pycache__").mkdir(parents=True)
        (root / package / "__init__.py").write_text(text, encoding="utf-8")
        (root / package / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"stale")
    return root


@pytest.mark.slow
def test_a_process_without_the_clone_imports_the_code_from_the_archive(tmp_path: Path) -> None:
    archive = code_archive(ROOT, tmp_path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", SHOW, str(archive), str(ROOT)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 50


def test_the_same_code_gives_the_same_bytes_and_is_archived_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _clone(tmp_path / "clone", "x = 1")
    first, second = (code_archive(root, tmp_path / place) for place in ("a", "b"))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    written = first.stat().st_mtime_ns
    assert code_archive(root, tmp_path / "a").stat().st_mtime_ns == written
    with monkeypatch.context() as other_user:  # a file has mode 0600, so Spark could not read that of another user
        other_user.setattr(os, "access", lambda *_: False)
        assert code_archive(root, tmp_path / "a").stat().st_mtime_ns > written
    (root / "jobs" / "__init__.py").write_text("x = 2", encoding="utf-8")
    assert code_archive(root, tmp_path / "a").name != first.name
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
    assert names == [f"{package}/__init__.py{kind}" for package in PACKAGES for kind in ("", "c")]


def test_a_read_only_clone_is_archived_in_a_private_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, blocked = _clone(tmp_path / "clone", "x = 1"), tmp_path / "a file"
    blocked.touch()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    found = code_archive(root, blocked / "code")
    assert found.parent.parent == tmp_path
    assert found.parent.stat().st_mode & 0o777 == 0o700
    assert code_archive(root, blocked / "code") == found
    found.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="only this user can write"):
        code_archive(root, blocked / "code")
