"""What a command prints, and how it ends: the one place where text reaches a terminal, escaped (`jobs.plain_text`).

Results go to standard output, progress and errors to standard error, so that a program reads results only. Whatever
goes wrong is one paragraph and an exit status of 1 or 2; a traceback goes into a file that the paragraph names.
"""

import json
import logging
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.plain_text import EscapingFormatter, escaped, escaped_json
from windowlib.errors import HindcastError, RangeError, SpecError

OK, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130


def out() -> Console:
    """The console for results."""
    return Console(highlight=False)


def err() -> Console:
    """The console for progress and errors; never mixed into what a program reads."""
    return Console(stderr=True, highlight=False)


def say(*lines: str, style: str | None = None, console: Console | None = None) -> None:
    """Print one line per argument; whatever could break a line or drive the terminal is escaped.

    Args:
        lines: texts, of which any part may come from outside.
        style: a colour of rich, for all of them.
        console: where; standard output when None.
    """
    to = console or out()
    wrap = to.stderr and sys.stderr.isatty()
    for line in lines:
        to.print(Text(escaped(line), style=style or ""), soft_wrap=not wrap)


def complain(*lines: str) -> None:
    """Print lines on standard error, as `say` does."""
    say(*lines, console=err())


def print_json(value: object) -> None:
    """Print one JSON value on one line of standard output."""
    click.echo(escaped_json(value))


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    cut: Sequence[str] = (),
) -> None:
    """Print a title and a table for people; values are text, never markup.

    Args:
        title: the line above.
        columns: their names.
        rows: a cell is a value, or a Text of ours with a colour.
        right: columns of numbers.
        whole: columns that are never broken or cut.
        cut: columns whose cells end in an ellipsis where the screen ends, instead of going on below.
    """
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(
            Text(escaped(column)),
            justify="right" if column in right else "left",
            overflow="ellipsis" if column in cut else "fold",
            no_wrap=column in whole or column in cut,
        )
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else Text(escaped(value)) for value in row))
    say(title, style="bold")
    out().print(table)


def log_to_stderr(level: int = logging.WARNING) -> None:
    """Send what libraries and our own modules log to standard error, a line each, escaped."""
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def run_command(
    command: Callable[..., Any], arguments: Sequence[str] | None, *, name: str, interrupted: str, failed: str = "error"
) -> int:
    """Run a click command; how it ends is an exit status, and one paragraph on standard error where it failed.

    Args:
        command: the click command.
        arguments: those of the command line when None.
        name: the program's name in its own messages.
        interrupted: what to say after ctrl-C.
        failed: how the paragraph of an error begins.

    Returns:
        What the command returns. 1: refused, or a bug. 2: usage, or a pipeline file. 130: interrupted.
    """
    try:
        result = command(args=None if arguments is None else list(arguments), prog_name=name, standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        complain(interrupted)
        return INTERRUPTED
    except click.ClickException as error:
        return _usage(error)
    except (SpecError, RangeError) as error:
        complain(f"{failed}: {error}")
        return USAGE
    except HindcastError as error:
        complain(f"{failed}: {error}")
        return REFUSED
    except BaseException as error:  # noqa: BLE001  (the last resort; a panic of a Rust library is no Exception)
        return _report_bug(error, name)
    return result if isinstance(result, int) else OK


def _usage(error: click.ClickException) -> int:
    """Say what click says, escaped: it quotes the command line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        complain(*context.get_usage().splitlines(), f"Try '{context.command_path} --help' for help.", "")
    complain(f"error: {error.format_message()}")
    return USAGE


def _report_bug(error: BaseException, name: str) -> int:
    """Say in one paragraph that this is our bug; the traceback goes into a private file."""
    *_, (last, _line) = traceback.walk_tb(error.__traceback__)
    if isinstance(error, SystemExit) and last.f_globals["__name__"] == "click.core":
        return (
            REFUSED  # click ends the program this way when the reader of a pipe is gone, as in `hindcast show | head`
        )
    said = "".join(str(error).splitlines(keepends=True)[:1]).strip()
    complain(
        f"error: {name} ended by an error that it should have explained: {type(error).__name__}: {said}. "
        f"This is a bug in Hindcast. {_keep_traceback(error)}; please report it with that file. What was published "
        "before is as it was, and the same command may be run again"
    )
    return REFUSED


def _keep_traceback(error: BaseException) -> str:
    facts = {"command": sys.argv, "python": platform.python_version(), "hindcast": _version()}
    text = json.dumps(facts) + "\n\n" + "".join(traceback.format_exception(error))
    try:
        descriptor, path = tempfile.mkstemp(prefix="hindcast-bug-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as failure:
        return f"The traceback could not be kept: {failure.strerror}"
    return f"The traceback is in {path}"


def _version() -> str:
    try:
        return version("hindcast")
    except ImportError:
        return "not installed"
