"""Every file and directory of the repository that a document names exists, and so does every test that it names."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.test_tidy import tracked_files
from tests.support import pages
from tests.support.places import ROOT

FOLDERS = ("tests", "windowlib", "jobs", "dags", "expectations", "pipelines", "docs", "setup", "deploy")
PATH = re.compile(rf"(?<![\w./:-])(?:{'|'.join(FOLDERS)})/[\w./*-]*\w")
USERS_FILES = {
    "pipelines/clicks.yaml", "expectations/clicks.json", "pipelines/orders.yaml", "expectations/orders.json",
}  # fmt: skip
"""Files that the README and the tutorial tell a user to create."""
TEST = re.compile(r"`(test_\w+)(\*?)`")
DOCUMENTS = [*pages.DOCUMENTS, *sorted((ROOT / "tests").rglob("README.md"))]
PAGE = re.compile(r"(?<![\w./:-])docs/[\w./-]*\.(?:md|py|json)(?:#[\w-]+)?")
"""A page that code, a Makefile or a YAML file names, with the anchor if it has one."""


def paths(text: str) -> set[str]:
    return set(PATH.findall(text))


def exists(path: str) -> bool:
    return any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_paths_in_a_document_exist(document: Path) -> None:
    found = paths(document.read_text(encoding="utf-8")) - USERS_FILES
    assert sorted(path for path in found if not exists(path)) == []


@cache
def defined_tests() -> set[str]:
    sources = [file.read_text(encoding="utf-8") for file in tracked_files() if file.name.startswith("test_")]
    return {name for source in sources for name in re.findall(r"^ *def (test_\w+)", source, re.MULTILINE)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_tests_in_a_document_exist(document: Path) -> None:
    named = TEST.findall(document.read_text(encoding="utf-8"))
    assert [
        name for name, star in named if not any(it == name or (star and it.startswith(name)) for it in defined_tests())
    ] == []


@pytest.mark.parametrize(
    "folder", ["", "dags", "deploy", "expectations", "jobs", "pipelines", "setup", "tests", "windowlib"]
)
def test_the_pages_that_code_and_settings_name_exist(folder: str) -> None:
    """Messages of the program, docstrings, Makefile and YAML name pages, so they change when a page moves."""
    others = {".md", ".lock", ".json", ".jsonl", ".svg", ".png"}
    named_here = {file: file.relative_to(ROOT).parent.as_posix().partition("/")[0] for file in tracked_files()}
    files = [file for file, top in named_here.items() if file.suffix not in others and top == (folder or ".")]
    assert files
    named = {
        (file.relative_to(ROOT).as_posix(), page)
        for file in files
        if file != Path(__file__)
        for page in PAGE.findall(file.read_text(encoding="utf-8", errors="ignore"))
    }
    missing = [
        name for name in named if not pages.is_there(ROOT / name[1].partition("#")[0], name[1].partition("#")[2])
    ]
    assert sorted(missing) == []


MODULE = re.compile(r"`(?:[\w/]+/)?([a-z]\w*\.py)`")
CLASS = re.compile(r"`([A-Z]\w*[a-z]\w*)(?:\.(\w+))?(?:\(\))?`")


@cache
def words_of_the_code() -> set[str]:
    python = [file for file in tracked_files() if file.suffix == ".py"]
    return {word for file in python for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(
    "document",
    [page for page in pages.PAGES if page.parent.name in {"decisions", "explanation"}],
    ids=lambda page: page.stem,
)
def test_the_modules_and_classes_that_explain_the_design_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert set(MODULE.findall(text)) <= {file.name for file in tracked_files()}
    assert [named for named in CLASS.findall(text) if not set(filter(None, named)) <= words_of_the_code()] == []


def test_no_file_cites_a_document_that_is_not_in_the_repository() -> None:
    """A document in capitals is README, CHANGELOG or CONTRIBUTING. All other pages have lower-case names."""
    texts = {".py", ".md", ".yml", ".yaml", ".toml", ".sh", ""}
    others = {file for file in tracked_files() if file.suffix in texts and file.name not in {"CHANGELOG.md", "LICENSE"}}
    cited = {
        (file.relative_to(ROOT).as_posix(), name)
        for file in others - {Path(__file__)}
        for name in re.findall(
            r"\b[A-Z]{4,}\.md\b|\b(?:DESIGN|SEMANTICS)(?:,| section)", file.read_text(encoding="utf-8")
        )
    }
    assert sorted(place for place in cited if place[1] not in {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}) == []


def test_pages_are_found_with_their_anchors() -> None:
    text = "see docs/a-b/c.md#how-it-is, (docs/d.md). https://x.org/docs/e.md `docs/f/g.py`"
    assert PAGE.findall(text) == ["docs/a-b/c.md#how-it-is", "docs/d.md", "docs/f/g.py"]


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
