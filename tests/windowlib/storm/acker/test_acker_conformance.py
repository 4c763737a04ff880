"""All recorded scripts of the acker of Apache Storm 2.8.4, played in the profile storm."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.conformance.acker_player import play
from tests.support.places import ROOT
from windowlib.errors import SpecError

CASES = ROOT / "tests" / "conformance" / "storm" / "cases.jsonl"


def cases() -> Iterator[Any]:
    for number, line in enumerate(CASES.read_text(encoding="utf-8").splitlines(), start=1):
        case = json.loads(line)
        if "acker" in case["script"]:
            yield pytest.param(case, id=f"cases:{number}")


@pytest.mark.parametrize("case", list(cases()))
def test_the_answer_is_that_of_storm(case: Mapping[str, Any]) -> None:
    assert json.loads(json.dumps(play(case["script"]))) == case["expect"]


def test_there_are_cases() -> None:
    assert len(list(cases())) == 117


@pytest.mark.parametrize("event", [["tock"], ["init", 1, 2], ["ack", 1], ["tick", 1]], ids=str)
def test_an_unknown_event_is_refused(event: list[Any]) -> None:
    with pytest.raises(SpecError, match="unknown event"):
        play({"acker": [event]})
