"""Readiness of slices: laws over random logs, conditions and clocks, and the median of the weekdays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings, strategies as st

from jobs.pipeline.models.ready import ReadyGrammar
from jobs.pipeline.slices import SliceGrid, slice_at
from jobs.planning.log_state import LogState
from jobs.planning.readiness import AssetEvent, Evidence, NamedSlices, Waiting, first_not_ready, missing_of
from jobs.runs import LogCoordinates, Slice
from tests.support.fuzzing import cases

HOUR = 3_600_000
DAY = 24 * HOUR
DAYS = 12
SLICES = tuple(
    Slice(slice_id=f"2024-01-{day:02d}", start_ms=(day - 1) * DAY, end_ms=day * DAY) for day in range(1, DAYS + 1)
)


DAILY = SliceGrid(every_ms=DAY, zone=ZoneInfo("UTC"), first_ms=None, last_ms=None)


@dataclass(frozen=True, kw_only=True)
class World:
    """What a pipeline meets: the records of each day, when the newest commit was made, markers, events, the time."""

    records: Mapping[int, int]
    newest_ms: int | None
    now_ms: int
    marked: frozenset[int] = frozenset()
    events: Sequence[AssetEvent] = ()
    before: Mapping[int, int] = field(default_factory=dict)

    def evidence(self) -> Evidence:
        filled = sorted(day for day, records in self.records.items() if records)
        log = LogState(
            version=1,
            coordinates={
                one.slice_id: LogCoordinates(
                    table_id="t", version=1, commits=(), files=1, records=self.records.get(day, 0), bytes=0
                )
                for day, one in enumerate(SLICES)
            },
            first_data=SLICES[filled[0]] if filled else None,
            last_data=SLICES[filled[-1]] if filled else None,
            data_ms=tuple(SLICES[day].start_ms for day in filled),
            newest_data_ms=self.newest_ms,
        )

        def weekday(one: Slice, weeks: int) -> Slice | None:
            start_ms = one.start_ms - 7 * weeks * DAY
            return Slice(slice_id=str(start_ms // DAY), start_ms=start_ms, end_ms=start_ms + DAY)

        return Evidence(
            now_ms=self.now_ms,
            log=log,
            records_of=lambda one: self.before.get(one.start_ms // DAY),
            marker=lambda text, one: (text, SLICES.index(one) in self.marked),
            weekday=weekday,
            events=NamedSlices.of(self.events, DAILY),
        )


def ready(document: Mapping[str, Any] | None) -> ReadyGrammar | None:
    return None if document is None else ReadyGrammar.model_validate(document)


CLOCK = st.fixed_dictionaries({"after": st.sampled_from(["0s", "1h", "2d", "30d"])})
LEAVES = st.one_of(
    CLOCK,
    st.just({"newer_commit": True}),
    st.fixed_dictionaries({"min_records": st.sampled_from([1, 5, 100])}),
    st.just({"min_records": {"share": 0.5, "weeks": 2}}),
    st.just({"marker": "done/{slice_id}"}),
    st.just({"producer": "s3://events"}),
)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.builds(
            lambda kind, parts: {kind: parts}, st.sampled_from(["all", "any"]), st.lists(inner, min_size=1, max_size=3)
        ),
        max_leaves=5,
    )


TIMEOUTS: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"timeout": st.sampled_from(["1h", "3d"]), "then": st.sampled_from(["wait", "hold"])}),
)
CONDITIONS = st.one_of(st.none(), st.builds(lambda tree, timeout: {**tree, **timeout}, trees(LEAVES), TIMEOUTS))
RECORDS = st.dictionaries(st.integers(0, DAYS - 1), st.sampled_from([0, 1, 7, 200]), max_size=DAYS)
TIMES = st.integers(0, 40 * DAY)
EVENTS = st.lists(
    st.builds(
        AssetEvent,
        uri=st.sampled_from(["s3://events", "s3://others"]),
        at_ms=TIMES,
        key=st.sampled_from([None, *(one.slice_id for one in SLICES), "2024-01-03..2024-01-06", "x"]),
    ),
    max_size=3,
)
WORLDS = st.builds(
    World,
    records=RECORDS,
    newest_ms=st.one_of(st.none(), TIMES),
    now_ms=TIMES,
    marked=st.frozensets(st.integers(0, DAYS - 1)),
    events=EVENTS,
)


def complete(document: Mapping[str, Any] | None, world: World) -> set[int]:
    evidence, condition = world.evidence(), ready(document)
    return {day for day, one in enumerate(SLICES) if missing_of(condition, one, evidence) is None}


@settings(max_examples=cases(100))
@given(CONDITIONS, WORLDS)
def test_the_prefix_is_all_complete_slices_before_the_first_incomplete_one(
    document: Mapping[str, Any] | None, world: World
) -> None:
    found = first_not_ready(ready(document), SLICES, world.evidence())
    assert found.slices == SLICES[: len(found.slices)]
    assert set(range(len(found.slices))) <= complete(document, world)
    if found.waiting is None:
        assert len(found.slices) == DAYS
    else:
        assert found.waiting.slice == SLICES[len(found.slices)]
        assert len(found.slices) not in complete(document, world)
        assert found.waiting.next_ms is None or found.waiting.next_ms > world.now_ms
        assert found.waiting.line(world.now_ms).startswith(f"waits for {found.waiting.slice.slice_id} since ")


@settings(max_examples=cases(100))
@given(CONDITIONS, WORLDS, st.integers(0, 4_000))
def test_the_clock_and_commits_never_complete_an_empty_slice_after_the_last_record(
    document: Mapping[str, Any] | None, world: World, days: int
) -> None:
    """The first complaint of the issue. Only a marker or a producer that names the slice may say that it is empty."""
    named = set(world.marked) | {
        day
        for day, one in enumerate(SLICES)
        for event in world.events
        if event.key is not None and event.key.split("..")[0] <= one.slice_id <= event.key.split("..")[-1]
    }
    later = World(
        records=world.records, newest_ms=world.now_ms + days * DAY, now_ms=world.now_ms + days * DAY,
        marked=world.marked, events=world.events,
    )  # fmt: skip
    last = max((day for day, records in world.records.items() if records), default=-1)
    assert not {day for day in complete(document, later) if day > last} - named


@settings(max_examples=cases(100))
@given(CONDITIONS, WORLDS, st.integers(0, 4_000))
def test_time_alone_never_makes_a_complete_slice_incomplete(
    document: Mapping[str, Any] | None, world: World, days: int
) -> None:
    later = World(
        records=world.records, newest_ms=world.newest_ms, now_ms=world.now_ms + days * DAY, marked=world.marked,
        events=world.events,
    )  # fmt: skip
    assert complete(document, world) <= complete(document, later)


@settings(max_examples=cases(100))
@given(
    st.one_of(st.none(), trees(LEAVES.filter(lambda leaf: not isinstance(leaf.get("min_records"), dict)))),
    WORLDS,
    RECORDS,
    st.integers(0, 40 * DAY),
)
def test_a_log_that_grows_never_makes_a_complete_slice_incomplete(
    document: Mapping[str, Any] | None, world: World, more: Mapping[int, int], later_ms: int
) -> None:
    """Not for a share of the median, which is higher with more records in the weeks before."""
    grown = {day: world.records.get(day, 0) + more.get(day, 0) for day in range(DAYS)}
    newest_ms = max(world.newest_ms or 0, later_ms) if world.newest_ms is not None or any(more.values()) else None
    larger = World(
        records=grown, newest_ms=newest_ms, now_ms=world.now_ms, marked=world.marked, events=world.events
    )  # fmt: skip
    assert complete(document, world) <= complete(document, larger)


@pytest.mark.parametrize(
    ("before", "records", "missing"),
    [
        ({4: 100, -3: 200, -10: 300, -17: 400}, 124, "with 125 records"),
        ({4: 100, -3: 200, -10: 300, -17: 400}, 125, None),
        ({4: 0, -3: 200}, 99, "50 % of 200, the median of 1 week"),
        ({}, 0, "no slice of the same weekday before has records"),
        ({}, 1, None),
        ({-24: 1_000_000}, 1, None),
    ],
)
def test_a_share_of_the_median_of_the_weekday(before: dict[int, int], records: int, missing: str | None) -> None:
    """Slices without records, such as holidays, and slices more than four weeks ago do not count."""
    world = World(records={11: records}, newest_ms=None, now_ms=20 * DAY, before=before)
    found = missing_of(ready({"min_records": {"share": 0.5}}), SLICES[11], world.evidence())
    assert found is None if missing is None else missing in str(found)


def test_what_is_waited_for_since_when_and_until_when() -> None:
    world = World(records={0: 5}, newest_ms=DAY, now_ms=2 * DAY + HOUR)
    found = first_not_ready(ready({"timeout": "12h", "then": "hold"}), SLICES[:2], world.evidence()).waiting
    assert isinstance(found, Waiting)
    assert found.line(world.now_ms) == (
        "waits for 2024-01-02 since 1970-01-03 00:00:00 UTC: slice 2024-01-02 is complete when it or a later slice has "
        "a record (no record since 2024-01-01); until 1970-01-03 12:00:00 UTC (ready.timeout, then: hold)"
    )
    assert found.next_ms == 2 * DAY + 12 * HOUR
    assert (found.is_held(found.next_ms - 1), found.is_held(found.next_ms)) == (False, True)


@pytest.mark.parametrize(("newest_ms", "count"), [(DAY - 1, 0), (DAY, 1), (None, 0)])
def test_without_a_condition_a_commit_after_the_end_completes_the_last_slice(newest_ms: int | None, count: int) -> None:
    world = World(records={0: 5}, newest_ms=newest_ms, now_ms=30 * DAY)
    assert len(first_not_ready(None, SLICES[:1], world.evidence()).slices) == count


@given(
    every=st.sampled_from([DAY, 12 * HOUR, HOUR, HOUR // 4]),
    own=st.sampled_from([DAY, 6 * HOUR, HOUR, HOUR // 4]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Los_Angeles"]),
    first=st.integers(0, 100),
    count=st.integers(0, 100),
)
def test_a_range_of_slices_names_the_slices_that_are_inside(
    every: int, own: int, zone: str, first: int, count: int
) -> None:
    """Around a change of clocks, for producers with slices of other lengths.

    An id tells neither the zone of a day nor, of a shorter slice, its length: the slices are those of the reader then.
    """
    assume(zone == "UTC" or own == DAY)
    assume(own in (DAY, every) or every >= own)
    grids = [
        SliceGrid(every_ms=length, zone=ZoneInfo(zone if length == DAY else "UTC"), first_ms=None, last_ms=None)
        for length in (every, own)
    ]
    begin_ms = 1_774_569_600_000  # 2026-03-27
    ends = [slice_at(grids[0], begin_ms + every * number) for number in (first, first + count)]
    named = NamedSlices.of([AssetEvent(uri="u", at_ms=0, key=f"{ends[0].slice_id}..{ends[1].slice_id}")], grids[1])
    is_known = every in (DAY, HOUR, own)  # the text of an id does not tell other lengths
    for at_ms in range(begin_ms - DAY, begin_ms + 110 * DAY, own if own > HOUR else 7 * HOUR + own):
        slice_ = slice_at(grids[1], at_ms)
        is_inside = ends[0].start_ms <= slice_.start_ms and slice_.end_ms <= ends[1].end_ms
        assert named.has("u", slice_) == is_inside or (is_inside and not is_known)


def test_a_key_that_is_no_range_of_slices_names_none() -> None:
    keys = ("a..b", "2024-01-01..", "..", "9999-12-31..9999-12-31", "2024-01-01..2024-01-99", "2024-01-03..2024-01-02")
    named = NamedSlices.of([AssetEvent(uri="u", at_ms=0, key=key) for key in keys], DAILY)
    assert not any(named.has("u", slice_) for slice_ in SLICES)
