"""Spark's directory for temporary files: one for each process, private, removed when the process ends."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.spark.private_dir import private_directory
from windowlib.errors import StoreError

MAKE = """
import sys
from jobs.spark.private_dir import private_directory, scratch
before = scratch()
directory = private_directory()
assert before == scratch() == directory.parent
(directory / "block").write_text("a record")
print(directory, flush=True)
sys.stdin.read()
"""


def _start(root: Path, **environ: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(root), **environ},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_directory_is_private_and_removed_also_after_a_kill(tmp_path: Path) -> None:
    living, of_living = _start(tmp_path)
    killed, of_killed = _start(tmp_path)
    assert of_living != of_killed
    for directory in (of_living, of_killed):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert of_killed.exists(), "nobody could remove it"
    next_one, of_next = _start(tmp_path)
    assert not of_killed.exists()
    assert (of_living / "block").exists(), "its process lives"
    for process in (living, next_one):
        process.communicate()
    assert list(tmp_path.iterdir()) == []
    assert not of_next.exists()


def test_a_place_that_cannot_be_used_is_named_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "none"))
    private_directory.cache_clear()
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"in .*none: No such file or directory\. Name another one with SPARK_LOCAL"
        ):
            private_directory()
    monkeypatch.undo()
    private_directory.cache_clear()


def test_the_directory_is_below_spark_local_dirs(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    process, directory = _start(tmp_path, SPARK_LOCAL_DIRS=f"{tmp_path}/disk,/other")
    process.communicate()
    assert directory.parent == tmp_path / "disk"


def test_directories_of_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "hindcast-spark-being-made").mkdir()
    (tmp_path / "hindcast-spark-file").write_text("")
    (tmp_path / "hindcast-spark-link").symlink_to("/")
    process, _ = _start(tmp_path)
    process.communicate()
    assert len(list(tmp_path.iterdir())) == 3
