"""Hashes of keys where Java's types end: 32-bit integers, NaN, and instants without a time zone."""

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest

from windowlib.keyed.key_groups import microseconds, stable_hash


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (2**31 - 1, 2**31 - 1),
        (-(2**31), -(2**31)),
        (2**31, -(2**31)),
        (-(2**31) - 1, -(2**31)),
        (2**32, 1),
        (-(2**32), -1),
        (math.nan, 0x7FF8_0000),
    ],
)
def test_numbers_hash_as_int_long_and_double_do_in_java(key: float, code: int) -> None:
    assert stable_hash(key) == code


def test_an_instant_without_a_zone_is_in_utc() -> None:
    assert microseconds(datetime(1970, 1, 1)) == 0  # noqa: DTZ001 - the instant without a zone is the case
    assert microseconds(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert microseconds(datetime(1970, 1, 1, 6, tzinfo=timezone(timedelta(hours=5)))) == 3_600_000_000
