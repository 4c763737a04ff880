"""A shell that runs commands of `hindcast` in this process. A fake replayer replaces Spark."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake.lake import Lake
from jobs.planning.request_context import open_request_context
from jobs.wall_clock import now_ms
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, sales
from tests.support.waiving import newest_failed_run


class Shell:
    """Runs commands in one lake, and stores what the last command printed."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys
        self.out = self.err = ""
        self.sessions = 0
        self.replayer = FakeReplayer()

    def __call__(self, *arguments: str) -> int:
        status = run_cli(hindcast, [*arguments, "--lake", str(self.root), "--pipelines", str(self.root / "pipelines")])
        self.out, self.err = self.capsys.readouterr()
        return status

    def failed_run(self, slice_id: str) -> str:
        """Return the first digits of the failed run of a slice."""
        return newest_failed_run(open_request_context(sales(), Lake(root=str(self.root)), now_ms=now_ms), slice_id)[:12]

    def json(self, *arguments: str) -> Any:  # noqa: ANN401  (what a program would read)
        self(*arguments, "--json")
        return json.loads(self.out)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE)
    for index in range(1, 6):
        append_day(tmp_path, f"2024-01-{index:02d}", {"a": index, "[b]": 1})
    shell = Shell(tmp_path, capsys)

    @contextmanager
    def spark_replayer(_master: str | None = None) -> Iterator[FakeReplayer]:
        shell.sessions += 1
        yield shell.replayer

    replay = ModuleType("jobs.replay.replayer")
    replay.spark_replayer = spark_replayer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jobs.replay.replayer", replay)
    monkeypatch.setenv("HINDCAST_WHO", "ann")
    monkeypatch.setenv("COLUMNS", "200")
    return shell
