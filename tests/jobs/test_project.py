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
    """Defect: of an installed wheel, each command of such a user ended with a call stack."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    (installed := tmp_path / "jobs" / "project.py").parent.mkdir()
    shutil.copy(project.__file__, installed)
    for module in (str(installed), java.__file__):
        runpy.run_path(module)
    assert len(_directories()) == 1
