"""What `make audit` prints. No test asks a service."""

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from setup import audit
from tests.support.places import ROOT

SOUND = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}, {"id": "CVE-2"}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found"}


def answer(*packages: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"dependencies": [*packages], "fixes": []}


@pytest.mark.parametrize(
    ("answers", "status", "line"),
    [
        ([answer(SOUND)], 0, "audit: no known vulnerability of a locked package"),
        ([answer(SOUND, BAD)], 1, "b 2 CVE-1 fixed in 3\nb 2 CVE-2 fixed in no version yet"),
        ([answer(SOUND, SKIPPED)], 3, "audit: NOT AUDITED, because the service does not know them: c"),
    ],
)
def test_what_is_known_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answers: list[Mapping[str, Any]], status: int,
    line: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(audit, "LOCKS", [ROOT / "requirements.lock"] * len(answers))
    monkeypatch.setattr(audit, "audited", lambda _lock: answers[0])
    assert audit.main() == status
    assert line in capsys.readouterr().out


@pytest.mark.parametrize("out", ["", "no route to host", '{"dependencies": [{"name": "c", "skip_reason": "404"}]}'])
def test_without_a_service_nothing_is_called_sound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    """pip-audit succeeds, and prints that there are no known vulnerabilities, if the registry knows no package."""
    done = subprocess.CompletedProcess([], 0, stdout=out, stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_arguments, **_options: done)
    monkeypatch.setattr(audit, "listed", lambda _lock: [audit.Package("2026-01-02", "a", "1")])
    assert audit.main() == audit.UNKNOWN
    printed = capsys.readouterr().out
    assert "NOT AUDITED" in printed
    assert "2026-01-02  a 1" in printed


def test_the_day_of_a_package_is_that_of_its_first_file() -> None:
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (3, 2)]
    facts = {
        "packages": [
            {"name": "a", "version": "1", "wheels": [{"upload-time": time} for time in times]},
            {"name": "b", "version": "2", "sdist": {"upload-time": times[0]}},
            {"name": "c", "version": "3"},
        ]
    }
    packages = [*audit.packages_of(facts)]
    assert packages == [("2026-01-02", "a", "1"), ("2026-01-03", "b", "2"), ("", "c", "3")]
    assert [*audit.without_service(packages)][-1] == "unknown     c 3"


def test_every_lock_is_audited() -> None:
    locks = {*ROOT.glob("requirements*.lock"), ROOT / "requirements-bootstrap.txt"}
    assert {*audit.LOCKS} == locks
    assert len(locks) == 7
