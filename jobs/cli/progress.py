"""How commands tell their progress on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from jobs.cli import options
from jobs.cli.slice_lines import progress_lines
from jobs.console import complain_in_json, complain_json
from jobs.orchestration.requests import Progress as Staged

if TYPE_CHECKING:  # 10 ms, which only a terminal needs
    from rich.console import Console
    from rich.progress import Progress, TaskID


def _begin(_context: click.Context, _option: click.Parameter, how: str) -> str:
    if how == "json":
        complain_in_json()
    return how


progress_option = click.option(
    "--progress",
    type=click.Choice(["bar", "json", "none"]),
    default="bar",
    show_default=True,
    is_eager=True,
    callback=_begin,
    help="What to write to standard error while it works: a bar and a line for each slice, one line of JSON before and "
    "after each chunk, or nothing. With json, warnings and errors are lines of JSON, too.",
)


def count_bar(count: str | None = None, console: "Console | None" = None) -> "Progress":
    """Return a bar that counts done things on standard error. `count` is the format of the column that tells how many.

    `console` is that of standard error, if the caller has it.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    counted = MofNCompleteColumn() if count is None else TextColumn(count)
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), counted, TimeElapsedColumn()
    return Progress(*columns, console=console or options.err(), transient=True)


@contextmanager
def told_progress(name: str, how: str, *, at_least: int) -> Iterator[Callable[[Staged], None]]:
    """Give a function that tells the progress on standard error: a bar, lines of JSON, or nothing.

    Only a terminal shows the bar itself. Lines for finished slices are also written to a pipe or a file.
    """
    match how:
        case "json":
            yield lambda progress: complain_json(progress.to_json())
        case "none":
            yield lambda _progress: None
        case _:
            console = options.err()
            with count_bar("{task.fields[told]}", console) if console.is_terminal else nullcontext() as bar:
                yield _Reporter(name=name, bar=bar, console=console, at_least=at_least)


@dataclass(slots=True)
class _Reporter:
    """Shows the progress of staging: a bar, and lines for the finished slices."""

    name: str
    bar: "Progress | None"
    console: "Console"
    at_least: int
    _task: "TaskID | None" = None

    def __call__(self, progress: Staged) -> None:
        if self.bar is not None:
            self._move(self.bar, progress)
        for verdict, line in progress_lines(progress.results, at_least=self.at_least):
            options.say(line, style=options.VERDICT_STYLES[verdict], console=self.console)

    def _move(self, bar: "Progress", progress: Staged) -> None:
        first, last = progress.chunk[0].slice_id, progress.chunk[-1].slice_id
        what = first if first == last else f"{first} … {last}"
        now = progress.now
        if self._task is None:
            self._task = bar.add_task(self.name, total=now.total, told="")
        bar.update(
            self._task,
            completed=now.done,
            total=now.total,
            description=f"replaying {self.name} {what}",
            told=now.sentence,
        )
