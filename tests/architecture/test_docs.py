"""Names in the glossary, pages, links and anchors of the documents exist. None of it needs mkdocs."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pages import DOCS, DOCUMENTS, HEADING, PAGES, is_there, links, prose, site_slug, viewer_slug
from tests.support.places import ROOT
from windowlib import errors
from windowlib.errors import HindcastError
from windowlib.records import tables

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
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
    "document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_the_links_and_anchors_of_a_document_lead_somewhere(document: Path) -> None:
    assert [target for target in links(document) if not is_there(*target)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_page_links_to_files_of_the_site_only(page: Path) -> None:
    """The site has no other files, and it loads nothing from another host."""
    assert [file for file, _ in links(page) if DOCS not in file.parents] == []
    assert re.findall(r"!\[[^\]]*\]\(https?:|```mermaid|<script|<iframe", page.read_text(encoding="utf-8")) == []
    assert re.findall(r"docs/[\w/-]+\.md", prose(page.read_text(encoding="utf-8"))) == [], "a page is a link here"


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("Into an existing Airflow", "into-an-existing-airflow"),
        ("12. quality: checks", "12-quality-checks"),
        ("The DAGs of a pipeline", "the-dags-of-a-pipeline"),
    ],
)
def test_the_site_and_a_viewer_of_markdown_make_the_same_anchors(heading: str, slug: str) -> None:
    assert site_slug(heading) == viewer_slug(heading) == slug


def test_the_anchors_that_are_linked_are_the_same_in_a_viewer_of_markdown() -> None:
    for file, anchor in {target for document in DOCUMENTS for target in links(document) if target[1]}:
        text = file.read_text(encoding="utf-8")
        headings = [head.replace("`", "") for head in HEADING.findall(prose(text))]
        assert anchor in {viewer_slug(head) for head in headings} or f'<a id="{anchor}"' in text, (file, anchor)


def test_an_anchor_that_is_not_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("[x](b.md#one) [y](b.md#two) [z](c.md)\n```\n[no](d.md)\n```\n", encoding="utf-8")
    (tmp_path / "b.md").write_text("# One\n```\n# two\n```\n", encoding="utf-8")
    assert [is_there(*target) for target in links(tmp_path / "a.md")] == [True, False, False]


def nav_pages(entries: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation of mkdocs in its order."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else nav_pages(value)


def test_each_page_is_in_the_navigation_once_and_has_a_lower_case_name() -> None:
    named = list(nav_pages(SITE["nav"]))
    assert sorted(named) == [page.relative_to(DOCS).as_posix() for page in PAGES]
    assert [name for name in named if name != name.lower()] == []


def test_the_site_asks_no_other_host_for_fonts() -> None:
    assert SITE["theme"]["font"] is False
    assert not any("://" in str(SITE.get(key)) for key in ("extra_css", "extra_javascript"))


def test_the_walk_of_one_record_opens_at_most_twelve_files() -> None:
    section = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    section = section.partition("## The walk of one record")[2].partition("\n## ")[0]
    files = re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)
    assert 8 <= len(files) <= 12
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("container", ["jobs", "windowlib"])
def test_the_packages_are_described_in_the_order_of_their_layers(container: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [contract["layers"] for contract in contracts if contract.get("containers") == [container]]
    packages = [{name for name in layer.split(" | ") if (ROOT / container / name).is_dir()} for layer in layers]
    text = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition(f"| line | packages of `{container}/` |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", table, re.MULTILINE)
    described = [{name for name in re.findall(r"`(\w+)`", row) if (ROOT / container / name).is_dir()} for row in rows]
    assert described == [layer for layer in packages if layer]


def test_decisions_are_numbered_without_a_gap_and_have_three_parts() -> None:
    records = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    index = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    assert [record.name[:3] for record in records] == [f"{number:03d}" for number in range(1, len(records) + 1)]
    for record in records:
        title, *parts = HEADING.findall(record.read_text(encoding="utf-8"))
        assert parts == ["Context", "Decision", "Consequences"], record.name
        assert f"| {record.name[:3]} | [{title.partition(': ')[2]}]({record.name}) |" in index


def test_every_law_that_the_code_cites_is_on_the_page_of_laws() -> None:
    laws = set(re.findall(r"\| <a id=\"l\d+\"></a>(L\d+) \|", (DOCS / "explanation" / "laws.md").read_text("utf-8")))
    cited = set(re.findall(r"\b(?:laws? (?:L\d+ (?:and|to) )?|\()(L\d+)\b", PYTHON))
    assert laws == {f"L{number}" for number in range(1, 12)}
    assert {"L1", "L3", "L9", "L10"} <= cited <= laws


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_of_the_clone_use_the_python_of_the_clone(document: Path) -> None:
    """The `python` of a shell, if there is one, has none of the packages."""
    text = document.read_text(encoding="utf-8")
    assert re.findall(r"(?<!<!-- )(?<!\.venv/bin/)\bpython -m (?:tests|bench|jobs|pytest)\b[^\n`]*", text) == []
