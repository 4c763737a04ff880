"""Each record of a hostile log is accounted for, or the log is refused in clear words. No two ways differ."""

from pathlib import Path

import pytest

from tests.support.fuzzing import seeds
from tests.zoo.hostile.logs import draw
from tests.zoo.hostile.playing import play

AMONG_SLOW = 40


def played(seed: int, root: Path) -> str:
    """Play the log of a seed. Return what became of it."""
    outcome = play(draw(seed), root)
    assert outcome.kind in {"accounted", "refused"}, f"HINDCAST_SEED={seed}: {outcome}"
    return outcome.kind


def test_hostile_logs_are_accounted_for_or_refused(tmp_path: Path) -> None:
    for seed in seeds(2):
        played(seed, tmp_path / str(seed))


@pytest.mark.slow
def test_more_hostile_logs_are_accounted_for_or_refused(tmp_path: Path) -> None:
    kinds = [played(seed, tmp_path / str(seed)) for seed in range(AMONG_SLOW)]
    assert {*kinds} == {"accounted", "refused"}
