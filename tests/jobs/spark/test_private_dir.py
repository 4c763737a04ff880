"""Where Spark spills: a directory of one process, closed to all others, gone when the process is."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

MAKE = """
import sys
from jobs.spark.private_dir import private_directory
directory = private_directory()
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


def test_it_is_private_and_removed_with_its_process_killed_or_not(tmp_path: Path) -> None:
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


def test_it_is_where_spark_was_told_to_spill(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    process, directory = _start(tmp_path, SPARK_LOCAL_DIRS=f"{tmp_path}/disk,/other")
    process.communicate()
    assert directory.parent == tmp_path / "disk"


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hindcast-spark-being-made").mkdir()
    (tmp_path / "hindcast-spark-file").write_text("")
    (tmp_path / "hindcast-spark-link").symlink_to("/")
    process, _ = _start(tmp_path)
    process.communicate()
    assert len(list(tmp_path.iterdir())) == 3
