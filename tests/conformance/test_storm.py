"""Every recorded case of the real Apache Storm 2.8.4, windows and acker, played through the public parts."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance.play import play
from tests.support.recorded_cases import CHECKER, assert_command_passes, case_files, case_parameters
from windowlib.errors import SpecError

FILES = case_files("storm")


@pytest.mark.parametrize("case", list(case_parameters(FILES)))
def test_the_answer_is_that_of_storm(case: Mapping[str, Any]) -> None:
    answer = json.loads(json.dumps(play(case["script"])))
    assert CHECKER.normal(case["script"], answer) == CHECKER.normal(case["script"], case["expect"])


def test_the_command_answers_every_script_in_order() -> None:
    assert_command_passes(FILES)


SCRIPT: dict[str, Any] = {
    "window": {
        "length": {"ms": 20},
        "slide": {"ms": 10},
        "event_time": True,
        "streams": ["s"],
        "late": True,
        "events": [["e", "a", 3, "s"], ["e", "b", 14, "s"], ["e", "c", 25, "s"], ["tick"], ["e", "d", 4, "s"]],
    }
}


def test_the_comparison_sees_a_wrong_answer() -> None:
    """A lost or changed window, another order, a wrong list and a wrong watermark do not pass."""
    right = play(SCRIPT)
    assert [window["ref"] for window in right["windows"]] == [10, 20]
    assert (right["late"], right["watermarks"]) == (["d"], [25])
    first, second = right["windows"]
    for wrong in (
        {**right, "windows": [first]},
        {**right, "windows": [second, first]},
        {**right, "windows": [first, {**second, "events": ["b", "a"]}]},
        {**right, "windows": [first, {**second, "new": ["a", "b"]}]},
        {**right, "windows": [first, {**second, "expired": ["a"]}]},
        {**right, "late": []},
        {**right, "watermarks": [24]},
    ):
        assert CHECKER.normal(SCRIPT, wrong) != CHECKER.normal(SCRIPT, right)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"events": [["boom"]]}, r"unknown event \['boom'\]"),
        ({"length": {"weeks": 2}}, "a length is"),
        ({"slide": {"ms": 0}}, "must be positive, got 0"),
    ],
    ids=["event", "length", "slide"],
)
def test_a_script_that_is_not_valid_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        play({"window": {**SCRIPT["window"], **change}})
