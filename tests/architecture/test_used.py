"""Product code has no part that only tests use: each module is imported, and each public name is read, by product code.

Names that others call by convention are listed here, with who calls them.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.places import ROOT

PACKAGES: Final = ("windowlib", "jobs", "expectations", "dags")
STARTED: Final = {
    "dags.clicks_live_writer": "Airflow's dag processor",
    "dags.hindcast_dags": "Airflow's dag processor",
    "jobs.airflow_ui.plugin": "Airflow, by the entry point of the project",
    "jobs.bin.replay_job": "spark-submit",
    "jobs.cli.airflow": "make up, make down",
    "jobs.cli.main": "the command `hindcast`, by the entry point of the project",
    "jobs.public.hindcast.notebook": "users' notebooks, as `hindcast.notebook` (docs/how-to/read.md)",
    "jobs.public.hindcast.reading": "users' programs, as `hindcast.reading` (docs/how-to/read.md)",
}
"""Modules that no product module imports -> who does."""
PUBLIC: Final = {
    "HindcastPlugin": "Airflow",
    "advance_clock": "users' watermark sources",
    "default_max_parallelism": "users who restore state of Flink's key groups",
    "emit_watermark": "users' watermark generators",
    "get_link": "Airflow, of an extra link of an operator",
    "group_column": "users (docs/reference/atlas.md)",
    "is_marker": "users' watermark generators",
    "key_group_range": "users who restore state of Flink's key groups",
    "mark_idle": "users' watermark generators",
    "on_row": "users' watermark generators",
    "on_upstream": "users' watermark sources",
    "subtask_of": "users who restore state of Flink's key groups",
}
"""Names that product code defines and does not read -> who does."""
REGISTERING: Final = (
    "command",
    "fixture",
    "get",
    "post",
    "validator",
    "exception_handler",
    "hookimpl",
    "group",
    "route",
)
"""Words in decorators of functions that their decorators register."""


@cache
def trees() -> dict[str, ast.Module]:
    """Return module -> its syntax tree, with that of its stub."""
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            "\n".join(own.read_text() for own in (file, file.with_suffix(".pyi")) if own.exists())
        )
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
    }


def is_main(module: str) -> bool:
    return module.endswith("__main__") or (ROOT / Path(*module.split("."))).is_dir()


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules and names that a module imports, also those that it names in a text (`module:name`)."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{one.name}" for one in names)
            case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.]+(:\w+)?", text):
                yield text.partition(":")[0]
            case _:
                pass


def test_each_module_is_imported_by_product_code() -> None:
    imported = {name for module, tree in trees().items() for name in imports(tree) if name != module}
    unused = {module for module in trees() if module not in imported and not is_main(module)}
    assert unused == {*STARTED}


def read_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module reads: variables, attributes, imported names, and words of texts."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.ImportFrom(names=names):
                yield from (one.name for one in names)
            case ast.Constant(value=str(text)) if len(text) < 2_000:
                yield from re.findall(r"\w+", text) if "`" not in text and "\n\n" not in text else ()
            case _:
                pass


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the functions and classes of a module, and the methods of its classes, unless they are registered."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not is_registered(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            own = [one for one in node.body if isinstance(one, ast.FunctionDef) and not is_registered(one)]
            yield from (one.name for one in own if not node.bases)


def is_registered(node: ast.FunctionDef | ast.ClassDef) -> bool:
    words = {word for one in node.decorator_list for word in re.findall(r"[a-z_]+", ast.unparse(one))}
    return any(word.endswith(REGISTERING) for word in words)


def test_each_public_name_is_read_by_product_code() -> None:
    """A method of a class with bases may be called through a base, so it is not looked at."""
    read = {name for tree in trees().values() for name in read_names(tree)}
    for template in (ROOT / "jobs").rglob("*.j2"):
        read |= {*re.findall(r"\w+", template.read_text())}
    unread = {
        name: module
        for module, tree in trees().items()
        for name in defined(tree)
        if not name.startswith("_") and name not in read and name not in PUBLIC
    }
    assert not unread
