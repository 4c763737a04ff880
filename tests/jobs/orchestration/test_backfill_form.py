"""The form of a backfill by hand: what it means, and that each refusal has an input that is accepted."""

import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.orchestration.backfill_form import FormError, ReplayableRange, read_form
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound, slice_grid, slice_of_id
from tests.support.fake_replay import PIPELINE, sales
from tests.support.fuzzing import seeds

NOW = datetime(2024, 1, 20, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
GOOD: dict[str, Any] = {
    "from": "2024-01-02",
    "to": "2024-01-05",
    "reason": "late files",
    "publish": True,
    "fresh": False,
}


def bounded(first: str = "2024-01-02", last: str = "2024-01-10", every: str = "1d") -> Pipeline:
    return sales(
        PIPELINE.replace("slice: {by: day}", f"slice: {{by: day, every: {every}, first: {first}, last: {last}}}")
    )


def replayable(pipeline: Pipeline, gap: str | None = "2024-01-04") -> ReplayableRange:
    first, last = slice_of_id(pipeline, "2024-01-02"), slice_of_id(pipeline, "2024-01-10")
    return ReplayableRange(first=first, last=last, gap=None if gap is None else slice_of_id(pipeline, gap))


def read(pipeline: Pipeline, given: dict[str, Any], *, gap: str | None = "2024-01-04") -> tuple[str, str]:
    form = read_form(pipeline, given, now_ms=NOW_MS, replayable=lambda: replayable(pipeline, gap))
    days = [datetime.fromtimestamp(ms / 1000, tz=UTC).date().isoformat() for ms in (form.from_ms, form.to_ms)]
    return days[0], days[1]


def test_a_good_form_is_read_as_it_is() -> None:
    form = read_form(bounded(), GOOD | {"reason": " why "}, now_ms=NOW_MS, replayable=lambda: None)
    assert (form.reason, form.publish, form.is_fresh) == ("why", True, False)
    assert read(bounded(), GOOD) == ("2024-01-02", "2024-01-05")


def test_empty_bounds_mean_the_first_gap_up_to_the_last_complete_slice() -> None:
    assert read(bounded(), {"reason": "x"}) == ("2024-01-04", "2024-01-11")
    assert read(bounded(), {"reason": "x", "from": None, "to": "2024-01-06"}) == ("2024-01-04", "2024-01-06")
    assert read(bounded(), {"reason": "x", "from": "2024-01-03", "to": ""}) == ("2024-01-03", "2024-01-11")
    with pytest.raises(FormError, match="readers see every slice up to 2024-01-10"):
        read(bounded(), {"reason": "x"}, gap=None)
    with pytest.raises(FormError, match="no complete slice"):
        read_form(bounded(), {"reason": "x"}, now_ms=NOW_MS, replayable=lambda: None)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "reversed": ({"from": "2024-01-05", "to": "2024-01-02"}, "To 2024-01-02 is before From 2024-01-05"),
    "empty": ({"from": "2024-01-05", "to": "2024-01-05"}, "From and To are both 2024-01-05"),
    "future": ({"from": "2024-01-05", "to": "2026-01-05"}, "To 2026-01-05 is after the end of the last slice"),
    "too early": ({"from": "2023-01-01", "to": "2024-01-05"}, "From 2023-01-01 is before the first slice, 2024-01-02"),
    "inside a slice": ({"from": "2024-01-02T05:00"}, "is inside slice 2024-01-02, not at one of its ends"),
    "no date": ({"from": "4 February"}, "From: '4 February' is not a date or time"),
    "no text": ({"to": 20240105}, "To is 20240105. It must be a date or a time"),
    "no reason": ({"reason": " \n"}, "Reason is empty"),
    "a long reason": ({"reason": "x" * 501}, "Reason has 501 characters. At most 500"),
    "unknown": ({"form": "2024-01-02"}, "The form has no field 'form'. Did you mean 'from'?"),
    "no flag": ({"publish": "yes"}, "Publish is 'yes'. Allowed are true and false"),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_wrong_field_is_named(case: str) -> None:
    wrong, complaint = WRONG[case]
    with pytest.raises(FormError) as caught:
        read(bounded(), GOOD | wrong)
    assert complaint in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_slice_that_is_not_over_is_refused_with_the_last_one_that_is() -> None:
    open_ended = sales(PIPELINE)
    with pytest.raises(FormError, match="Slice 2024-01-20 is not over before 2024-01-21") as caught:
        read(open_ended, GOOD | {"to": "2024-01-21"})
    assert "Right would be From 2024-01-02, To 2024-01-20." in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(FormError) as caught:
        read(bounded(), {"from": "2024-01-05", "to": "2024-01-02", "reason": "", "fresh": 1, "more": True})
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize("every", ["1d", "6h"])
def test_the_range_that_a_refusal_proposes_is_accepted(every: str) -> None:
    """For random ranges: either the form accepts the range as it is, or the proposed one."""
    pipeline = bounded(every=every)
    grid = slice_grid(pipeline)
    proposed = 0
    refused_without: list[str] = []
    for seed in seeds(300):
        rng = random.Random(seed)
        bounds = [
            (NOW - timedelta(days=20) + timedelta(hours=rng.choice([1, 6, 24]) * rng.randrange(-40, 60))).isoformat()
            for _ in range(2)
        ]
        given = GOOD | dict(zip(("from", "to"), bounds, strict=True))
        try:
            form = read_form(pipeline, given, now_ms=NOW_MS, replayable=lambda: None)
        except FormError as error:
            right = re.search(r"Right would be From (\S+), To (\S+)\.$", str(error))
            if right is None:
                refused_without.append(str(error))
                continue
            proposed += 1
            given |= {"from": right[1], "to": right[2]}
            form = read_form(pipeline, given, now_ms=NOW_MS, replayable=lambda: None)
        assert form.from_ms < form.to_ms <= NOW_MS
        assert grid.first_ms is not None
        assert grid.first_ms <= form.from_ms
        assert form.from_ms == parse_bound(pipeline, given["from"]), f"seed {seed}"
    assert proposed > 50
    assert all(re.search(r"The earliest From is \S+\. The latest To is \S+\.$", one) for one in refused_without)
