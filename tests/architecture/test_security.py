"""The page about security names modules and tests that exist, and one test at least for each boundary."""

import ast
import re
from functools import cache

import pytest

from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
PLACE = re.compile(r"`((?:jobs|windowlib|expectations|tests)/[\w./-]+)`")
BOUNDARIES = [line for line in PAGE.partition("## Boundaries")[2].splitlines() if line.startswith("| **")]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("line", BOUNDARIES, ids=lambda line: line.split("**")[1])
def test_a_boundary_names_a_module_and_a_test_that_exist(line: str) -> None:
    _, _, handled, tested, _ = re.split(r"(?<!\\)\|", line)
    tests = TEST.findall(tested)
    assert tests or "integrity.md" in handled, "name a test of the boundary"
    assert [name for file, name in tests if name not in functions_of(file)] == []
    assert PLACE.search(handled) or "integrity.md" in handled, "name the module that handles it"


def test_every_place_on_the_page_exists() -> None:
    assert len(BOUNDARIES) > 15
    assert [place for place in PLACE.findall(PAGE) if not (ROOT / place).exists()] == []


def test_all_templates_are_escaped() -> None:
    """Jinja escapes nothing by default, and `select_autoescape` does not know the suffix .j2."""
    made = [
        keywords
        for file in (ROOT / "jobs").rglob("*.py")
        for keywords in _environments(file.read_text(encoding="utf-8"))
    ]
    assert made == [{"autoescape": True}]


def _environments(source: str) -> list[dict[str, object]]:
    """Return the argument `autoescape` of each environment of templates that a module makes."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        {word.arg: getattr(word.value, "value", None) for word in call.keywords if word.arg == "autoescape"}
        for call in calls
        if isinstance(call.func, ast.Name | ast.Attribute)
        and (call.func.id if isinstance(call.func, ast.Name) else call.func.attr)
        in {"Environment", "Template", "Jinja2Templates"}
    ]
