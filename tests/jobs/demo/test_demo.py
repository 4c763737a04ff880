"""The demonstrations before they start anything."""

import os

import pytest
from click.testing import CliRunner

from jobs.demo.__main__ import main
from windowlib.errors import RequestError


def test_a_demonstration_ignores_the_pipelines_and_suites_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: in the shell of the tutorial, `make demo` ended with "there is no pipeline 'flights'"."""
    names = ("HINDCAST_LAKE", "HINDCAST_PIPELINES", "HINDCAST_EXPECTATIONS")
    for name in names:
        monkeypatch.setenv(name, "/elsewhere")
    assert CliRunner().invoke(main, ["story", "--help"]).exit_code == 0
    assert not {*names} & {*os.environ}


@pytest.mark.parametrize("command", ["story", "year"])
def test_a_demonstration_beside_a_running_airflow_is_refused_before_it_makes_anything(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: `make year` started a second Airflow."""

    def refuse() -> None:
        raise RequestError("another Airflow of this clone is running")

    monkeypatch.setattr("jobs.demo.__main__.refuse_second", refuse)
    monkeypatch.setattr("jobs.demo.__main__.new_stage", lambda *_: pytest.fail("it was started"))
    assert isinstance(CliRunner().invoke(main, [command]).exception, RequestError)
