"""Where the code and its files are."""

import pwd
import runpy
import shutil
from pathlib import Path

import pytest

from jobs import project
from jobs.spark import java
from windowlib.columnar.stored_loops import _directories


def test_a_user_without_a_home_can_run_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defects: of an installed wheel, each command of such a user ended with a call stack.

    `hindcast setup` put the jars into a directory named `~`, in the working directory.
    """

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    (installed := tmp_path / "jobs" / "project.py").parent.mkdir()
    shutil.copy(project.__file__, installed)
    assert runpy.run_path(str(installed))["CACHE"] == Path("/.cache/hindcast")
    runpy.run_path(java.__file__)
    assert len(_directories()) == 1


def test_commands_run_in_a_directory_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: of an installed wheel, each command ended with a call stack there, also with an absolute lake."""
    (installed := tmp_path / "jobs" / "project.py").parent.mkdir()
    shutil.copy(project.__file__, installed)
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert runpy.run_path(str(installed))["HOME"] == Path(".hindcast")
