"""Slices are contiguous and ordered, and their ids are their starts, in every time zone."""

import contextlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, strategies as st

from jobs.pipeline.models.log import FIRST_DAY, LAST_DAY
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import (
    SliceGrid,
    check_range,
    local_ms,
    next_slice,
    parse_bound,
    past_end,
    previous_slice,
    show_instant,
    slice_at,
    slice_grid,
    slice_of_id,
    slices_between,
    slices_ending_in,
)
from tests.support.fake_replay import PIPELINE, day_ms, sales
from windowlib.errors import RangeError, RequestError

if TYPE_CHECKING:
    from jobs.runs import Slice

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "America/Havana",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Cairo",
]
HOUR = 3_600_000


def cut(grammar: str) -> Pipeline:
    return sales(PIPELINE.replace("slice: {by: day}", f"slice: {{by: day, {grammar}}}"))


def grid(zone: str) -> SliceGrid:
    return SliceGrid(every_ms=24 * HOUR, zone=ZoneInfo(zone), first_ms=None, last_ms=None)


@pytest.mark.slow
def test_the_first_and_the_last_days_have_slices_in_every_zone() -> None:
    for zone in sorted(available_timezones()):
        _check_the_ends(zone, "1d")
    _check_the_ends("UTC", "1h")
    _check_the_ends("UTC", "1m")


def _check_the_ends(zone: str, every: str) -> None:
    pipeline = cut(f"every: {every}, timezone: {zone}, first: {FIRST_DAY}, last: {LAST_DAY}")
    cuts = slice_grid(pipeline)
    assert cuts.first_ms is not None
    assert cuts.last_ms is not None
    first, last = slice_at(cuts, cuts.first_ms), slice_at(cuts, cuts.last_ms)
    assert (first.slice_id[:10], last.slice_id[:10]) == ("0001-01-04", "9999-12-28")
    assert previous_slice(cuts, first) is None
    assert next_slice(cuts, last) is None
    without = replace(cuts, first_ms=None, last_ms=None)
    for begin, step in ((first, previous_slice), (last, next_slice)):
        one: Slice | None = begin
        for _ in range(5 * 24 * 60):
            one = step(without, one) if one else None
        assert one is None, "the grid ends without an error"


@given(st.one_of(st.dates().map(str), st.datetimes().map(str), st.integers(-(10**20), 10**20)), st.sampled_from(ZONES))
@example("0001-01-01", "UTC")
@example("9999-12-31T23:59:59.999999", "Pacific/Apia")
def test_any_date_is_a_bound_or_a_range_error(at: str | int, zone: str) -> None:
    pipeline = cut(f"timezone: {zone}")
    for use in (
        lambda ms: slice_at(slice_grid(pipeline), ms),
        lambda ms: check_range(pipeline, ms, ms + 1, now_ms=0),
        lambda ms: check_range(pipeline, 0, ms, now_ms=0),
        lambda ms: check_range(pipeline, ms, 0, now_ms=0),
        lambda ms: slices_between(pipeline, ms, ms + 24 * HOUR),
    ):
        with contextlib.suppress(RequestError):
            use(at if isinstance(at, int) else parse_bound(pipeline, at))
    with contextlib.suppress(RangeError):
        slice_of_id(pipeline, str(at))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_range_of_too_many_slices_is_refused_before_slices_are_computed(most: int) -> None:
    now_ms, day = day_ms("2024-02-01"), 24 * HOUR
    start = day_ms("2024-01-01")
    assert len(check_range(cut("every: 1d"), start, start + most * day, now_ms=now_ms, most=most)) == most
    with pytest.raises(RangeError, match=f"has {most + 1} slices of 1d; one request may have at most {most}"):
        check_range(cut("every: 1d"), start, start + (most + 1) * day, now_ms=now_ms, most=most)
    with pytest.raises(RangeError, match="at most 200,000"):
        check_range(cut("every: 1m"), day_ms("1000-01-01"), start, now_ms=now_ms)


@given(st.sampled_from(ZONES), st.integers(-30_000_000_000_000, 30_000_000_000_000))
def test_days_are_contiguous_and_their_ids_sort(zone: str, at_ms: int) -> None:
    one = slice_at(grid(zone), at_ms)
    assert one.start_ms <= at_ms < one.end_ms
    after = next_slice(grid(zone), one)
    assert after is not None
    assert after.start_ms == one.end_ms
    assert after.slice_id > one.slice_id
    assert previous_slice(grid(zone), after) == one
    local = datetime.fromtimestamp(one.start_ms / 1000, tz=UTC).astimezone(ZoneInfo(zone))
    assert local.date().isoformat() == one.slice_id


@given(st.datetimes())
def test_a_time_in_utc_is_the_instant_of_the_zone_by_its_other_name(at: datetime) -> None:
    """Times in the zone UTC are converted without the zone."""
    instant_ms = local_ms(at, ZoneInfo("UTC"))
    assert instant_ms == local_ms(at, ZoneInfo("Etc/UTC")) == local_ms(at.replace(tzinfo=UTC), ZoneInfo(ZONES[1]))


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2013-03-31", 23),
        ("Europe/Berlin", "2013-10-27", 25),
        ("America/Sao_Paulo", "2018-11-04", 23),  # clocks jump over midnight
        ("America/Havana", "2013-11-03", 25),  # midnight occurs twice
        ("UTC", "2013-03-31", 24),
    ],
)
def test_a_day_on_which_clocks_change_has_23_or_25_hours(zone: str, day: str, hours: int) -> None:
    pipeline = cut(f"timezone: {zone}")
    one = slice_of_id(pipeline, day)
    assert (one.slice_id, (one.end_ms - one.start_ms) / HOUR) == (day, hours)


def test_a_date_that_a_zone_skipped_has_no_slice() -> None:
    days = slices_between(
        cut("timezone: Pacific/Apia"),
        *(parse_bound(cut("timezone: Pacific/Apia"), day) for day in ("2011-12-28", "2012-01-02")),
    )
    assert [one.slice_id for one in days] == ["2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01"]


@pytest.mark.parametrize(
    ("every", "ids"),
    [("1h", ["2013-02-08T05", "2013-02-08T06"]), ("15m", ["2013-02-08T05:00", "2013-02-08T05:15", "2013-02-08T05:30"])],
)
def test_ids_are_as_short_as_the_period_allows(every: str, ids: list[str]) -> None:
    pipeline = cut(f"every: {every}")
    start = parse_bound(pipeline, "2013-02-08T05")
    first = slice_of_id(pipeline, ids[0])
    found = slices_between(pipeline, start, start + len(ids) * (first.end_ms - first.start_ms))
    assert [one.slice_id for one in found] == ids
    assert [slice_of_id(pipeline, one.slice_id) for one in found] == list(found)


def test_a_range_is_clipped_to_first_and_last_and_last_is_included() -> None:
    pipeline = cut("first: 2024-01-02, last: 2024-01-04")
    found = slices_between(pipeline, day_ms("2024-01-01"), day_ms("2024-02-01"))
    assert [one.slice_id for one in found] == ["2024-01-02", "2024-01-03", "2024-01-04"]
    assert len(check_range(pipeline, day_ms("2024-01-02"), day_ms("2024-01-05"), now_ms=day_ms("2024-02-01"))) == 3


@pytest.mark.parametrize(
    ("start", "end", "error", "message"),
    [
        ("2024-01-03", "2024-01-03", RangeError, "[2024-01-03, 2024-01-03) is empty"),
        ("2024-01-04", "2024-01-03", RangeError, "is reversed"),
        (
            "2024-01-03T01:00",
            "2024-01-04",
            RangeError,
            "`from` 2024-01-03T01:00:00+00:00 is inside the slice [2024-01-03, 2024-01-04)",
        ),
        ("2024-01-03", "2024-01-03T23:59", RangeError, "`to`"),
        ("2024-01-01", "2024-01-03", RequestError, "is not inside [2024-01-02, 2024-01-21)"),
        ("2024-01-03", "2024-01-22", RequestError, "the last slice is included"),
        ("2024-01-09", "2024-01-12", RequestError, "is not over yet: the time is 2024-01-11 05:00:00 UTC"),
    ],
)
def test_the_error_of_a_refused_range_explains_half_open(
    start: str, end: str, error: type[Exception], message: str
) -> None:
    pipeline = cut("first: 2024-01-02, last: 2024-01-20")
    with pytest.raises(error, match=re.escape(message)) as caught:
        check_range(
            pipeline, parse_bound(pipeline, start), parse_bound(pipeline, end), now_ms=day_ms("2024-01-11") + 5 * HOUR
        )
    assert "half-open" in str(caught.value)


def test_a_range_after_a_first_slice_of_the_future_gets_no_advice_that_is_refused() -> None:
    pipeline = cut("first: 2024-02-01")
    with pytest.raises(RequestError, match=r"; no slice from `log.slice.first` on is over$"):
        check_range(pipeline, day_ms("2024-02-01"), day_ms("2024-02-03"), now_ms=day_ms("2024-01-11"))


def test_a_bound_is_an_iso_date_or_time() -> None:
    pipeline = cut("timezone: Europe/Berlin")
    assert parse_bound(pipeline, "2013-02-08") == day_ms("2013-02-08") - HOUR
    assert parse_bound(pipeline, "2013-02-08T00:00Z") == day_ms("2013-02-08")
    for text in ("8.2.2013", "", "2013-02-30", "99999-01-01"):
        with pytest.raises(RangeError, match="is not a date or time"):
            parse_bound(pipeline, text)


def test_an_airflow_interval_covers_the_slices_that_end_in_it() -> None:
    hourly = cut("every: 6h")
    found = slices_ending_in(hourly, day_ms("2024-01-02"), day_ms("2024-01-03"))
    assert [one.slice_id for one in found] == ["2024-01-02T00", "2024-01-02T06", "2024-01-02T12", "2024-01-02T18"]
    assert slices_ending_in(hourly, day_ms("2024-01-02"), day_ms("2024-01-02")) == ()
    odd = slices_ending_in(cut("every: 1d"), day_ms("2024-01-02") + 6 * HOUR, day_ms("2024-01-03") + 6 * HOUR)
    assert [one.slice_id for one in odd] == ["2024-01-02"]


@given(st.lists(st.integers(0, 40 * 24), min_size=2, max_size=8, unique=True))
def test_adjacent_intervals_cover_every_slice_once(hours: list[int]) -> None:
    edges = sorted(hours)
    start = day_ms("2024-01-01")
    pieces = [slices_ending_in(sales(), start + a * HOUR, start + b * HOUR) for a, b in pairwise(edges)]
    assert [one for piece in pieces for one in piece] == list(
        slices_ending_in(sales(), start + edges[0] * HOUR, start + edges[-1] * HOUR)
    )


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01 00:00:00 UTC"),
        (-1, "1969-12-31 23:59:59.999 UTC"),
        (-62_135_596_800_000, "0001-01-01 00:00:00 UTC"),
    ],
)
def test_an_instant_is_shown_in_utc(at_ms: int, text: str) -> None:
    assert show_instant(at_ms) == text


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("every", ["1d", "1h"])
def test_the_years_1_and_9999_have_slices_and_no_slice_is_outside(zone: str, every: str) -> None:
    if every == "1h" and zone != "UTC":
        return
    pipeline = cut(f"every: {every}, timezone: {zone}")
    first, last = slice_of_id(pipeline, "0001-01-01"), slice_of_id(pipeline, "9999-12-31")
    assert first.slice_id.startswith("0001-01-01")
    assert last.slice_id.startswith("9999-12-31")
    shape = slice_grid(pipeline)
    assert previous_slice(shape, first) is None
    after = next_slice(shape, first)
    assert after is not None
    assert previous_slice(shape, after) == first
    if every == "1d":
        assert next_slice(shape, last) is None
    assert slice_at(shape, last.end_ms - 1) == last
    assert slices_between(pipeline, first.start_ms, after.end_ms) == (first, after)
    assert slices_ending_in(pipeline, last.start_ms, last.end_ms) == (last,)


@pytest.mark.parametrize("at_ms", [-(2**63), -62_140_000_000_000, 253_500_000_000_000, 2**63 - 1])
def test_an_instant_outside_the_years_1_to_9999_is_a_range_error(at_ms: int) -> None:
    with pytest.raises(RangeError, match="slices are in the years 1 to 9999"):
        slice_at(grid("Europe/Berlin"), at_ms)
    assert "outside the years 1 to 9999" in show_instant(at_ms)


@pytest.mark.parametrize(("first", "last"), [("0001-01-04", "9999-12-28"), ("9999-12-28", "9999-12-28")])
def test_first_and_last_of_a_pipeline_may_be_the_first_and_last_allowed_day(first: str, last: str) -> None:
    pipeline = cut(f'first: "{first}", last: "{last}", timezone: Asia/Kathmandu')
    one = slice_of_id(pipeline, "9999-12-28")
    with pytest.raises(RequestError, match="is not over yet"):
        check_range(pipeline, one.start_ms, one.end_ms, now_ms=day_ms("2024-01-01"))


def test_the_end_of_a_log_has_passed_when_its_last_slice_is_over() -> None:
    bounded = PIPELINE.replace("slice: {by: day}", "slice: {by: day, last: 2024-01-05}")
    assert past_end(sales(bounded), day_ms("2024-01-06") - 1) is None
    told = past_end(sales(bounded), day_ms("2024-01-06"))
    assert told is not None
    assert told == (
        "Its log ends with 2024-01-05 (log.slice.last), so the schedule replays no later slice. It starts runs until "
        "2024-04-05, for slices that are late or held"
    )
    told = past_end(sales(bounded), day_ms("2024-04-05") + 1)
    assert told is not None
    assert told.endswith("It starts no run after 2024-04-05: use backfills, of Airflow or by backfill_sales")
    by_asset = sales(bounded.replace('"0 6 * * *"', '{asset: "s3://a/b"}'))
    assert (past_end(by_asset, day_ms("2024-04-06")) or "").endswith("so the schedule replays no later slice")
    assert past_end(sales(bounded.replace('schedule: "0 6 * * *"', "")), day_ms("2024-01-06")) is None
    assert past_end(sales(), day_ms("2024-01-06")) is None
