"""Hindcast as a wheel, as an existing Airflow installs it: it brings all its files, and needs no clone."""

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.delta_logs import track_rows
from tests.support.fake_replay import PIPELINE, append_day
from tests.support.places import ROOT

pytestmark = pytest.mark.e2e

PACKAGES = ("expectations", "jobs", "windowlib")
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"
DAG_FILE = """
from jobs.dag_factory import hindcast_dags  # a DAG file of Airflow

globals().update(hindcast_dags({pipelines!r}, lake={lake!r}))
"""
PRINT_DAGS = """
import runpy, sys, jobs
found = runpy.run_path(sys.argv[1])
print(jobs.__file__, *sorted(name for name in found if name.startswith(("replay_", "backfill_"))))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the clone, because the build leaves files beside the sources."""
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-c", BUILD, str(place)], cwd=source, check=True, capture_output=True)
    (found,) = place.glob("hindcast-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the wheel as pip does: a file that is executable in the archive is executable on the disk."""
    place = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
        for member in archive.infolist():
            (place / member.filename).chmod(stat.S_IMODE(member.external_attr >> 16) or 0o644)
    return place


def python(installed: Path, *arguments: str, cwd: Path) -> str:
    """Run Python with the packages of the wheel in place of those of the clone; return what it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HINDCAST_", "AIRFLOW"))}
    environ |= {
        "PYTHONPATH": str(installed),
        "XDG_CACHE_HOME": str(cwd / "cache"),
        "AIRFLOW_HOME": str(cwd / "airflow"),
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environ, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    wanted = {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == {path.removeprefix("jobs/public/") for path in wanted}
    assert "hindcast/reading.py" in found


def test_the_programs_of_a_wheel_are_executable(installed: Path) -> None:
    for path in (ROOT / "jobs" / "bin").iterdir():
        if path.is_file():
            assert os.access(installed / "jobs" / "bin" / path.name, os.X_OK) == os.access(path, os.X_OK), path.name


@pytest.mark.slow
def test_a_wheel_replays_and_shows_a_log_without_a_clone(installed: Path, tmp_path: Path) -> None:
    for day in ("2024-01-01", "2024-01-02", "2024-01-03"):
        append_day(tmp_path / "lake", day, {"a": 1, "b": 2})
    track_rows(tmp_path / "lake" / "event_logs" / "sales")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE.replace("  order: [id]\n", ""), encoding="utf-8")
    places = ("--lake", str(tmp_path / "lake"))
    hindcast = ("-c", "from jobs.cli.main import main; main()")
    bounds = ("--from", "2024-01-01", "--to", "2024-01-03")
    python(installed, *hindcast, "run", "sales", *bounds, *places, cwd=tmp_path)
    shown = python(installed, *hindcast, "show", "sales", *places, "--json", cwd=tmp_path)
    assert '"total"' in shown
    read = f"from hindcast.reading import published; print(published({str(tmp_path / 'lake')!r}, 'sales').num_rows)"
    assert python(installed, "-c", read, cwd=tmp_path).strip() == "2"
    assert "readers see 2 slices" in python(installed, *hindcast, "status", "sales", *places, cwd=tmp_path)


@pytest.mark.slow
def test_init_of_a_wheel_writes_into_the_working_directory(installed: Path, tmp_path: Path) -> None:
    """Defect: the file was written into `site-packages/pipelines`."""
    append_day(tmp_path / ".hindcast" / "lake", "2024-01-01", {"a": 1, "b": 2})
    hindcast = ("-c", "from jobs.cli.main import main; main()")
    told = python(installed, *hindcast, "init", "event_logs/sales", "--yes", cwd=tmp_path)
    assert f"wrote {tmp_path / 'pipelines' / 'sales.yaml'}" in told
    assert (tmp_path / "pipelines" / "sales.yaml").is_file()
    assert not (installed / "pipelines").exists()


@pytest.mark.dags
def test_a_dag_file_of_three_lines_gives_airflow_the_dags(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    file = tmp_path / "sales_dags.py"
    file.write_text(DAG_FILE.format(pipelines=str(tmp_path / "pipelines"), lake="/lake"), encoding="utf-8")
    where, *dags = python(installed, "-W", "ignore", "-c", PRINT_DAGS, str(file), cwd=tmp_path).split()[-3:]
    assert where == str(installed / "jobs" / "__init__.py")
    assert dags == ["backfill_sales", "replay_sales"]
