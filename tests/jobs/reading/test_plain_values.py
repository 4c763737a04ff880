"""Instants and bounds as texts: no digit that tells two windows apart is cut."""

from datetime import UTC, datetime

import pytest

from jobs.reading.plain_values import instant_at, shown_instant, shown_interval

DAY_MS = 86_400_000
FAR_MS = 253_402_318_799_500
"""In the year 10000."""


@pytest.mark.parametrize(
    ("at_ms", "shown"),
    [
        (0, "1970-01-01 00:00"),
        (60_000, "1970-01-01 00:01"),
        (10_000, "1970-01-01 00:00:10"),
        (36_600_500, "1970-01-01 10:10:00.5"),
        (-1, "1969-12-31 23:59:59.999"),
        (FAR_MS, "10000-01-01 04:59:59.5"),
        (FAR_MS - 59_500, "10000-01-01 04:59"),
    ],
)
def test_an_instant_has_seconds_and_a_fraction_only_if_they_are_not_0(at_ms: int, shown: str) -> None:
    assert shown_instant(instant_at(at_ms)) == shown


def test_an_instant_of_a_table_is_shown_as_that_of_epoch_ms() -> None:
    assert shown_instant(datetime(2013, 2, 8, 5, tzinfo=UTC)) == "2013-02-08 05:00"
    assert shown_instant(datetime(2013, 2, 8, 5, 0, 0, 250)) == "2013-02-08 05:00:00.00025"  # noqa: DTZ001


def test_the_end_of_an_interval_has_a_date_only_on_another_day() -> None:
    bounds = [instant_at(at_ms) for at_ms in (6 * 3_600_000 + 11_705, 6 * 3_600_000 + 1_811_705, DAY_MS)]
    assert shown_interval(*bounds[:2]) == "[1970-01-01 06:00:11.705, 06:30:11.705)"
    assert shown_interval(*bounds[1:]) == "[1970-01-01 06:30:11.705, 1970-01-02 00:00)"


def test_different_instants_have_different_texts() -> None:
    near = [base + step for base in (-3, DAY_MS, 600_000, FAR_MS) for step in (0, 1, 10, 1_000)]
    assert len({shown_instant(instant_at(at_ms)) for at_ms in near}) == len({*near})
