"""The matrix without Spark: every pair of choices that the grammar allows, over a log of sensors.

For each pipeline: the tasks of a chunk say what one operator in one process says, cut or not, in any number of buckets;
the audit's equations close; readers see the last panes, every record that was fired, and what SQL says of the log.
"""

import random
from itertools import combinations, islice

import pytest

from tests.matrix.checks import disagreement
from tests.matrix.log import sensor_log
from tests.matrix.one_process import own_hashes
from tests.matrix.pairs import Pairs
from tests.matrix.pipelines import FAMILIES, Case, Matrix, factors
from tests.support.fuzzing import first_seed, seeds

REFUSED = {"storm": {("arrival", "absent"), ("compute", "per-window")}}
"""Storm's windows need the clock, and have no state per window."""
SHOWN = 5
"""Disagreements that a failure prints in full."""


def test_pipelines_by_chance_say_what_one_process_says() -> None:
    for seed in seeds(3, among=20):
        commits = sensor_log(random.Random(seed), records_per_hour=40)
        hashes = own_hashes(commits)
        for family in FAMILIES:
            for case in islice(Matrix(family=family, seed=seed).cases(), 1):
                found = disagreement(case, commits, hashes, random.Random(seed))
                assert found is None, f"{found}\n{case}"


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_pair_of_choices_says_what_one_process_says(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    seed = first_seed()
    commits = sensor_log(random.Random(seed))
    hashes = own_hashes(commits)
    matrix = Matrix(family=family, seed=seed)
    played, differ = 0, list[tuple[Case, str]]()
    for played, case in enumerate(matrix.cases(), start=1):
        found = disagreement(case, commits, hashes, random.Random(f"{seed} {played}"))
        differ += [] if found is None else [(case, found)]
    with capsys.disabled():
        print(f"\n{matrix.summary(played)}")  # noqa: T201 - how much was tried is what the soak test is read for
    texts = [f"{found}\n{case}" for case, found in differ[:SHOWN]]
    assert not differ, f"{len(differ)} of {played} pipelines differ:\n\n" + "\n\n".join(texts)


def test_every_pair_is_covered_or_refused() -> None:
    """A small grammar of our own: two values that never go together, and one that goes with nothing."""
    choices = {"a": ("0", "1", "2"), "b": ("0", "1"), "c": ("0", "1", "2"), "d": ("0", "never")}

    def is_allowed(choice: dict[str, str]) -> bool:
        return (choice["a"], choice["c"]) != ("1", "2") and choice["d"] != "never"

    pairs = Pairs(choices, is_allowed, random.Random(1))  # type: ignore[arg-type]
    found = list(pairs.choices())
    covered = {pair for choice in found for pair in combinations(choice.items(), 2)}
    assert all(is_allowed(dict(choice)) for choice in found)
    assert len(found) < 3 * 2 * 3
    never = ("d", "never")
    assert {pair for pair in pairs.refused if never not in pair} == {(("a", "1"), ("c", "2"))}
    assert len([pair for pair in pairs.refused if never in pair]) == 3 + 2 + 3
    every = {
        ((one, x), (other, y)) for one, other in combinations(choices, 2) for x in choices[one] for y in choices[other]
    }
    assert covered | set(pairs.refused) == every
    assert not covered & set(pairs.refused)


def test_a_seed_makes_one_matrix() -> None:
    def first(seed: int) -> list[str]:
        return [str(case) for case in islice(Matrix(family="windows", seed=seed).cases(), 3)]

    assert first(5) == first(5)
    assert first(5) != first(6)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_choice_is_in_some_pipeline(family: str) -> None:
    """What is refused in every surroundings is no choice, unless it is known to be refused."""
    seen: set[tuple[str, str]] = set()
    every = {(factor, value) for factor, values in factors(family).items() for value in values}
    for case in Matrix(family=family, seed=1).cases():
        seen |= set(case.choice.items())
        if seen == every:
            break
    assert every - seen == REFUSED.get(family, set())
