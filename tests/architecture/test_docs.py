"""Names in the glossary and links in the documents exist."""

import re
from pathlib import Path

import pytest

from tests.support.places import ROOT
from windowlib import errors
from windowlib.errors import HindcastError
from windowlib.records import tables

GLOSSARY = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8")
PYTHON = "\n".join(
    file.read_text(encoding="utf-8") for folder in ("windowlib", "jobs") for file in (ROOT / folder).rglob("*.py")
)


def table_names() -> list[str]:
    return sorted(
        value
        for name, value in vars(tables).items()
        if name.isupper() and isinstance(value, str) and name.lower() == value
    )


def error_names() -> list[str]:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, HindcastError)]
    return sorted(one.__name__ for one in classes if one is not HindcastError)


@pytest.mark.parametrize("name", error_names())
def test_every_error_is_in_the_glossary(name: str) -> None:
    assert f"`{name}`" in GLOSSARY


@pytest.mark.parametrize("name", ["window_outputs", "late_records", "unassigned_records", "invalid_records"])
def test_the_tables_that_users_read_are_in_the_glossary_and_in_the_code(name: str) -> None:
    assert f"`{name}`" in GLOSSARY
    assert name in table_names()


def test_the_names_that_the_glossary_gives_exist_in_the_code() -> None:
    first_columns = re.findall(r"^\| ([^|]*) \|", GLOSSARY, re.MULTILINE)
    names = {name for cell in first_columns for name in re.findall(r"`(\w+)`", cell)}
    assert len(names) > 8
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", PYTHON)) == []


def test_each_word_of_the_glossary_is_explained_once() -> None:
    words = [row.split("|")[1].strip() for row in GLOSSARY.splitlines() if re.match(r"\| (?!-)", row)]
    explained = [word for word in words if word not in {"word", "fate"}]
    assert len(explained) == len(set(explained))


@pytest.mark.parametrize(
    "document", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CHANGELOG.md"], ids=lambda path: path.name
)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"
