"""What `hindcast status` and `hindcast plan` decode of a long ledger does not depend on its length."""

import json
from pathlib import Path

import pytest

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.ledger import plain_codec
from jobs.ledger.history import REMEMBERED
from tests.support.fake_replay import PIPELINE
from tests.support.years_of_slices import YearsOfSlices

COMMANDS = {
    "status": (),
    "plan": ("sales", "--from", "1990-02-01", "--to", "1990-02-08"),
}
FEWEST = 300
"""So many slices have more events than `LedgerLimits.snapshot_every`, so the first reader writes a snapshot."""


@pytest.fixture(scope="module", params=[FEWEST, 2 * FEWEST])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("years")
    YearsOfSlices(slices=request.param).fill(root)
    (root / "pipelines").mkdir()
    (root / "pipelines" / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    assert list((root / "sales" / "ledger" / "_snapshot").glob("*.zst"))
    return root


@pytest.mark.parametrize(("command", "most"), [("status", 6), ("plan", 80)])
def test_a_command_decodes_few_lines_of_the_snapshot(
    lake: Path, command: str, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line is a request, a publication, or the events of a run. The estimate of a plan reads 50 runs."""
    decoded = []

    class CountingJson:
        @staticmethod
        def loads(line: bytes) -> object:
            decoded.append(line)
            return json.loads(line)

    monkeypatch.setattr(plain_codec, "json", CountingJson)
    REMEMBERED.forget_all()
    places = ("--lake", str(lake), "--pipelines", str(lake / "pipelines"))
    assert run_cli(hindcast, [command, *COMMANDS[command], *places]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out
    assert 0 < len(decoded) <= most
