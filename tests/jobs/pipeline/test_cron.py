"""Schedules: what is refused when the file is read, compared with what Airflow's own cron library makes of it."""

import random
from datetime import UTC, datetime

import pytest
from croniter import croniter
from croniter.croniter import CroniterBadDateError

from jobs.pipeline.models.cron import MAX_LENGTH, check_cron
from tests.support.fuzzing import seeds

FIELDS = (
    ("0", "*", "*/5"),
    ("6", "*"),
    ("*", "29", "30", "31", "30,31", "29-31", "28/2", "*/31", "1"),
    ("*", "2", "feb", "2,4", "4,jun,9-11", "2-3", "*/2", "12"),
    ("*", "*", "*", "1", "sat", "*/2", "1-5"),
)


@pytest.mark.parametrize(
    "never", ["0 0 30 2 *", "0 0 31 4,6,9,nov *", "0 0 30-31 feb *", "5 4 31 2-2 *", "0 0 30/1 2 *"]
)
def test_a_schedule_that_never_runs_is_refused(never: str) -> None:
    with pytest.raises(ValueError, match="never runs"):
        check_cron(never)


def test_a_schedule_is_accepted_if_and_only_if_it_runs_some_day() -> None:
    for seed in seeds(300):
        rng = random.Random(seed)
        expression = " ".join(rng.choice(texts) for texts in FIELDS)
        try:
            croniter(expression, datetime(2023, 1, 1, tzinfo=UTC), max_years_between_matches=9).get_next(datetime)
        except CroniterBadDateError:
            with pytest.raises(ValueError, match="never runs"):
                check_cron(expression)
        else:
            assert check_cron(expression) == expression


def test_a_schedule_is_no_novel() -> None:
    with pytest.raises(ValueError, match="at most 100 letters"):
        check_cron("0 " + ",".join(["6"] * MAX_LENGTH) + " * * *")
