"""Prints the output of commands, escaped (`jobs.plain_text`), and turns errors into exit statuses.

Results go to standard output. Progress and errors go to standard error, so a program that reads standard output gets
results only. Every error is one paragraph and an exit status of 1 or 2. The traceback of an unexpected error goes into
a file that the paragraph names.
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
    """Return the console for results (standard output)."""
    return Console(highlight=False)


def err() -> Console:
    """Return the console for progress and errors (standard error)."""
    return Console(stderr=True, highlight=False)


def say(*lines: str, style: str | None = None, console: Console | None = None) -> None:
    """Print one line for each argument. Characters that could break a line or control the terminal are escaped.

    Args:
        lines: texts; any part of them may come from outside.
        style: a style of rich for all lines.
        console: the console; standard output if None.
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
    """Print a title and a table. Values are escaped and are never read as rich's markup.

    Args:
        title: the line above the table.
        columns: the names of the columns.
        rows: a cell is a value, or a Text with a style.
        right: columns that are aligned to the right, such as numbers.
        whole: columns whose cells are never wrapped or cut.
        cut: columns whose cells are cut with an ellipsis at the end of the screen. Other cells are wrapped.
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
    """Send all log records of this level and above to standard error, one escaped line for each."""
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def run_command(
    command: Callable[..., Any], arguments: Sequence[str] | None, *, name: str, interrupted: str, failed: str = "error"
) -> int:
    """Run a click command and return its exit status. An error is printed as one paragraph on standard error.

    Args:
        command: the click command.
        arguments: its arguments; those of the command line if None.
        name: the program's name in messages.
        interrupted: the message after ctrl-C.
        failed: the first word of an error's paragraph.

    Returns:
        The status that the command returns, else: 0 done, 1 refused or a bug, 2 wrong usage or a wrong pipeline file,
        130 interrupted.
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
    except BaseException as error:  # noqa: BLE001  (a panic of a Rust library is a BaseException, not an Exception)
        return _report_bug(error, name)
    return result if isinstance(result, int) else OK


def _usage(error: click.ClickException) -> int:
    """Print click's message, escaped because it quotes the command line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        complain(*context.get_usage().splitlines(), f"Try '{context.command_path} --help' for help.", "")
    complain(f"error: {error.format_message()}")
    return USAGE


def _report_bug(error: BaseException, name: str) -> int:
    """Print that the error is a bug in Hindcast; the traceback goes into a private file."""
    *_, (last, _line) = traceback.walk_tb(error.__traceback__)
    if isinstance(error, SystemExit) and last.f_globals["__name__"] == "click.core":
        return REFUSED  # click exits like this if the reader of a pipe has closed it, as in `hindcast show | head`
    first_line = "".join(str(error).splitlines(keepends=True)[:1]).strip()
    complain(
        f"error: {name} failed with an unexpected {type(error).__name__}: {first_line}. "
        f"This is a bug in Hindcast. {_keep_traceback(error)}; please report the bug with that file. Published results "
        "have not changed, and you can run the same command again"
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
        return f"The traceback could not be written to a file: {failure.strerror}"
    return f"The traceback is in {path}"


def _version() -> str:
    try:
        return version("hindcast")
    except ImportError:
        return "not installed"
