"""What every command shares: lake and pipelines, the clock, errors as one paragraph, output for people and programs."""

import functools
import getpass
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.lake import Lake
from jobs.pipeline import load_pipeline
from jobs.pipeline_models import Pipeline
from jobs.runs import Verdict
from jobs.slices import RangeError
from jobs.wall_clock import now_ms
from jobs.workspace import Workspace, open_workspace
from windowlib.errors import HindcastError, SpecError

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_LAKE = ROOT / ".hindcast" / "lake"
OK, REFUSED, USAGE = 0, 1, 2

VERDICT_STYLES = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red", Verdict.ERROR: "bold red"}

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a command works: the lake, and the directory of pipeline files."""

    lake: Lake
    pipelines: Path

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline file of that name or path."""
        return load_pipeline(name, self.pipelines)

    def workspace(self, pipeline: Pipeline, *, checks: str | None = None) -> Workspace:
        """The pipeline's ledger and lake, on the wall clock."""
        return open_workspace(pipeline, self.lake, now_ms=now_ms, checks=checks)


def place_options(command: Callable[_Parameters, _Result]) -> Callable[..., _Result]:
    """Add --lake and --pipelines to a command, and give it `places`."""

    @click.option(
        "--lake",
        envvar="HINDCAST_LAKE",
        default=str(DEFAULT_LAKE),
        show_envvar=True,
        help="Root of the lake: a directory or a URI.",
    )
    @click.option(
        "--pipelines",
        envvar="HINDCAST_PIPELINES",
        type=click.Path(path_type=Path),
        default=None,
        show_envvar=True,
        help="Directory of pipeline files.  [default: ./pipelines, else the one of Hindcast itself]",
    )
    @functools.wraps(command)
    def with_places(*args: Any, lake: str, pipelines: Path | None, **kwargs: Any) -> _Result:  # noqa: ANN401
        beside = Path("pipelines")
        directory = pipelines or (beside if beside.is_dir() else ROOT / "pipelines")
        return command(*args, places=Places(lake=Lake(root=lake), pipelines=directory), **kwargs)  # type: ignore[arg-type]

    return with_places


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs instead of a screen for people."
)
master_option = click.option(
    "--master", envvar="HINDCAST_MASTER", default=None, help="Spark master, such as local[2].  [default: local[*]]"
)


def range_options(command: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Add --from and --to, the half-open range that a command is about."""
    to = click.option(
        "--to",
        "to_text",
        required=True,
        metavar="DATE",
        help="End of the range, not included: [from, to) is half-open.",
    )
    start = click.option(
        "--from",
        "from_text",
        required=True,
        metavar="DATE",
        help="Start of the range, a date or time at which a slice starts.",
    )
    return start(to(command))


def who() -> str:
    """The person at the keyboard, for the ledger; `HINDCAST_WHO` where that says nothing, as in a container."""
    try:
        return os.environ.get("HINDCAST_WHO") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def out() -> Console:
    """The console for results."""
    return Console(highlight=False)


def err() -> Console:
    """The console for progress and errors; never mixed into what a program reads."""
    return Console(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """One JSON value on one line of standard output."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> None:
    """Print a title and a table for people; values are text, never markup. Columns in `whole` are never broken."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(
            column, justify="right" if column in right else "left", overflow="fold", no_wrap=column in whole
        )
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else Text(str(value)) for value in row))
    console = out()
    console.print(title, style="bold", markup=False, soft_wrap=True)
    console.print(table)


def verdict_text(verdict: Verdict, *, is_waived: bool = False) -> Text:
    """A verdict in its colour."""
    return Text(
        verdict.value + (", waived" if is_waived else ""), style="cyan" if is_waived else VERDICT_STYLES[verdict]
    )


def run_cli(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run the command line; errors that we raise on purpose are one paragraph on standard error.

    Returns:
        0: done. 1: a check failed, or the request was refused. 2: usage, or a pipeline file.
    """
    try:
        result = command.main(
            args=None if arguments is None else list(arguments), prog_name="hindcast", standalone_mode=False
        )
    except click.exceptions.Abort:
        err().print("interrupted; run the same command again and it goes on where it stopped", markup=False)
        return 130
    except click.ClickException as error:
        error.show()
        return USAGE
    except (SpecError, RangeError) as error:
        return _report(error, USAGE)
    except HindcastError as error:
        return _report(error, REFUSED)
    return result if isinstance(result, int) else OK


def _report(error: HindcastError, status: int) -> int:
    err().print(f"error: {error}", markup=False, soft_wrap=not sys.stderr.isatty())
    return status
