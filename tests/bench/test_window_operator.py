"""The benchmark runs and refuses wrong results. These tests measure no speed; `make bench` does."""

import json

import pytest

from bench import window_operator as bench


@pytest.mark.slow
def test_every_case_is_measured_and_its_panes_are_right() -> None:
    figures = bench.measure(count=3_000, timers=2_000, rounds=2)
    assert [figure.name for figure in figures] == [*(case.name for case in bench.CASES), "timers"]
    assert all(len(figure.rates) == 2 and figure.best > 0 for figure in figures)
    assert {figure.name: figure.target for figure in figures if figure.target} == {
        "tumbling, 100 keys": 0.8,
        "tumbling, 10,000 keys": 0.35,
        "timers": 0.25,
    }
    assert bench.table(figures).count("\n") == len(figures) + 1
    assert len(json.loads(bench.as_json(figures))["figures"]) == len(figures)


def test_a_wrong_pane_is_refused() -> None:
    case = bench.CASES[0]
    _, panes = bench.replay(case, 2_000)
    place = next(iter(panes))
    panes[place] = [(count, total + 1.0) for count, total in panes[place]]
    with pytest.raises(AssertionError, match="expected"):
        bench.check(case, panes, 2_000)


def test_the_verdict_compares_the_best_rate_with_the_target() -> None:
    figure = bench.Figure(name="x", rates=(0.2, 0.6), yardstick=2.0, target=0.5)
    assert figure.verdict == "met (1.20 of 0.5)"
    assert bench.Figure(name="x", rates=(0.2, 0.4), yardstick=2.0, target=0.5).verdict == "MISSED (0.80 of 0.5)"
