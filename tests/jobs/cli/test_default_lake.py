"""The lake of a command that names none, the version, and the proposals for a mistyped command."""

import os
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from jobs import project
from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.demo import next_steps
from jobs.demo.stage import Stage
from jobs.orchestration.embedded import airflow_service, homes
from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.orchestration.embedded.airflow_env import Home
from jobs.pipeline.files import load_pipeline
from jobs.processes import process
from tests.support.places import ROOT
from windowlib.errors import RequestError


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with three demonstrations, of which the newest was stopped before it made a lake."""
    for number in (2, 10):
        (tmp_path / ".hindcast" / "demo" / str(number) / "lake" / "event_logs").mkdir(parents=True)
    (tmp_path / ".hindcast" / "demo" / "11").mkdir()
    (tmp_path / ".hindcast" / "demo" / "old").mkdir()
    for module in ("jobs.project", "jobs.cli.options"):
        monkeypatch.setattr(f"{module}.ROOT", tmp_path)
    for module in ("jobs.cli.options", "jobs.orchestration.embedded.homes"):
        monkeypatch.setattr(f"{module}.PIPELINES", tmp_path / "pipelines")
    for module in ("jobs.project", "jobs.orchestration.embedded.homes"):
        monkeypatch.setattr(f"{module}.HOME", tmp_path / ".hindcast")
    monkeypatch.setattr("jobs.cli.options.DEFAULT_LAKE", tmp_path / ".hindcast" / "lake")
    for name in ("HINDCAST_LAKE", "HINDCAST_PIPELINES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pipelines").mkdir()
    shutil.copy(ROOT / "pipelines" / "flights.yaml", tmp_path / "pipelines")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _chosen(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = run_cli(hindcast, ["status", *arguments])
    return status, capsys.readouterr().err


def test_in_the_clone_commands_use_the_newest_demonstration_and_tell_so_once(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "lake: .hindcast/demo/10/lake (of `make demo`; --lake or HINDCAST_LAKE names another)\n"
    assert _chosen(capsys) == (0, told)
    assert homes.chosen_home() == Home(
        root=clone / ".hindcast/demo/10/airflow",
        lake=str(clone / ".hindcast/demo/10/lake"),
        pipelines=clone / "pipelines",
        is_demo=True,
    )


def test_elsewhere_or_beside_an_own_lake_they_do_not(
    clone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(clone / ".hindcast" / "demo" / "2" / "lake")
    assert _chosen(capsys, "--lake", lake) == (0, "")
    monkeypatch.setenv("HINDCAST_LAKE", lake)
    assert _chosen(capsys) == (0, "")
    assert homes.chosen_home().root == clone / ".hindcast" / "airflow"
    monkeypatch.delenv("HINDCAST_LAKE")
    shutil.copytree(clone / "pipelines", clone / "sub" / "pipelines")
    monkeypatch.chdir(clone / "sub")
    status, told = _chosen(capsys)
    assert status != 0
    assert ".hindcast/lake" in told
    assert "demo" not in told
    monkeypatch.chdir(clone)
    (clone / ".hindcast" / "lake").mkdir()
    assert _chosen(capsys) == (0, "")
    assert homes.chosen_home().root == clone / ".hindcast" / "airflow"


@pytest.mark.parametrize("has_own_lake", [False, True])
@pytest.mark.parametrize("settings", [(), ("HINDCAST_LAKE",), ("HINDCAST_PIPELINES",), tuple(next_steps.SETTINGS)])
@pytest.mark.parametrize("stays", [False, True])
def test_the_lines_at_the_end_of_a_demonstration_lead_to_its_lake_from_any_shell(
    clone: Path, monkeypatch: pytest.MonkeyPatch, *, has_own_lake: bool, settings: tuple[str, ...], stays: bool
) -> None:
    """Defect: in a shell with HINDCAST_LAKE, the commands of the last lines read another lake."""
    directory = clone / ".hindcast" / "demo" / "10"
    if has_own_lake:
        (clone / ".hindcast" / "lake").mkdir()
    for name in settings:
        monkeypatch.setenv(name, "/elsewhere")
    stage = Stage(directory=directory, pipeline=load_pipeline("flights", ROOT / "pipelines"))
    login = AirflowApi(url="http://127.0.0.1:1", user="me", password="")
    with monkeypatch.context() as demo, stage.console.capture() as told:
        for name in settings:
            demo.delenv(name)  # the demonstration itself runs without them
        next_steps.tell_next_steps(stage, "5f0c", login=login, stays=stays, settings=settings)
    for line in told.get().splitlines():
        match line.split("#")[0].split():
            case ["unset", *names]:
                for name in names:
                    monkeypatch.delenv(name)
            case ["export", setting]:
                monkeypatch.setenv(*setting.split("=", 1))
            case _:
                pass
    home = homes.chosen_home()
    assert (home.lake, home.pipelines) == (str(directory / "lake"), clone / "pipelines")
    assert (home.root == directory / "airflow") == ("start it again" in told.get())


def test_a_second_airflow_of_the_clone_is_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = process(os.getpid())
    assert own is not None
    first = homes.demo_home(clone / ".hindcast" / "demo" / "2")
    service = airflow_service.Service(
        home=first, supervisor=own, phase="running", url="http://127.0.0.1:1", lake=first.lake
    )
    monkeypatch.setattr(airflow_service, "find", lambda home: service if home.root == first.root else None)
    homes.refuse_second(first)
    for other in (homes.chosen_home(), homes.own_home(), None):
        with pytest.raises(RequestError, match=r"running at http://127.0.0.1:1, on the lake .*/2/lake; `make down`"):
            homes.refuse_second(other)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(hindcast, ["--version"]) == 0
    assert capsys.readouterr().out == f"hindcast {version('hindcast')}\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("statsu", "'status'"), ("plna", "'plan'"), ("load-flight", "load-flights")]
)
def test_a_mistyped_command_gets_a_proposal(capsys: pytest.CaptureFixture[str], typed: str, meant: str) -> None:
    assert run_cli(hindcast, [typed]) == 2
    assert re.search(rf"No such command '{typed}'. Did you mean .*{meant}", capsys.readouterr().err)
    assert run_cli(hindcast, ["xyzzy"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


def test_demonstrations_are_sorted_by_their_numbers(clone: Path) -> None:
    assert [path.name for path in project.demo_directories()] == ["2", "10", "11"]
    assert all(home.is_demo for home in homes.all_homes()[1:])
    (clone / ".hindcast" / "year" / "3").mkdir(parents=True)
    roots = [home.root for home in homes.all_homes()]
    places = ["airflow", *(f"{place}/airflow" for place in ("demo/2", "demo/10", "demo/11", "year/3"))]
    assert roots == [clone / ".hindcast" / place for place in places]
