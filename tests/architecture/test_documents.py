"""The Python examples in documents and docstrings run, and give the shown results."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

from tests.support.pages import PAGES
from tests.support.places import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLAYED = {"first-pipeline.md", "your-own-table.md"}
"""Pages whose blocks need a lake. tests/e2e/test_tutorial_spark.py runs them."""
IMPORTED = (ROOT / "README.md", ROOT / "docs" / "how-to" / "read.md")
"""Pages whose blocks need a Spark session and a lake, so only their imports run."""
DOCUMENTS = [
    file
    for file in PAGES
    if BLOCK.search(file.read_text(encoding="utf-8")) and file.name not in PLAYED and file not in IMPORTED
]
WITH_EXAMPLES = [
    file for file in sorted((ROOT / "windowlib").rglob("*.py")) if ">>> " in file.read_text(encoding="utf-8")
]
"""The other modules are not imported here: each process would load Numba."""
EXAMPLES = [
    example
    for file in WITH_EXAMPLES
    for example in doctest.DocTestFinder().find(
        importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    )
    if example.examples
]


@pytest.mark.usefixtures("airflow_home")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_blocks_of_a_document_run_one_after_the_other(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": f"document_{document.stem}"}
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")
        code = compile("\n" * line + block[1], str(document), "exec")  # so that a traceback names the document's line
        exec(code, names)  # noqa: S102 - it is our own


@pytest.mark.parametrize("page", IMPORTED, ids=lambda path: path.name)
def test_what_a_page_imports_is_there(page: Path) -> None:
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(block[1])):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_the_documents_with_python_are_found() -> None:
    assert ROOT / "docs" / "how-to" / "testing.md" in DOCUMENTS


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_examples_in_docstrings_are_right(example: doctest.DocTest) -> None:
    assert doctest.DocTestRunner().run(example).failed == 0


def test_there_are_examples_in_docstrings() -> None:
    assert len(EXAMPLES) >= 7
