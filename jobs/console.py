"""Prints the output of commands, escaped (`jobs.plain_text`), and turns errors into exit statuses.

Results go to standard output. Progress and errors go to standard error, so a program that reads standard output gets
results only. Every error is one paragraph and an exit status of 1 or 2. The traceback of an unexpected error goes into
a file that the paragraph names.
"""

import atexit
import io
import json
import logging
import os
import platform
import sys
import tempfile
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click
from typing_extensions import override

from jobs.disk_errors import disk_problem
from jobs.plain_text import EscapingFormatter, escaped, escaped_json
from windowlib.errors import HindcastError, RangeError, SpecError

if TYPE_CHECKING:  # rich takes 25 ms, and many commands print plain lines only
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

OK, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130
UNWRITTEN = 120
"""The status of Python itself if the last output cannot be written."""

_PACKAGES = frozenset({"expectations", "hindcast", "jobs", "windowlib"})
"""Hindcast's own."""

NO_WIDTH = 100_000
"""The width of a pipe or a file: a program that reads the output gets whole lines."""
_in_json = threading.Event()
"""Is set while each line on standard error is JSON."""
_GAP = "  "
_LEAST = 12
"""A column that may be wrapped or cut keeps this width, in characters, or the table is printed as paragraphs."""
_LEAST_NAME = 4
"""The name of a column of numbers is broken over lines of at least this width."""


def out() -> "Console":
    """Return the console for results (standard output). A pipe has no width, unless COLUMNS gives it one."""
    from rich.console import Console

    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if has_width else NO_WIDTH)


def err() -> "Console":
    """Return the console for progress and errors (standard error)."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def complain_in_json() -> None:
    """Print each further line of this command on standard error as JSON: `{"message": …}`, in place of text."""
    _in_json.set()


def say(*lines: str, style: str | None = None, console: "Console | None" = None) -> None:
    """Print one line for each argument. Characters that could break a line or control the terminal are escaped.

    On standard error, each line is JSON after `complain_in_json`. Empty lines are left out then.

    Any part of `lines` may come from outside. `style` is a style of rich for all lines. By default, `console` is
    standard output.
    """
    if style is None and console is None:
        for line in lines:
            click.echo(escaped(line))
        return
    from rich.text import Text

    to = console or out()
    if to.stderr and _in_json.is_set():
        for line in filter(None, lines):
            complain_json({"message": line})
        return
    wrap = to.stderr and sys.stderr.isatty()
    for line in lines:
        to.print(Text(escaped(line), style=style or ""), soft_wrap=not wrap)


def complain(*lines: str) -> None:
    """Print lines on standard error, as `say` does."""
    say(*lines, console=err())


def complain_json(value: object) -> None:
    """Print one JSON value on one line of standard error."""
    click.echo(escaped_json(value), err=True)


def print_json(value: object, *, indent: int | None = None) -> None:
    """Print one JSON value on one line of standard output, or indented and sorted by key."""
    click.echo(escaped_json(value, indent=indent))


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

    If the console is too narrow, cells are wrapped, then the space between columns shrinks, then the names of columns
    of numbers are broken. Numbers (`right`) and the words of `whole` columns are never broken. If the console is too
    narrow for that, each row becomes a paragraph.

    A cell is a value, or a Text with a style. `right` columns are aligned to the right. The words of `whole` columns,
    such as ids, are never cut. Cells of `cut` columns are cut with an ellipsis if the screen is too narrow.
    """
    from rich.cells import cell_len
    from rich.text import Text

    cells = [[cell if isinstance(cell, Text) else Text(escaped(cell)) for cell in row] for row in rows]
    names = [escaped(column) for column in columns]
    texts = [[row[number].plain for row in cells] for number in range(len(names))]
    widths = [max(map(cell_len, [name, *own])) for name, own in zip(names, texts, strict=True)]
    least = [
        min(widths[number], _LEAST)
        if column in cut
        else _longest_word([names[number], *texts[number]], is_rigid=column in whole or column in right)
        for number, column in enumerate(columns)
    ]
    broken = [
        min(least[number], max([_LEAST_NAME, *map(cell_len, texts[number])])) if column in right else least[number]
        for number, column in enumerate(columns)
    ]
    console = out()
    say(title, style="bold")
    if sum(widths) + len(_GAP) * (len(widths) - 1) <= console.width:
        _print_lines(console, names, cells, right=[name in right for name in columns], widths=widths)
        return
    in_one_line = [
        width if column in whole or column in right else min(width, _LEAST)
        for column, width in zip(columns, widths, strict=True)
    ]
    for fewest, gap in ((in_one_line, len(_GAP)), (least, len(_GAP)), (least, 1), (broken, 1)):
        room = console.width - gap * len(fewest) - sum(fewest)  # rich adds the gap to the last column, too
        if room >= 0:
            table = _new_table(gap)
            for column, width in zip(columns, _widened(fewest, widths, room), strict=True):
                _add_column(table, column, width=width, is_cut=column in cut, is_right=column in right)
            for row in cells:
                table.add_row(*row)
            console.print(table)
            return
    _print_paragraphs(console, names, cells)


def _widened(fewest: Sequence[int], widths: Sequence[int], room: int) -> list[int]:
    """Return widths of columns that share `room` more characters, evenly, and none wider than its own."""
    made = [*fewest]
    while room > 0 and (narrow := [number for number, width in enumerate(widths) if made[number] < width]):
        for number in narrow[:room]:
            made[number] += 1
        room -= len(narrow)
    return made


def _new_table(gap: int) -> "Table":
    """Return a table without lines, with so many spaces between its columns."""
    from rich.table import Table  # most screens are wide enough for plain lines

    return Table(header_style="bold", box=None, pad_edge=False, padding=(0, gap, 0, 0))


def _add_column(table: "Table", name: str, *, width: int, is_cut: bool, is_right: bool) -> None:
    """Add a column of a fixed width: rich would make columns of numbers narrower, too, and crop the last one."""
    from rich.text import Text

    table.add_column(
        Text(escaped(name)),
        justify="right" if is_right else "left",
        overflow="ellipsis" if is_cut else "fold",
        no_wrap=is_cut,
        width=width,
    )


def _longest_word(texts: Sequence[str], *, is_rigid: bool) -> int:
    """Return the width of the longest word. Longer words than `_LEAST` may be broken in a column that is not rigid."""
    from rich.cells import cell_len

    longest = max((cell_len(word) for text in texts for word in text.split()), default=1)
    return longest if is_rigid else min(longest, _LEAST)


def _print_lines(
    console: "Console", names: Sequence[str], rows: "Sequence[Sequence[Text]]", *, right: Sequence[bool],
    widths: Sequence[int],
) -> None:  # fmt: skip
    """Print a table whose rows fit into one line each. Ten thousand rows take a fraction of a second."""
    from rich.text import Text

    colours: dict[tuple[str, str], str] = {}

    def shown(cell: "Text") -> str:
        """Return the text with the colour codes of its style, if the console shows colours."""
        if not cell.style or console.color_system is None:
            return cell.plain
        key = (cell.plain, str(cell.style))
        if key not in colours:
            with console.capture() as captured:
                console.print(cell, end="", soft_wrap=True)
            colours[key] = captured.get()
        return colours[key]

    def line(row: "Sequence[Text]") -> str:
        parts = []
        for cell, to_right, width in zip(row, right, widths, strict=True):
            space = " " * (width - cell.cell_len)
            parts.append(space + shown(cell) if to_right else shown(cell) + space)
        return _GAP.join(parts).rstrip()

    click.echo("\n".join(line(row) for row in ([Text(name, style="bold") for name in names], *rows)))


def _print_paragraphs(console: "Console", names: Sequence[str], rows: "Sequence[Sequence[Text]]") -> None:
    """Print a row as its first cell and a paragraph of the others, for a console too narrow for the table."""
    for first, *others in rows:
        named = [f"{name} {cell.plain}" for name, cell in zip(names[1:], others, strict=True) if cell.plain]
        body = textwrap.wrap(
            ", ".join(named), max(console.width - len(_GAP), 1), break_on_hyphens=False, break_long_words=False
        )
        click.echo("\n".join([first.plain, *(_GAP + line for line in body)]))


class _StderrFormatter(EscapingFormatter):
    """Formats a log record as escaped text, or as one line of JSON after `complain_in_json`."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return escaped_json({"message": text}) if _in_json.is_set() else text


def log_to_stderr() -> None:
    """Send all warnings and errors of the log, and Python's warnings, to standard error, one line for each."""
    logging.captureWarnings(capture=True)
    handler = logging.StreamHandler()
    handler.setFormatter(_StderrFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def end_process(status: int) -> NoReturn:
    """End this process, as `sys.exit` does, but let the system free its memory at once.

    Python would free it object by object, which takes 0.1 s, and 0.4 s after a replay of 20 million records. If another
    thread must end first, Python waits for it.
    """
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(status)
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public function that calls what libraries have registered
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = status or UNWRITTEN
    os._exit(status)


def run_command(
    command: Callable[..., Any], arguments: Sequence[str] | None, *, name: str, interrupted: str, failed: str = "error"
) -> int:
    """Run a click command and return its exit status. An error is printed as one paragraph on standard error.

    The status is the one that the command returns, else: 0 done, 1 refused or a bug, 2 wrong usage or a wrong pipeline
    file, 130 interrupted. The default `arguments` are those of the command line. `name` is the program's in messages,
    `interrupted` the message after ctrl-C, `failed` the first word of an error's paragraph.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as Python does for sys.stderr
    _in_json.clear()
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
        return _report_other(error, name, failed)
    return result if isinstance(result, int) else OK


def _usage(error: click.ClickException) -> int:
    """Print click's message, escaped because it quotes the command line; the help of a group without a command."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        complain(*error.format_message().splitlines())
        return USAGE
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        complain(*context.get_usage().splitlines(), f"Try '{context.command_path} --help' for help.", "")
    message = error.format_message().replace("\n\t", " ")  # click has a line for each choice
    complain(f"error: {message}")
    return USAGE


def _report_other(error: BaseException, name: str, failed: str) -> int:
    """Print a package that is missing, or the problem of a disk or a limit. Any other error is a bug in Hindcast."""
    if isinstance(error, ModuleNotFoundError) and f"{error.name}".partition(".")[0] not in _PACKAGES:
        complain(
            f"{failed}: the Python environment has no package {error.name}. After an update of Hindcast, install the "
            "packages of its new version (`make setup` in a clone), and run the same command again"
        )
        return REFUSED
    if (problem := disk_problem(error)) is None:
        return _report_bug(error, name)
    place = getattr(error, "filename", None) or _first_line(error)
    complain(f"{failed}: {place}: {problem}" if place else f"{failed}: {problem}")
    return REFUSED


def _report_bug(error: BaseException, name: str) -> int:
    """Print that the error is a bug in Hindcast; the traceback goes into a private file."""
    *_, (last, _line) = traceback.walk_tb(error.__traceback__)
    if isinstance(error, SystemExit) and last.f_globals["__name__"] in {"click.core", "rich.console"}:
        return REFUSED  # they exit like this if the reader of a pipe has closed it, as in `hindcast show | head`
    complain(
        f"error: {name} failed with an unexpected {type(error).__name__}: {_first_line(error)}. "
        f"This is a bug in Hindcast. {_keep_traceback(error)}; please report the bug with that file. `hindcast status` "
        "tells what readers see, and you can run the same command again"
    )
    return REFUSED


def _first_line(error: BaseException) -> str:
    return "".join(str(error).splitlines()[:1]).strip()


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
    from importlib.metadata import version  # takes 30 ms, and only a report of a bug needs it

    try:
        return version("hindcast")
    except ImportError:
        return "not installed"
