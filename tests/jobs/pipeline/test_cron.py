"""Schedules: what is refused when the file is read, compared with croniter, Airflow's cron library, and with old rules.

The reference is the parser that Hindcast had before it used croniter. A file that it refused stays refused.
"""

import random
import re
from datetime import UTC, datetime

import pytest
from croniter import croniter
from croniter.croniter import CroniterBadDateError

from jobs.pipeline.models.cron import MAX_LENGTH, check_cron
from tests.support.fuzzing import chances, seeds

FIELDS = (
    ("0", "*", "*/5"),
    ("6", "*"),
    ("*", "29", "30", "31", "30,31", "29-31", "28/2", "*/31", "1"),
    ("*", "2", "feb", "2,4", "4,jun,9-11", "2-3", "*/2", "12"),
    ("*", "*", "*", "1", "sat", "*/2", "1-5"),
)


@pytest.mark.parametrize("never", ["0 0 30 2 *", "0 0 31 4,6,9,nov *", "0 0 30-31 feb *", "0 0 30/1 2 *"])
def test_a_schedule_that_never_runs_is_refused(never: str) -> None:
    with pytest.raises(ValueError, match="never runs"):
        check_cron(never)


def test_a_schedule_is_accepted_if_and_only_if_it_runs_some_day() -> None:
    for rng in chances(300):
        expression = " ".join(rng.choice(texts) for texts in FIELDS)
        try:
            croniter(expression, datetime(2023, 1, 1, tzinfo=UTC), max_years_between_matches=9).get_next(datetime)
        except CroniterBadDateError:
            with pytest.raises(ValueError, match="never runs"):
                check_cron(expression)
        else:
            assert check_cron(expression) == expression


def test_a_schedule_has_at_most_100_letters() -> None:
    with pytest.raises(ValueError, match="at most 100 letters"):
        check_cron("0 " + ",".join(["6"] * MAX_LENGTH) + " * * *")


@pytest.mark.parametrize(
    ("refused", "field"),
    [
        ("60 6 * * *", "minute '60'"),
        ("0 24 * * *", "hour '24'"),
        ("0 22-2 * * *", "hour '22-2'"),
        ("0 6-6 * * *", "hour '6-6'"),
        ("*/99 6 * * *", r"minute '\*/99'"),
        ("0 6 L * *", "day of month 'L'"),
        ("0 6 ? * *", r"day of month '\?'"),
        ("0 6 15w * *", "day of month '15w'"),
        ("0 6 * 13 *", "month '13'"),
        ("0 6 * mon *", "month 'mon'"),
        ("0 6 * * 1#2", "day of week '1#2'"),
        ("0 6 * * 8", "day of week '8'"),
        ("H 6 * * *", "minute 'H'"),
        ("5 4 31 2-2 *", "month '2-2'"),
    ],
)
def test_the_field_that_is_wrong_is_named(refused: str, field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} of .*: allowed are "):
        check_cron(refused)


@pytest.mark.parametrize("accepted", ["0 6 31,* 2 *", "0 6 31 2,* *", "0 0 30 2 1", "0 6 * * 5-7", "59/15 * * JAN sun"])
def test_a_schedule_that_runs_on_some_day_is_accepted(accepted: str) -> None:
    assert check_cron(accepted) == accepted


@pytest.mark.parametrize("refused", ["@daily", "0 6 * *", "0 6 * * * *", "0\u00a06 * * *", ""])
def test_a_schedule_has_five_fields(refused: str) -> None:
    with pytest.raises(ValueError, match="a schedule has five"):
        check_cron(refused)


def test_what_the_old_rules_refused_is_refused_and_what_they_accepted_is_accepted() -> None:
    answers = set()
    for seed in seeds(2_000):
        expression = _random_expression(random.Random(seed))
        is_accepted = _is_accepted(expression)
        # croniter reads 6-6 as every hour, so such a range is refused now; the old rules read it as 6.
        has_equal_range = any(
            _old_number(first, place) == _old_number(last, place)
            for place, text in enumerate(expression.lower().split())
            for first, last in re.findall(r"\b(\w+)-(\w+)\b", text)
        )
        answers.add((is_accepted, has_equal_range))
        assert is_accepted == (_old_rules_accept(expression) and not has_equal_range), expression
    assert answers >= {(True, False), (False, False), (False, True)}


def _random_expression(rng: random.Random) -> str:
    """Five fields, most of them good, one or two at random out of all that cron programs have for syntax."""
    fields = [rng.choice(texts) for texts in FIELDS]
    for place in rng.sample(range(5), k=rng.randint(1, 2)):
        fields[place] = ",".join(_random_part(rng) for _ in range(rng.choice([1, 1, 1, 2, 3])))
    return " ".join(fields)


def _random_part(rng: random.Random) -> str:
    values = [*map(str, range(32)), *map(str, range(0, 100, 7)), "jan", "feb", "DEC", "sun", "MON", "sat", "7", "007"]
    first, last = rng.choice(values), rng.choice(values)
    shapes = ["*", first, f"{first}-{last}", "?", "L", "l5", f"{first}#2", f"{first}w", "h", "-", "", f"{first}-", "**"]
    shape = rng.choices(shapes, weights=[6, 12, 12, *[1] * (len(shapes) - 3)])[0]
    return shape + rng.choice(["", "", "", f"/{rng.choice(values)}", "/0", "/"])


def _is_accepted(expression: str) -> bool:
    try:
        return check_cron(expression) == expression
    except ValueError:
        return False


_LOWEST = (0, 0, 1, 1, 0)
_HIGHEST = (59, 23, 31, 12, 7)
_NAMES: tuple[list[str], ...] = (
    [],
    [],
    [],
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
)
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_OLD_PART = re.compile(r"(?:(\*)|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?", re.ASCII)


def _old_rules_accept(expression: str) -> bool:
    texts = expression.lower().split()
    values = [_old_values(text, place) for place, text in enumerate(texts)]
    if len(texts) != len(_LOWEST) or any(found is None for found in values):
        return False
    days, months = values[2] or [], values[3] or []
    return texts[4] != "*" or min(days) <= max(_LONGEST[month - 1] for month in months)


def _old_values(text: str, place: int) -> list[int] | None:
    """All numbers that a field means; None if a part of it is not valid."""
    found: list[int] = []
    for part in text.split(","):
        match = _OLD_PART.fullmatch(part)
        if match is None:
            return None
        star, first, last, step = match.groups()
        bounds = [_old_number(one, place) for one in (first, last) if one is not None]
        if any(not _LOWEST[place] <= one <= _HIGHEST[place] for one in bounds) or bounds != sorted(bounds):
            return None
        if step is not None and not 1 <= int(step) <= _HIGHEST[place]:
            return None
        start = _LOWEST[place] if star else bounds[0]
        end = _HIGHEST[place] if star or (step and last is None) else bounds[-1]
        found += range(start, end + 1, int(step or 1))
    return found


def _old_number(text: str, place: int) -> int:
    if text.isdigit():
        return int(text)
    return _NAMES[place].index(text) + _LOWEST[place] if text in _NAMES[place] else -1
