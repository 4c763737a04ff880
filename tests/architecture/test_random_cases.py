"""A random test that has used up its time plays no further case, and a failing case is shrunk all the same."""

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.support import fuzzing
from tests.support.fuzzing import Budget, TimeOver, seeds

USUAL = 60


def test_a_loop_over_seeds_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "ASKED", 1_000)
    for seconds, expected in ((0.0, 7), (60.0, 1_000)):
        monkeypatch.setattr(fuzzing, "BUDGET", Budget(seconds))
        assert len([*seeds(7)]) == expected
        assert fuzzing.BUDGET.is_cut == (expected == 7)
        assert fuzzing.BUDGET.played == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, USUAL), (60.0, 300)])
def test_a_property_plays_its_usual_cases_and_then_ends_with_its_time(seconds: float, expected: int) -> None:
    played: list[int] = []

    @settings(max_examples=300, derandomize=True, database=None, suppress_health_check=[*HealthCheck])
    @given(st.integers())
    def check(number: int) -> None:
        played.append(number)

    budget = Budget(seconds)
    for _ in range(2):  # a second call changes nothing
        budget.limit(check.hypothesis, usual=USUAL)  # type: ignore[attr-defined]
    if expected == USUAL:
        with pytest.raises(TimeOver):
            check()
    else:
        check()
    assert len(played) == budget.played == expected
    assert budget.is_cut == (expected == USUAL)


@pytest.mark.parametrize("fails", ["pytest.fail", "assert"])
def test_a_failing_case_is_shrunk_when_the_time_is_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """The time is over with the first failing case, and Hypothesis plays others to shrink it."""
    now = [0.0]
    monkeypatch.setattr(fuzzing, "time", SimpleNamespace(monotonic=lambda: now[0]))

    @settings(max_examples=300, derandomize=True, database=None, suppress_health_check=[*HealthCheck])
    @given(st.lists(st.integers()))
    def check(numbers: list[int]) -> None:
        if sum(numbers) >= 1_000:
            now[0] = 100.0
            if fails == "pytest.fail":
                pytest.fail(str(numbers))
            raise AssertionError(numbers)

    Budget(60).limit(check.hypothesis, usual=1)  # type: ignore[attr-defined]
    with pytest.raises((AssertionError, pytest.fail.Exception), match=r"\[1000\]"):
        check()
    assert "Flaky" not in capsys.readouterr().out
