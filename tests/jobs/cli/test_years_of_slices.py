"""What `hindcast status` and `hindcast plan` decode of a long ledger does not depend on its length."""

import json
import shutil
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake import delta_log
from jobs.lake.event_log import PinnedLog
from jobs.lake.lake import Lake
from jobs.lake.log_version import DataFile
from jobs.ledger import plain_codec
from jobs.ledger.history import REMEMBERED
from jobs.orchestration.requests import run_request
from jobs.planning import log_state
from jobs.planning.log_pin import pin_input
from jobs.planning.request_context import Asked, open_request_context
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.years_of_slices import DAY_MS, YearsOfSlices

COMMANDS = {"status": (), "plan": ("sales", "--from", "1990-02-01", "--to", "1990-02-08")}
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


def counted_lines(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that gets each line of a snapshot that is decoded."""
    decoded: list[bytes] = []

    class CountingJson(ModuleType):
        dumps = staticmethod(json.dumps)

        @staticmethod
        def loads(line: bytes) -> object:
            decoded.append(line)
            return json.loads(line)

    monkeypatch.setattr(plain_codec, "json", CountingJson("json"))
    return decoded


@pytest.mark.parametrize(("command", "most"), [("status", 6), ("plan", 80)])
def test_a_command_decodes_few_lines_of_the_snapshot(
    lake: Path, command: str, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line is a request, a publication, or the events of a run. The estimate of a plan reads 50 runs."""
    decoded = counted_lines(monkeypatch)
    REMEMBERED.forget_all()
    places = ("--lake", str(lake), "--pipelines", str(lake / "pipelines"))
    assert run_cli(hindcast, [command, *COMMANDS[command], *places]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out
    assert 0 < len(decoded) <= most


def test_a_daily_run_decodes_few_lines_of_the_snapshot(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: to take its own plan over, it compared all runs, and to publish, it read all publications."""
    shutil.copytree(lake, tmp_path / "lake")
    days = len(list((lake / "event_logs" / "sales").glob("day=*")))
    day = str(date.fromisoformat("1990-01-01") + timedelta(days=days))
    append_day(tmp_path / "lake", day, {"a": 1})
    work = open_request_context(sales(), Lake(root=str(tmp_path / "lake")), now_ms=lambda: day_ms(day) + DAY_MS)
    work.ledger.twin().view()  # writes a snapshot of the copied files
    REMEMBERED.forget_all()
    decoded = counted_lines(monkeypatch)
    asked = Asked(from_ms=day_ms(day), to_ms=day_ms(day) + DAY_MS, who="me", reason="a test")
    assert run_request(work, asked, FakeReplayer()).is_published
    assert 0 < len(decoded) <= 70


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
