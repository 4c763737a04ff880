"""docs/reference/atlas.md lists all supported names and no others, and the tests that it names exist."""

import re
from collections.abc import Collection

import pytest

from tests.support.places import ROOT
from windowlib.atlas.expressions.accumulators import ACCUMULATORS
from windowlib.atlas.expressions.expressions import OPERATORS, REFUSED as REFUSED_OPERATORS
from windowlib.atlas.stages.queries import QUERY_OPERATORS
from windowlib.atlas.stages.stages import REFUSED, STAGES
from windowlib.atlas.window_stages import WINDOW_STAGES

TEXT = (ROOT / "docs" / "reference" / "atlas.md").read_text(encoding="utf-8")


def listed(start: str, end: str) -> set[str]:
    """Return the names between two texts of the page."""
    part = TEXT[TEXT.index(start) : TEXT.index(end, TEXT.index(start))]
    return set(re.findall(r"`(\$[A-Za-z]\w*)`", part))


@pytest.mark.parametrize(
    ("start", "end", "names"),
    [
        ("**Stages**", "**Refused by name**", STAGES),
        ("**Refused by name**", "**Accumulators**", REFUSED),
        ("**Accumulators**", "**Query operators**", ACCUMULATORS),
        ("**Query operators**", "**Expressions**", (*QUERY_OPERATORS, "$options", "$comment", "$match")),
        ("| family | operators |", "`$rand`", OPERATORS),
        ("`$rand`", "Known differences", REFUSED_OPERATORS),
        ("| | `$tumblingWindow`", "| required", WINDOW_STAGES),
    ],
    ids=["stages", "refused", "accumulators", "queries", "expressions", "refused operators", "windows"],
)
def test_the_page_lists_all_supported_names_and_no_others(start: str, end: str, names: Collection[str]) -> None:
    assert listed(start, end) == set(names)


def test_the_tests_that_the_page_names_exist() -> None:
    folder = ROOT / "tests" / "windowlib" / "atlas"
    code = "\n".join(file.read_text(encoding="utf-8") for file in folder.glob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 10
    assert sorted(name for name in named if f"def {name}(" not in code) == []
