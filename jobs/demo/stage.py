"""How the demonstration tells its story: chapters, commands as one would type them, what the ledger says meanwhile."""

import json
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, StagedRun
from jobs.orchestration.embedded.airflow_env import Home
from jobs.pipeline.files import load_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.workspace import open_workspace
from jobs.project import ROOT
from jobs.runs import Verdict
from jobs.wall_clock import now_ms
from windowlib.errors import HindcastError

VERDICT_STYLES = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.ERROR: "bold red"}
_WIDTH = 100
_COMMAND_WIDTH = 140


class StoryBroken(HindcastError):  # noqa: N818
    """Something went another way than the story needs; the message says what, and where to look."""


@dataclass(slots=True)
class Stage:
    """Where a demonstration plays: its directory, its lake, its console."""

    directory: Path
    pipeline: Pipeline
    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    _started: float = field(default_factory=time.monotonic)
    _chapters: int = 0

    @property
    def lake(self) -> Lake:
        """The lake of this demonstration."""
        return Lake(root=str(self.directory / "lake"))

    @property
    def home(self) -> Home:
        """Its Airflow."""
        return Home(root=self.directory / "airflow", lake=self.lake.root, pipelines=ROOT / "pipelines")

    @property
    def commands_log(self) -> Path:
        """What the commands said on their standard error: progress, and Spark's chatter."""
        return self.directory / "commands.log"

    def chapter(self, title: str, text: str) -> None:
        """Begin a new part of the story."""
        self._chapters += 1
        seconds = time.monotonic() - self._started
        self.console.print(f"\n[bold cyan]{self._chapters}  {escape(title)}[/]   [dim]{seconds:.0f} s[/]")
        self.say(text)

    def say(self, text: str) -> None:
        """A paragraph, wrapped."""
        self.console.print(textwrap.fill(" ".join(text.split()), _WIDTH), markup=False)

    def note(self, text: str) -> None:
        """A small line about what is going on."""
        self.console.print(f"   [dim]{escape(text)}[/]")

    def hindcast(self, *arguments: str, expect: int = 0) -> str:
        """Show a command, run it, show what it prints; its standard output.

        Raises:
            StoryBroken: its exit status is not the expected one.
        """
        self.console.print(f"[bold]$ hindcast {escape(_typed(arguments))}[/]")
        found = self._run(arguments, expect=expect)
        self.console.print(textwrap.indent(found.rstrip(), "   "), markup=False, no_wrap=True, crop=False)
        return found

    def ask(self, *arguments: str) -> Any:  # noqa: ANN401  (JSON)
        """What a command says as JSON lines, without showing it."""
        return [json.loads(line) for line in self._run((*arguments, "--json"), expect=0).splitlines()]

    def ledger(self) -> LedgerView:
        """What the ledger says now."""
        return open_workspace(self.pipeline, self.lake, now_ms=now_ms).ledger.view()

    def tell_run(self, run: StagedRun) -> None:
        """One line about a replayed slice."""
        result, counts = run.result, run.result.counts
        style = VERDICT_STYLES[run.verdict]
        share = (
            f"   {counts.invalid / counts.read:.0%} cancelled" if run.verdict is Verdict.FAIL and counts.read else ""
        )
        self.console.print(
            f"   {result.slice.slice_id}  [{style}]{run.verdict.value:5}[/]  read {counts.read:5,}  "
            f"late {counts.late:3,}  invalid {counts.invalid:4,}  "
            f"panes {counts.panes:6,}   run {result.run_id[:12]}[{style}]{share}[/]"
        )

    def _run(self, arguments: tuple[str, ...], *, expect: int) -> str:
        """Run one command of this clone; it dies with us, even if we are killed."""
        command = ["setpriv", "--pdeathsig", "TERM", str(Path(sys.executable).with_name("hindcast")), *arguments]
        environ = os.environ | {"HINDCAST_LAKE": self.lake.root, "COLUMNS": str(_COMMAND_WIDTH), "TERM": "dumb"}
        with self.console.status(f"hindcast {escape(_typed(arguments))}"):
            found = subprocess.run(  # noqa: S603
                command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False
            )
        with self.commands_log.open("a", encoding="utf-8") as log:
            log.write(f"$ hindcast {_typed(arguments)}\n{found.stderr}")
        if found.returncode != expect:
            raise StoryBroken(
                f"`hindcast {_typed(arguments)}` ended with status {found.returncode} instead of {expect}; "
                f"its last messages: {' | '.join(found.stderr.strip().splitlines()[-5:])}"
            )
        return found.stdout


def new_stage(kind: str, pipeline_name: str) -> Stage:
    """A stage in a directory of its own, numbered, so that an earlier one with its lake stays as it is."""
    parent = ROOT / ".hindcast" / kind
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(path.name) for path in parent.iterdir() if path.name.isdecimal()), default=0)
    directory = parent / str(number)
    directory.mkdir()
    return Stage(directory=directory, pipeline=load_pipeline(pipeline_name, ROOT / "pipelines"))


def _typed(arguments: tuple[str, ...]) -> str:
    """Arguments as one would type them."""
    return " ".join(f'"{argument}"' if " " in argument or ";" in argument else argument for argument in arguments)
