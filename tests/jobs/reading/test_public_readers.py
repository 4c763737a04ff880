"""The public interface for readers of published tables: `jobs.readers` and its description in README.md."""

import inspect
import re
from pathlib import Path
from random import Random

import pytest

from jobs import readers
from tests.support.small_lake import SmallLake
from windowlib.errors import LedgerError

ROOT = Path(__file__).parents[3]
PUBLIC = {
    "published": ("spark", "lake", "pipeline", "at", "all_panes", "verify"),
    "published_table": ("lake", "pipeline", "table", "at", "keys", "from_", "to", "columns"),
    "published_rows": ("spark", "lake", "pipeline", "table", "at", "verify"),
}


def test_the_public_names_are_these() -> None:
    assert set(readers.__all__) == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_parameters_of_a_public_function_are_these(name: str) -> None:
    assert tuple(inspect.signature(getattr(readers, name)).parameters) == PUBLIC[name]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_docstring_of_a_public_function_describes_each_parameter(name: str) -> None:
    described = re.findall(r"^    (\w+):", inspect.getdoc(getattr(readers, name)) or "", flags=re.MULTILINE)
    assert set(PUBLIC[name]) <= set(described)


def test_a_lake_is_a_path_or_a_text_and_an_error_names_the_version(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.append(Random(5))
    lake.run(0, 0)
    assert readers.published_table(tmp_path, "late").equals(readers.published_table(str(tmp_path), "late"))
    with pytest.raises(LedgerError, match=r"nothing in lake .* at ledger version 1 \(the newest is [3-9]"):
        readers.published_table(tmp_path, "late", at=1)
    for root, name in ((tmp_path, "nosuch"), (tmp_path / "none", "late")):
        with pytest.raises(LedgerError, match=f"there is no pipeline {name} in lake"):
            readers.published_table(root, name)


def test_the_readme_imports_exactly_the_public_names() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## One read")[2]
    [imported] = re.findall(r"^from jobs\.readers import (.+)$", section, flags=re.MULTILINE)
    assert sorted(re.split(r",\s*", imported)) == sorted(PUBLIC)
