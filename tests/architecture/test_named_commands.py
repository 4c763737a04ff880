"""Messages and pages name only commands that there are, with options that these have."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from jobs.cli.main import hindcast
from tests.support.places import ROOT

_COMMAND: Final = re.compile(r"\bhindcast ((?:suite )?[a-z]+(?:-[a-z]+)*)(?![\w.-])([^`();\n]*)")
_END: Final = re.compile(r"[,.:?!]+(?=\s|$)|  | (?:#|>|or|and|for|of|which|in|do|is|has|…) | \{\}…?$|[\"']\s*$")
_OPEN: Final = ("…", "..")
"""Words in the place of further arguments."""


def _texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file, with `{}` in the place of a value."""
    if path.suffix != ".py":
        yield path.read_text()
        return
    tree = ast.parse(path.read_text())
    joined = [node.values for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for parts in joined for part in parts}
    for parts in joined:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def _named(path: Path) -> Iterator[tuple[click.Command, str]]:
    """Yield the commands that the texts of a file name, and the rest of each."""
    context = click.Context(hindcast)
    for text in _texts(path):
        for match in _COMMAND.finditer(text):
            name, *inner = match[1].split()
            command = hindcast.get_command(context, name)
            if isinstance(command, click.Group):
                command = command.get_command(context, inner[0]) if inner else None
            if command is not None:
                yield command, match[2]


def _arguments(command: click.Command, words: list[str]) -> tuple[list[str], list[str]]:
    """Return the options and the other arguments among the words of a command."""
    flags = {name for option in command.params if isinstance(option, click.Option) and option.is_flag
             for name in option.opts}  # fmt: skip
    given, others = list[str](), list[str]()
    is_value = False
    for word in words:
        is_option = word.startswith("--")
        if is_option or not is_value:
            (given if is_option else others).append(word)
        is_value = is_option and word not in flags
    return given, others


def _problems(command: click.Command, rest: str) -> Iterator[str]:
    """Yield what is wrong with a command that a text names. Without any argument, a text only names the command."""
    words = _END.split(f"{rest} ", maxsplit=1)[0].split()
    given, others = _arguments(command, words)
    has = {name for option in command.params if isinstance(option, click.Option) for name in option.opts}
    yield from (f"`hindcast {command.name}` has no option {name}" for name in given if name not in has)
    if not others or {*words} & {*_OPEN}:
        return
    needed = [param for param in command.params if param.required]
    places = [param for param in needed if isinstance(param, click.Argument)]
    if len(others) < len(places):
        yield f"`hindcast {command.name}` has {len(others)} of {len(places)} arguments"
    for param in needed:
        if param not in places and not {*param.opts} & {*given}:
            yield f"`hindcast {command.name}` needs {param.opts[0]}"


_FILES: Final = [
    path
    for top in ("jobs", "dags", "expectations", "windowlib", "docs", "README.md")
    for path in ([ROOT / top] if top.endswith(".md") else sorted((ROOT / top).rglob("*")))
    if path.suffix in (".py", ".html", ".md")
]


def test_a_text_names_only_commands_and_options_that_there_are() -> None:
    """Defect: an advice to run `adopt` again named --replace, which only `run` has."""
    named = [(path, command, rest) for path in _FILES for command, rest in _named(path)]
    assert len(named) > 300
    wrong = [
        f"{path.relative_to(ROOT)}: {problem} in {rest!r}"
        for path, command, rest in named
        for problem in _problems(command, rest)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("run `hindcast adopt clicks --replace`", "`hindcast adopt` has no option --replace"),
        ("hindcast waive clicks 2026-11-01 --run 8c1f", "`hindcast waive` needs --reason"),
        ("hindcast mend clicks", "`hindcast mend` has 1 of 2 arguments"),
        ("`hindcast run clicks --from .. --to .. --fresh`", None),
        ("`hindcast suite try new.json clicks`", None),
    ],
)
def test_a_wrong_command_is_found(tmp_path: Path, text: str, problem: str | None) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    [(command, rest)] = _named(path)
    assert [*_problems(command, rest)] == ([] if problem is None else [problem])
