"""`back-up-lake` copies the logs of tables before their files, and the ledger's first."""

import subprocess
from pathlib import Path

from tests.support.places import ROOT

COMMAND = str(ROOT / "deploy" / "bin" / "back-up-lake")
FILES = (
    "p/ledger/_head/00000000000000000000.json",
    "p/ledger/_delta_log/00000000000000000000.json",
    "p/ledger/part-0.parquet",
    "p/window_outputs/_delta_log/00000000000000000000.json",
    "p/window_outputs/slice_id=2013-01-01 00%3A00/part-0.parquet",
    "event_logs/flights/_delta_log/00000000000000000000.json",
)


def _lake(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name, encoding="utf-8")
    return directory


def _run(*arguments: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_the_copy_has_every_file_but_rows_between_tasks(tmp_path: Path) -> None:
    lake = _lake(tmp_path / "a lake", *FILES, "p/_scratch/attempt/rows.arrow")
    done = _run(lake, tmp_path / "copy")
    assert (done.returncode, done.stderr) == (0, "")
    found = {
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if path.is_file()
    }
    assert found == set(FILES)
    assert all((tmp_path / "copy" / name).read_text(encoding="utf-8") == name for name in FILES)


def test_a_target_with_files_and_a_lake_that_is_missing_are_refused(tmp_path: Path) -> None:
    lake = _lake(tmp_path / "lake", *FILES)
    done = _run(lake, _lake(tmp_path / "copy", "other"))
    assert (done.returncode, "is not empty" in done.stderr) == (1, True)
    assert _run(tmp_path / "nowhere", tmp_path / "new").returncode == 2
    assert not (tmp_path / "new").exists()
