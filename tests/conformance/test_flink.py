"""Every recorded case of the real Apache Flink 2.3.0, played through the public parts in the flink profile."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance.play import play
from tests.support.recorded_cases import CHECKER, assert_command_passes, case_files, case_parameters

FILES = case_files("flink")


@pytest.mark.parametrize("case", list(case_parameters(FILES)))
def test_the_answer_is_that_of_flink(case: Mapping[str, Any]) -> None:
    answer = json.loads(json.dumps(play(case["script"])))
    assert CHECKER.normal(case["script"], answer) == CHECKER.normal(case["script"], case["expect"])


def test_the_command_answers_every_script_in_order() -> None:
    assert_command_passes(FILES)


def test_the_comparison_sees_a_wrong_answer() -> None:
    """A changed payload, a lost pane, a swapped order, a wrong count and a wrong timer do not pass."""
    script = {
        "assigner": {"type": "tumbling_event", "size": 10},
        "events": [["e", "a", 1, 1], ["e", "a", 2, 2], ["w", 9]],
    }
    right = play(script)
    assert CHECKER.normal(script, right) == CHECKER.normal(script, play(script))
    for wrong in (
        {**right, "out": [["o", "a", 0, 10, [2, 1], 9], ["w", 9]]},
        {**right, "out": [["w", 9]]},
        {**right, "out": [["w", 9], ["o", "a", 0, 10, [1, 2], 9]]},
        {**right, "dropped": 1},
        {**right, "event_timers": [[0, 10, 9]]},
    ):
        assert CHECKER.normal(script, wrong) != CHECKER.normal(script, right)
