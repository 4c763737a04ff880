"""Each entry of the zoo is refused with its words, or has the frozen answer."""

from pathlib import Path

import pytest

from tests.zoo.answers import DIRECTORY, answer_file, compared
from tests.zoo.catalogue import CATALOGUE
from tests.zoo.entries import Entry
from tests.zoo.replaying import Zoo

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def zoo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return Zoo(tmp_path_factory.mktemp("zoo"), lambda: request.getfixturevalue("spark"))


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name.replace(" ", "-"), marks=() if entry.is_sample else pytest.mark.slow)
        for entry in CATALOGUE
    ],
)
def test_the_entry_has_its_frozen_answer(zoo: Zoo, entry: Entry) -> None:
    assert compared(zoo, entry) is None


def test_each_name_is_there_once_and_each_answer_belongs_to_an_entry() -> None:
    assert len({entry.name for entry in CATALOGUE}) == len(CATALOGUE)
    assert {answer_file(entry) for entry in CATALOGUE if entry.refused is None} == {*Path(DIRECTORY).glob("*.json")}
    shared: dict[str, set[tuple[str, str]]] = {}
    for entry in CATALOGUE:
        shared.setdefault(entry.table, set()).add((entry.table, str(entry.build)))
    assert all(len(built) == 1 for built in shared.values()), "entries with one table have one builder"
