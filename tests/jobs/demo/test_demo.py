"""The demonstrations before they start anything."""

import os

import pytest
from click.testing import CliRunner

from jobs.demo.__main__ import main


def test_a_demonstration_ignores_the_pipelines_and_suites_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: in the shell of the tutorial, `make demo` ended with "there is no pipeline 'flights'"."""
    names = ("HINDCAST_PIPELINES", "HINDCAST_EXPECTATIONS")
    for name in names:
        monkeypatch.setenv(name, "/elsewhere")
    assert CliRunner().invoke(main, ["story", "--help"]).exit_code == 0
    assert not {*names} & {*os.environ}
