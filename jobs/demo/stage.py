"""The output of the demonstrations: chapters, commands with their output, and lines about replayed slices."""

import json
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, StagedRun
from jobs.orchestration.embedded.airflow_env import Home
from jobs.orchestration.embedded.homes import demo_home
from jobs.pipeline.files import load_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.request_context import open_request_context
from jobs.project import PIPELINES, ROOT
from jobs.runs import Verdict
from jobs.wall_clock import now_ms
from windowlib.errors import HindcastError

PIPELINE, SECOND_PIPELINE, LIVE_PIPELINE = "flights", "carriers", "clicks_live"
VERDICT_STYLES = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.ERROR: "bold red"}
_WIDTH = 100
_COMMAND_WIDTH = 140


class StoryBroken(HindcastError):  # noqa: N818
    """A demonstration found another result than it expects. The message has the result and names the logs."""


@dataclass(slots=True)
class Stage:
    """One demonstration: its directory, its pipeline, its console."""

    directory: Path
    pipeline: Pipeline
    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    _started: float = field(default_factory=time.monotonic)
    _chapters: int = 0

    @property
    def lake(self) -> Lake:
        return Lake(root=str(self.directory / "lake"))

    @property
    def home(self) -> Home:
        """The Airflow of this demonstration."""
        return demo_home(self.directory)

    @property
    def commands_log(self) -> Path:
        """File with the standard error of all commands: progress, and the log of Spark."""
        return self.directory / "commands.log"

    def chapter(self, title: str, text: str) -> None:
        """Print the heading and the first paragraph of a chapter."""
        self._chapters += 1
        seconds = time.monotonic() - self._started
        self.console.print(f"\n[bold cyan]{self._chapters}  {escape(title)}[/]   [dim]{seconds:.0f} s[/]")
        self.say(text)

    def say(self, text: str) -> None:
        """Print a paragraph, wrapped."""
        self.console.print(textwrap.fill(" ".join(text.split()), _WIDTH), markup=False)

    def note(self, text: str) -> None:
        """Print a line about the progress."""
        self.console.print(f"   [dim]{escape(text)}[/]")

    def hindcast(self, *arguments: str) -> None:
        """Print a command, run it, and print its output. Raises StoryBroken: its exit status is not 0."""
        self.console.print(f"[bold]$ hindcast {escape(_typed(arguments))}[/]")
        output = self._run(arguments)
        self.console.print(textwrap.indent(output.rstrip(), "   "), markup=False, no_wrap=True, crop=False)

    def ask(self, *arguments: str) -> Any:  # noqa: ANN401  (JSON)
        """Return the output of a command as JSON values, one for each line, without printing it."""
        return [json.loads(line) for line in self._run((*arguments, "--json")).splitlines()]

    def ledger(self) -> LedgerView:
        return open_request_context(self.pipeline, self.lake, now_ms=now_ms).ledger.view()

    def of_pipeline(self, name: str) -> "Stage":
        """Return this demonstration with another one of its pipelines."""
        return replace(self, pipeline=load_pipeline(name, self.home.pipelines))

    def tell_run(self, run: StagedRun) -> None:
        """Print one line about a replayed slice."""
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

    def _run(self, arguments: tuple[str, ...]) -> str:
        """Run one command of this clone. It ends when this process ends, also if this process is killed."""
        command = ["setpriv", "--pdeathsig", "TERM", str(Path(sys.executable).with_name("hindcast")), *arguments]
        environ = os.environ | {"HINDCAST_LAKE": self.lake.root, "COLUMNS": str(_COMMAND_WIDTH), "TERM": "dumb"}
        with self.console.status(f"hindcast {escape(_typed(arguments))}"):
            process = subprocess.run(  # noqa: S603
                command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False
            )
        with self.commands_log.open("a", encoding="utf-8") as log:
            log.write(f"$ hindcast {_typed(arguments)}\n{process.stderr}")
        if process.returncode:
            raise StoryBroken(
                f"`hindcast {_typed(arguments)}` ended with status {process.returncode} instead of 0; "
                f"its last messages: {' | '.join(process.stderr.strip().splitlines()[-5:])}"
            )
        return process.stdout


def new_stage(kind: str, pipeline_name: str) -> Stage:
    """Return a stage in a new directory with the next number. Earlier demonstrations keep their lakes."""
    parent = ROOT / ".hindcast" / kind
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(path.name) for path in parent.iterdir() if path.name.isdecimal()), default=0)
    directory = parent / str(number)
    directory.mkdir()
    return Stage(directory=directory, pipeline=load_pipeline(pipeline_name, PIPELINES))


def _typed(arguments: tuple[str, ...]) -> str:
    return " ".join(f'"{argument}"' if " " in argument or ";" in argument else argument for argument in arguments)


def shown(path: Path) -> str:
    """Return a path as a user types it in the clone."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
