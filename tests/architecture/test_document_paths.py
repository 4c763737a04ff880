"""Every file and directory of the repository that a document names exists, and so does every test that it names."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture.test_tidy import tracked_files
from tests.support.places import ROOT

FOLDERS = ("tests", "windowlib", "jobs", "dags", "expectations", "pipelines", "docs", "setup", "deploy")
PATH = re.compile(rf"(?<![\w./:-])(?:{'|'.join(FOLDERS)})/[\w./*-]*\w")
USERS_FILES = {
    "pipelines/clicks.yaml", "expectations/clicks.json", "pipelines/orders.yaml", "expectations/orders.json",
}  # fmt: skip
"""Files that the README and the tutorial tell a user to create."""
TEST = re.compile(r"`(test_\w+)(\*?)`")
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "tests").rglob("README.md")),
]


def paths(text: str) -> set[str]:
    return set(PATH.findall(text))


def exists(path: str) -> bool:
    return any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_paths_in_a_document_exist(document: Path) -> None:
    found = paths(document.read_text(encoding="utf-8")) - USERS_FILES
    assert sorted(path for path in found if not exists(path)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_tests_in_a_document_exist(document: Path) -> None:
    named = TEST.findall(document.read_text(encoding="utf-8"))
    sources = [file.read_text(encoding="utf-8") for file in tracked_files() if file.name.startswith("test_")]
    defined = {name for source in sources for name in re.findall(r"^ *def (test_\w+)", source, re.MULTILINE)}
    assert [
        name for name, star in named if not any(it == name or (star and it.startswith(name)) for it in defined)
    ] == []


def test_paths_are_found_in_prose_code_and_tables() -> None:
    text = (
        "`tests/matrix`, (see jobs/x.py). | docs/A.md | a/tests/b, https://x.y/docs/z, tests/conformance/storm/*.jsonl"
    )
    assert paths(text) == {"tests/matrix", "jobs/x.py", "docs/A.md", "tests/conformance/storm/*.jsonl"}


def test_the_modules_and_tests_that_mutmut_uses_exist() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
    named = [
        *settings["only_mutate"],
        *settings["pytest_add_cli_args_test_selection"],
        *(option.partition("=")[2].partition("::")[0] for option in settings["pytest_add_cli_args"] if "=" in option),
    ]
    assert [path for path in named if not exists(path)] == []
