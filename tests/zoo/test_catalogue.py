"""The entries, the frozen answers and the table of docs/reference/logs.md agree. An oracle has the same answers."""

from pathlib import Path
from typing import NoReturn

import pytest

from jobs.project import ROOT
from tests.zoo.answers import DIRECTORY, answer_file, difference, frozen
from tests.zoo.catalogue import CATALOGUE
from tests.zoo.documented import table_lines
from tests.zoo.entries import Build, Entry
from tests.zoo.oracle import has_oracle, oracle
from tests.zoo.replaying import Zoo

SAMPLED = ("double as order", "string as order", "delta-rs: overlapping files, shuffled")


def test_each_name_is_there_once_and_each_answer_belongs_to_an_entry() -> None:
    assert len({entry.name for entry in CATALOGUE}) == len(CATALOGUE) >= 60
    assert {answer_file(entry) for entry in CATALOGUE if entry.refused is None} == {*DIRECTORY.glob("*.json")}
    builders: dict[str, Build] = {}
    assert all(builders.setdefault(entry.table, entry.build) is entry.build for entry in CATALOGUE)


def test_entries_with_one_answer_have_one_spec() -> None:
    specs: dict[Path, str] = {}
    for entry in CATALOGUE:
        if entry.refused is None:
            spec = entry.yaml.replace(", first: 2026-03-01", "")  # neither the first slice nor the format is part of it
            spec = (
                spec.replace("  format: parquet\n", "")
                .replace("  format: iceberg\n", "")
                .replace("  partitions: {day: date}\n", "")
                .replace("  changes: inserts\n", "")
            )
            assert specs.setdefault(answer_file(entry), spec) == spec, entry.name


def test_the_page_has_the_table_of_the_catalogue() -> None:
    """`python -m tests.zoo table` prints it."""
    page = (ROOT / "docs" / "reference" / "logs.md").read_text("utf-8")
    assert "\n".join(table_lines()) in page


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name.replace(" ", "-"), marks=() if entry.name in SAMPLED else pytest.mark.slow)
        for entry in CATALOGUE
        if entry.refused is None and has_oracle(entry)
    ],
)
def test_a_log_that_python_sorts_has_the_frozen_answer(tmp_path: Path, entry: Entry) -> None:
    def no_session() -> NoReturn:
        raise AssertionError("neither the table nor the sorted log needs Spark")

    expected = frozen(entry)
    assert expected is not None
    assert difference(oracle(Zoo(tmp_path, no_session), entry), expected) is None
