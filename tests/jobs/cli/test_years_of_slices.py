"""What `hindcast status` and `hindcast plan` decode of a long ledger does not depend on its length."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake import delta_log
from jobs.lake.event_log import PinnedLog
from jobs.lake.log_version import DataFile
from jobs.ledger import plain_codec
from jobs.ledger.history import REMEMBERED
from jobs.planning import log_state
from jobs.planning.log_pin import pin_input
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


@pytest.mark.parametrize(("command", "most"), [("status", 1), ("plan", 7)])
def test_a_command_makes_the_files_of_its_slices_only(
    lake: Path, command: str, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log has a file for each day. To make all of them takes longer than to list them."""
    made, make = [], delta_log._file

    def counted(row: tuple[Any, ...]) -> DataFile:
        made.append(row)
        return make(row)

    monkeypatch.setattr(delta_log, "_file", counted)
    places = ("--lake", str(lake), "--pipelines", str(lake / "pipelines"))
    assert run_cli(hindcast, [command, *COMMANDS[command], *places]) == 0, capsys.readouterr().err
    assert len(made) <= most


def test_one_file_of_a_log_is_that_of_the_whole_list(lake: Path) -> None:
    log = delta_log.describe_log(str(lake / "event_logs" / "sales"))
    files = log.files()
    assert [log.file(place) for place in range(len(files))] == files
    assert [*log.partitions()] == [(file.partition, file.records) for file in files]


def test_status_reads_the_log_of_a_pipeline_once(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = []

    def counted(*arguments: Any, **options: Any) -> PinnedLog:  # noqa: ANN401 - those of `pin_input`
        pins.append(arguments)
        return pin_input(*arguments, **options)

    monkeypatch.setattr(log_state, "pin_input", counted)
    assert run_cli(hindcast, ["status", "--lake", str(lake), "--pipelines", str(lake / "pipelines")]) == 0
    assert "newest record" in capsys.readouterr().out
    assert len(pins) == 1
