"""A variable's name says what the value is: `footer`, `slice_run`, `request`; not `found` or `one`."""

import ast
from collections.abc import Iterator

from tests.architecture.test_tidy import modules, name_of

UNTELLING = {"found", "one", "ones", "got", "it"}


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
        for problem in untelling_names(module.read_text())
    ]
    assert not problems, "name these by what they hold:\n" + "\n".join(problems)
