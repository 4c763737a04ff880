"""Shared parts of all commands: options for lake and pipelines, the user's name, styles of verdicts, and the entry."""

import functools
import getpass
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from jobs.console import OK, REFUSED, USAGE, complain, err, out, print_json, print_table, run_command, say
from jobs.durations import UNIT_MS, format_duration, parse_duration
from jobs.lake.lake import Lake
from jobs.pipeline.files import SUFFIXES, PipelineFiles, lasting, load_all, load_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.request_context import RequestContext, open_request_context, published_pipeline
from jobs.project import HOME, PIPELINES, ROOT, demo_in_use
from jobs.runs import Verdict
from jobs.wall_clock import now_ms
from windowlib.errors import SpecError

if TYPE_CHECKING:
    from rich.text import Text

_LONGEST_MS: Final = 3_650 * UNIT_MS["d"]
DEFAULT_LAKE = HOME / "lake"

__all__ = [
    "OK", "REFUSED", "USAGE", "VERDICT_STYLES", "Places", "complain", "err", "existing_place_options", "json_option",
    "master_option", "out", "pipeline_options", "place_options", "print_json", "print_table", "published_options",
    "range_options", "run_cli", "say", "verdict_text", "who",
]  # fmt: skip

VERDICT_STYLES = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red", Verdict.ERROR: "bold red"}

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The places that a command uses: the lake, and the directory of pipeline files."""

    lake: Lake
    pipelines: Path

    def pipeline(self, name: str) -> Pipeline:
        """Read a pipeline by its name or by the path of its file; raises as `load_pipeline`."""
        return load_pipeline(name, self.pipelines)

    def published(self, name: str) -> Pipeline:
        """Read a pipeline. If its file is broken, tell the error and return the spec of the published chain.

        Raises SpecError: there is no such file, or it is broken and nothing is published.
        """
        try:
            return self.pipeline(name)
        except SpecError as error:
            paths = [self.pipelines / f"{name}{suffix}" for suffix in SUFFIXES]
            path = next((path for path in (Path(name), *paths) if path.is_file()), None)
            stem, directory = ("", self.pipelines) if path is None else (path.stem, lasting(path).parent)
            stored = stem and published_pipeline(self.lake, stem, functions_dir=directory, now_ms=now_ms)
            if not stored:
                raise
            complain(f"the spec of the published chain is used, because the pipeline file is broken: {error}")
            return stored

    def chosen(self, name: str | None) -> PipelineFiles:
        """Read one pipeline (raises as `load_pipeline`), or all of the directory: good files and broken ones.

        Raises SpecError: the directory has none, for example because it is not mounted.
        """
        if name is not None:
            return PipelineFiles(good=(self.pipeline(name),), broken=())
        files = load_all(self.pipelines)
        if not files.good and not files.broken:
            raise SpecError(
                f"the directory {self.pipelines} has no pipeline file; is it mounted? Name another one with "
                "--pipelines or HINDCAST_PIPELINES"
            )
        return files

    def request_context(self, pipeline: Pipeline) -> RequestContext:
        return open_request_context(pipeline, self.lake, now_ms=now_ms)


def place_options(command: Callable[_Parameters, _Result]) -> Callable[..., _Result]:
    """Add --lake and --pipelines to a command that may create the lake. The command gets `places`."""
    return _place_options(command, must_exist=False)


def existing_place_options(command: Callable[_Parameters, _Result]) -> Callable[..., _Result]:
    """Add --lake and --pipelines to a command that needs an existing lake. The command gets `places`."""
    return _place_options(command, must_exist=True)


def pipeline_options(command: Callable[_Parameters, _Result]) -> Callable[..., _Result]:
    """Add PIPELINE and the options of `existing_place_options`. The command gets the pipeline's context, `work`."""
    return _pipeline_options(command, Places.pipeline)


def published_options(command: Callable[_Parameters, _Result]) -> Callable[..., _Result]:
    """As `pipeline_options`, but the context of a broken file has the published spec (`Places.published`)."""
    return _pipeline_options(command, Places.published)


def _pipeline_options(
    command: Callable[_Parameters, _Result], read: Callable[[Places, str], Pipeline]
) -> Callable[..., _Result]:

    @click.argument("pipeline_name", metavar="PIPELINE")
    @existing_place_options
    @functools.wraps(command)
    def with_work(*args: Any, pipeline_name: str, places: Places, **kwargs: Any) -> _Result:  # noqa: ANN401
        work = places.request_context(read(places, pipeline_name))
        return command(*args, work=work, **kwargs)  # type: ignore[arg-type]

    return with_work


def _place_options(command: Callable[_Parameters, _Result], *, must_exist: bool) -> Callable[..., _Result]:

    @click.option(
        "--lake",
        envvar="HINDCAST_LAKE",
        default=None,
        show_envvar=True,
        help="Root of the lake: a directory or a URI.  [default: .hindcast/lake in the clone (of a wheel: in the "
        "working directory). If there is none, commands in the clone use the lake of the newest `make demo`]",
    )
    @click.option(
        "--pipelines",
        envvar="HINDCAST_PIPELINES",
        type=click.Path(path_type=Path),
        default=None,
        show_envvar=True,
        help="Directory of pipeline files.  [default: ./pipelines. If there is none: that of the clone]",
    )
    @functools.wraps(command)
    def with_places(*args: Any, lake: str | None, pipelines: Path | None, **kwargs: Any) -> _Result:  # noqa: ANN401
        beside = Path("pipelines")
        directory = pipelines or (beside if beside.is_dir() else PIPELINES)
        places = Places(lake=Lake(root=_default_lake() if lake is None else lake), pipelines=directory)
        places.lake.check(must_exist=must_exist)
        return command(*args, places=places, **kwargs)  # type: ignore[arg-type]

    return with_places


def _default_lake() -> str:
    """Return the lake of a command that names none. If it is that of a demonstration, tell so on standard error."""
    demo = demo_in_use()
    if demo is None:
        return str(DEFAULT_LAKE)
    lake = demo / "lake"
    complain(f"lake: {lake.relative_to(ROOT)} (of `make demo`; --lake or HINDCAST_LAKE names another)")
    return str(lake)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def at_option(purpose: str) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Return the option --at, a version of the ledger, with a text that tells what it is for."""
    return click.option("--at", "at_version", type=click.IntRange(min=0), default=None, metavar="VERSION", help=purpose)


master_option = click.option(
    "--master",
    envvar="HINDCAST_MASTER",
    default=None,
    show_envvar=True,
    help="Spark master, such as local[2].  [default: local[*]]",
)


warm_up_option = click.option(
    "--warm-up",
    "warms_up",
    is_flag=True,
    help="Begin a chain at --from whose windows are those of the whole chain. The slices before that reach into it are "
    "replayed and not published.",
)


def duration_ms(text: str, option: str, *, least_ms: int = 1) -> int:
    """Return the duration of an option; a wrong one is an error of usage."""
    try:
        value_ms = parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
    if not least_ms <= value_ms <= _LONGEST_MS:
        raise click.BadParameter(f"must be longer than 0 and at most {format_duration(_LONGEST_MS)}", param_hint=option)
    return value_ms


event_time_option = click.option(
    "--event-time",
    "event_time_text",
    default=None,
    metavar="A..B",
    help="In place of --from and --to: the slices whose records can be in windows that touch the event times [A, B), "
    "up to the slice that completes these windows. A and B are dates or times.",
)


def range_options(command: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Add --from and --to, the half-open range of a command."""
    to = click.option(
        "--to", "to_text", metavar="DATE", help="End of the range, not included: [from, to) is half-open."
    )
    start = click.option(
        "--from", "from_text", metavar="DATE", help="Start of the range: a date or time at which a slice starts."
    )
    return start(to(command))


def request_of(work: RequestContext, text: str) -> str:
    """Return the id of the request that a text names: the id, or its first letters if only one request has them."""
    requests = work.ledger.view().requests
    begun = [name for name in requests if text and name.startswith(text)]
    return text if text in requests or len(begun) != 1 else begun[0]


def who() -> str:
    """Return the user's name for the ledger: `HINDCAST_WHO` if it is set, else the login name, else the user id."""
    try:
        return os.environ.get("HINDCAST_WHO") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def verdict_text(verdict: Verdict, *, is_waived: bool = False) -> "Text":
    """Return a verdict as text in its colour."""
    from rich.text import Text

    return Text(
        verdict.value + (", waived" if is_waived else ""), style="cyan" if is_waived else VERDICT_STYLES[verdict]
    )


def answer(as_json: bool, facts: Mapping[str, Any], *lines: str) -> int:  # noqa: FBT001 - the option --json
    """Print what a command has done, as JSON or as lines of text. Return the exit status 0."""
    if as_json:
        print_json(facts)
    else:
        say(*lines)
    return OK


def run_cli(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit status. 0: done. 1: a check failed, or the request was refused. 2: wrong usage or pipeline file.
    """
    interrupted = "interrupted; run the same command again to continue from where it stopped"
    return run_command(command.main, arguments, name="hindcast", interrupted=interrupted)
