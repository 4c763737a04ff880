"""How a row of docs/PROFILES.md becomes a test with one id per cell, and how the page is read back."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.windowlib.profiles.engines import ENGINES, ask_for
from windowlib.errors import SpecError

Test = Callable[..., None]
Cell = tuple[str, Any]
"""What the page says, and what the test expects."""
Place = tuple[str, str]
"""A test and a column."""

WORDS: Final[dict[Place, str]] = {}
"""The words of each cell that is tested."""


def row(*, storm_strict: Cell | None = None, **engines: Cell) -> Callable[[Test], Test]:
    """Make a test a row of the tables: one cell, and one test id, per engine.

    `storm_strict` is Storm's windows in strict, where they differ from the profile storm.
    """
    assert tuple(engines) == ENGINES, "every engine has a cell, in the order of the columns"
    cells = engines if storm_strict is None else {**engines, "storm-strict": storm_strict}

    def mark(test: Test) -> Test:
        WORDS.update({(test.__name__, column): words for column, (words, _) in cells.items()})
        params = [pytest.param(column, expected, id=column) for column, (_, expected) in cells.items()]
        marked: Test = pytest.mark.parametrize(("column", "expected"), params)(test)
        return marked

    return mark


class Refused(NamedTuple):
    """There is no such thing: `windows` of a pipeline file that may stand alone, and what may not, or not beside it."""

    message: str
    windows: dict[str, Any]
    instead: dict[str, Any] | None = None
    beside: dict[str, Any] | None = None


def is_refused(column: str, expected: object) -> bool:
    """Tell whether there is no such thing; then show that a pipeline file which asks for it is refused for that."""
    if not isinstance(expected, Refused):
        return False
    ask_for(column, expected.windows)
    asked = (expected.windows if expected.instead is None else expected.instead) | (expected.beside or {})
    with pytest.raises(SpecError, match=expected.message):
        ask_for(column, asked)
    return True


def cells_of(page: str) -> dict[Place, str]:
    """The cells of all tables that have a last column `test`."""
    found: dict[Place, str] = {}
    columns: list[str] | None = None
    for line in page.splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        first, *parts = [part.strip() for part in line.strip("|").split("|")]
        if columns is None:
            columns = parts
        elif columns[-1] == "test" and first.strip("-:"):
            name = parts[-1].strip("`")
            cells = {(name, column): words for column, words in zip(columns[:-1], parts[:-1], strict=True)}
            assert not found.keys() & cells.keys(), f"{name} has two rows with one column"
            found |= cells
    return found


def places_of(tests: dict[str, Test]) -> set[Place]:
    """The ids of tests, as pytest will collect them: those with the parameter `column`."""
    marks = [(name, mark) for name, test in tests.items() for mark in getattr(test, "pytestmark", [])]
    return {
        (name, str(param.id))
        for name, mark in marks
        if mark.name == "parametrize" and mark.args[0] == ("column", "expected")
        for param in mark.args[1]
    }


def storms_cells(tests: dict[str, Test]) -> dict[str, Any]:
    """What the column storm expects, by test, where `storm-strict` has no cell of its own.

    Without what there is no such thing of: whether windows of Storm have it is no question of semantics.
    """
    marks = {name: mark for name, test in tests.items() for mark in getattr(test, "pytestmark", [])}
    expected = {
        name: param.values[1]
        for name, mark in marks.items()
        if (name, "storm") in WORDS and (name, "storm-strict") not in WORDS
        for param in mark.args[1]
        if param.id == "storm"
    }
    return {name: cell for name, cell in expected.items() if not isinstance(cell, Refused)}


def without_row(page: str, name: str) -> str:
    """The page without the row of a test."""
    return re.sub(rf"^.*`{name}`.*\n", "", page, count=1, flags=re.MULTILINE)
