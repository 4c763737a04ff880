"""A variable's name says what the value is: `footer`, `slice_run`, `request`; not `found` or `one`."""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.test_tidy import modules, name_of

UNTELLING = {"found", "one", "ones", "got", "it"}
NOT_YET = (
    "jobs/cli/",
    "jobs/ledger/",
    "jobs/orchestration/",
    "jobs/planning/",
    "jobs/publishing/",
    "jobs/replay/",
    "jobs/review/explain",
)
"""The beginnings of the paths of modules that still have such names. The list only gets shorter."""


def untelling_names(source: str) -> Iterator[str]:
    """Yield the lines that bind an untelling name. A field of a class has its class as its context, so it may."""
    tree = ast.parse(source)
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in fields:
                pass
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                pass
            case _:
                continue
        if name in UNTELLING:
            yield f"{node.lineno}: {name}"


def test_the_names_of_variables_say_what_the_values_are() -> None:
    problems = [
        f"{name_of(module)}:{problem}"
        for module in modules("windowlib", "expectations", "jobs")
        if not name_of(module).startswith(NOT_YET)
        for problem in untelling_names(module.read_text())
    ]
    assert not problems, "name these by what they hold:\n" + "\n".join(problems)


@pytest.mark.parametrize("beginning", NOT_YET)
def test_what_is_done_is_not_on_the_list(beginning: str) -> None:
    held = [module for module in modules("jobs") if name_of(module).startswith(beginning)]
    assert any(True for module in held for _ in untelling_names(module.read_text())), f"{beginning} is done: remove it"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("found = 1\nwhile (found := found - 1):\n    pass", 2),
        ("def f(one, *, got=1): return [one for one in got]", 3),
        ("sorted(x, key=lambda one: one.a)", 1),
        ("for a, (one, b) in x:\n    with y as found: pass", 2),
        ("match x:\n    case [one, *ones]: pass\n    case A() as it: pass", 3),
        ("try: pass\nexcept E as found: pass\nimport m as one", 2),
        ("class A:\n    found: int\n    one: str = ''", 0),
        ("x.found = f(one=1, found=y)['it']", 0),
    ],
)
def test_the_check_for_untelling_names_finds_them(source: str, count: int) -> None:
    assert len(list(untelling_names(source))) == count
