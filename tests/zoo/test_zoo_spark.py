"""Each entry of the zoo is refused with its words, or has the frozen answer."""

import pytest

from tests.zoo.answers import compared
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
