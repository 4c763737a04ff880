"""`back-up-lake` copies the logs of tables before their files, and the ledger's first."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.places import ROOT

COMMAND = str(ROOT / "deploy" / "bin" / "back-up-lake")
FILES = (
    "p/ledger/_head/00000000000000000000.json",
    "p/ledger/_delta_log/00000000000000000000.json",
    "p/ledger/part-0.parquet",
    "p/window_outputs/_delta_log/00000000000000000000.json",
    "p/window_outputs/slice_id=2013-01-01 00%3A00/part-0.parquet",
    "event_logs/flights/_delta_log/00000000000000000000.json",
    "event_logs/ledger/entries/_delta_log/00000000000000000000.json",
    "event_logs/ledger/entries/part-0.parquet",
)


def _lake(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name, encoding="utf-8")
    return directory


def _run(*arguments: Path, environ: Mapping[str, str] = os.environ) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False, env=environ)


def test_the_copy_has_every_file_but_rows_between_tasks(tmp_path: Path) -> None:
    lake = _lake(tmp_path / "a lake", *FILES, "p/_scratch/attempt/rows.arrow")
    done = _run(lake, tmp_path / "copy")
    assert (done.returncode, done.stderr) == (0, "")
    found = {
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if path.is_file()
    }
    assert found == set(FILES)
    assert all((tmp_path / "copy" / name).read_text(encoding="utf-8") == name for name in FILES)
    times = [[(root / name).stat().st_mtime_ns for name in FILES] for root in (lake, tmp_path / "copy")]
    assert times[0] == times[1], "else each file of a Parquet log looks replaced after a restore"


@pytest.mark.parametrize("table", ["ledger", "window_outputs"])
def test_a_copy_opens_if_a_writer_made_a_checkpoint_after_the_files_were_listed(tmp_path: Path, table: str) -> None:
    lake, later, name = tmp_path / "lake", tmp_path / "later", f"p/{table}"
    for number in range(3):
        write_deltalake(lake / name, pa.table({"n": [number]}), mode="append")
    DeltaTable(lake / name).create_checkpoint()
    shutil.copytree(lake, later)
    write_deltalake(later / name, pa.table({"n": [3]}), mode="append")
    DeltaTable(later / name).create_checkpoint()
    tar, listed = tmp_path / "bin" / "tar", tmp_path / "listed"
    tar.parent.mkdir()
    tar.write_text(
        "#!/bin/bash -e\n"
        f'if [[ $1 != --create ]]; then exec {shutil.which("tar")} "$@"; fi\n'
        f"cat > {listed}\n"
        f"if grep -q '/{table}/_delta_log/' {listed}; then cp -r {later}/. {lake}; fi\n"
        f'exec {shutil.which("tar")} "$@" < {listed}\n'
    )
    tar.chmod(0o755)
    done = _run(lake, tmp_path / "copy", environ=os.environ | {"PATH": f"{tar.parent}:{os.environ['PATH']}"})
    assert (done.returncode, done.stderr) == (0, "")
    copy = DeltaTable(tmp_path / "copy" / name)
    assert (copy.version(), sorted(copy.to_pyarrow_table()["n"].to_pylist())) == (2, [0, 1, 2])


@pytest.mark.parametrize("writers", [1, 3])
def test_the_copy_has_a_head_if_a_writer_replaces_it_after_the_files_were_listed(tmp_path: Path, writers: int) -> None:
    """Defect: a walk through a large lake takes longer than a head stays. Without one, a copy is taken for damaged."""
    lake, tar, replaced = _lake(tmp_path / "lake", *FILES), tmp_path / "bin" / "tar", tmp_path / "replaced"
    tar.parent.mkdir()
    tar.write_text(
        "#!/bin/bash -e\n"
        f'if [[ $1 != --create ]]; then exec {shutil.which("tar")} "$@"; fi\n'
        f"cat > {tmp_path}/listed\n"
        f"done=$(cat {replaced} 2>/dev/null || echo 0)\n"
        f"if grep -q /_head/ {tmp_path}/listed && [[ $done -lt {writers} ]]; then\n"
        f"    echo $((done + 1)) > {replaced}\n"
        f"    mv {lake}/p/ledger/_head/*.json {lake}/p/ledger/_head/0000000000000000000$((done + 1)).json\n"
        "fi\n"
        f'exec {shutil.which("tar")} "$@" < {tmp_path}/listed\n'
    )
    tar.chmod(0o755)
    done = _run(lake, tmp_path / "copy", environ=os.environ | {"PATH": f"{tar.parent}:{os.environ['PATH']}"})
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (tmp_path / "copy/p/ledger/_head").iterdir()} == {f"{writers:020}.json"}


def test_a_target_with_files_and_a_lake_that_is_missing_are_refused(tmp_path: Path) -> None:
    lake = _lake(tmp_path / "lake", *FILES)
    done = _run(lake, _lake(tmp_path / "copy", "other"))
    assert (done.returncode, "is not empty" in done.stderr) == (1, True)
    assert _run(tmp_path / "nowhere", tmp_path / "new").returncode == 2
    assert not (tmp_path / "new").exists()


def test_what_is_behind_a_link_is_copied_and_a_link_without_a_target_is_refused(tmp_path: Path) -> None:
    lake = _lake(tmp_path / "lake", *FILES)
    shutil.move(lake / "p" / "window_outputs", tmp_path / "disk")
    (lake / "p" / "window_outputs").symlink_to(tmp_path / "disk")
    assert _run(lake, tmp_path / "copy").returncode == 0
    assert all((tmp_path / "copy" / name).read_text(encoding="utf-8") == name for name in FILES)
    shutil.rmtree(tmp_path / "disk")
    done = _run(lake, tmp_path / "second")
    assert (done.returncode, "no target:\n./p/window_outputs" in done.stderr) == (1, True)


@pytest.mark.parametrize(("message", "status"), [("Permission denied", 1), ("No such file or directory", 0)])
def test_a_file_that_cannot_be_read_is_an_error_and_one_that_has_gone_is_not(
    tmp_path: Path, message: str, status: int
) -> None:
    """GNU tar has one option for both."""
    lake, tar = _lake(tmp_path / "lake", *FILES), tmp_path / "bin" / "tar"
    tar.parent.mkdir()
    tar.write_text(
        f'#!/bin/bash -e\nif [[ $1 == --create ]]; then echo "tar: ./x: Warning: Cannot open: {message}" >&2; fi\n'
        f'exec {shutil.which("tar")} "$@"\n'
    )
    tar.chmod(0o755)
    done = _run(lake, tmp_path / "copy", environ=os.environ | {"PATH": f"{tar.parent}:{os.environ['PATH']}"})
    assert (done.returncode, "the copy lacks these files" in done.stderr) == (status, bool(status))
