"""Hostile logs in Spark's tasks have the rows of this process. Some forms of a log only Spark reads."""

from pathlib import Path

import pytest

from tests.support.spark_session import SparkSession
from tests.zoo.hostile.logs import IN_SPARK, draw
from tests.zoo.hostile.playing import play_in_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    "form", [None, IN_SPARK[0], *(pytest.param(form, marks=pytest.mark.soak) for form in IN_SPARK[1:])]
)
def test_hostile_logs_in_spark_are_accounted_for_or_refused(
    spark: SparkSession, tmp_path: Path, form: str | None
) -> None:
    for seed in (5, 9):
        outcome = play_in_spark(draw(seed, form=form), tmp_path / str(seed), spark)
        assert outcome.kind in {"accounted", "refused"}, f"seed {seed}: {outcome}"
