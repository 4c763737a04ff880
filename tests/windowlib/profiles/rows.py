"""Turns a row of docs/reference/profiles.md into a test with one id per cell, and reads the cells of the page."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NamedTuple

import pytest

from tests.windowlib.profiles.engines import ENGINES, ask_for
from windowlib.errors import SpecError

Test = Callable[..., None]
Cell = tuple[str, Any]
"""The words on the page, and the result that the test expects."""
Place = tuple[str, str]
"""A test and a column."""

WORDS: Final[dict[Place, str]] = {}
"""The words of each cell that is tested."""


def row(*, storm_strict: Cell | None = None, **engines: Cell) -> Callable[[Test], Test]:
    """Return a decorator that makes a test a row of the tables, with one cell and one test id per engine.

    `storm_strict` is the cell for Storm's windows with `semantics: strict`, if they differ from the profile storm. The
    test does not see a cell whose feature is `Refused`: a pipeline file that requests it is refused.
    """
    assert tuple(engines) == ENGINES, "every engine has a cell, in the order of the columns"
    cells = engines if storm_strict is None else {**engines, "storm-strict": storm_strict}

    def mark(test: Test) -> Test:
        @wraps(test)
        def tested(column: str, expected: object) -> None:
            check_refused(column, expected) if isinstance(expected, Refused) else test(column, expected)

        WORDS.update({(test.__name__, column): words for column, (words, _) in cells.items()})
        params = [pytest.param(column, expected, id=column) for column, (_, expected) in cells.items()]
        marked: Test = pytest.mark.parametrize(("column", "expected"), params)(tested)
        return marked

    return mark


class Refused(NamedTuple):
    """A feature that is not available. A pipeline file with `windows` is accepted.

    It is refused with `message` if it has `instead` in place of `windows`, or `beside` in addition.
    """

    message: str
    windows: dict[str, Any]
    instead: dict[str, Any] | None = None
    beside: dict[str, Any] | None = None


def check_refused(column: str, feature: Refused) -> None:
    """Check that a pipeline file which requests a feature that is not available is refused."""
    ask_for(column, feature.windows)
    asked = (feature.windows if feature.instead is None else feature.instead) | (feature.beside or {})
    with pytest.raises(SpecError, match=feature.message):
        ask_for(column, asked)


def cells_of(page: str) -> dict[Place, str]:
    """Return the cells of all tables whose last column is `test`."""
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
    """Return the ids of the tests that have the parameter `column`, as pytest collects them."""
    marks = [(name, mark) for name, test in tests.items() for mark in getattr(test, "pytestmark", [])]
    return {
        (name, str(param.id))
        for name, mark in marks
        if mark.name == "parametrize" and mark.args[0] == ("column", "expected")
        for param in mark.args[1]
    }


def storms_cells(tests: dict[str, Test]) -> dict[str, Any]:
    """Return the expected results of the column storm, by test, for the rows without a cell `storm-strict`.

    Features that are not available are left out, because they depend on the windows and not on `semantics`.
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
    """Return the page without the row of a test."""
    return re.sub(rf"^.*`{name}`.*\n", "", page, count=1, flags=re.MULTILINE)
