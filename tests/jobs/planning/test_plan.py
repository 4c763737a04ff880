"""The plan as a pure function: which slices are stale, and why."""

import json
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from jobs.lake.log_match import Match, compare_coordinates, match_input
from jobs.lake.pinned_files import BYTES_PER_RECORD
from jobs.ledger.events import EventKind, LedgerEvent, encode_details, staged_event
from jobs.ledger.looks import verified_event, verified_sighting
from jobs.ledger.projection import project
from jobs.ledger.view import LedgerView, StagedRun
from jobs.orchestration.requests import Staging, next_chunk
from jobs.pipeline.slices import slices_between
from jobs.planning.chains import ended_repairs
from jobs.planning.log_state import LogState
from jobs.planning.plan import Plan, make_plan
from jobs.planning.steps import Ask, Reason
from jobs.runs import EMPTY_STATE, LogCoordinates, Sighting, Verdict, WarmUp
from tests.support.fake_replay import PIPELINE, day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.ledger_chains import published_chain
from windowlib.errors import RequestError

PIPELINE_FILE = sales()
SLICES = slices_between(PIPELINE_FILE, day_ms("2024-01-01"), day_ms("2024-01-07"))
IDS = [one.slice_id for one in SLICES]


def coordinates(
    records: int = 2, *, commits: tuple[int, ...] = (1,), table_id: str = "log", digest: str = "files", since: int = 0
) -> LogCoordinates:
    return LogCoordinates(
        table_id=table_id,
        version=9,
        commits=commits,
        files=1,
        records=records,
        bytes=100,
        digest=digest if records == 2 else f"{digest} of {records}",
        since=since,
    )


def log(**changed: LogCoordinates) -> LogState:
    known = {slice_id: changed.get("d" + slice_id[-2:], coordinates()) for slice_id in IDS}
    return LogState(version=9, coordinates=known, first_data=SLICES[0])


def published(
    count: int, *, pipeline: str = PIPELINE, checks: str = "suite", verdict: Verdict = Verdict.PASS
) -> LedgerView:
    """The view of a ledger with a chain of `count` published slices."""
    chain = published_chain(sales(pipeline), SLICES[:count], log=coordinates(), verdict=verdict, checks=checks)
    return project(chain, version=len(chain))


def plan(
    view: LedgerView,
    state: LogState,
    *,
    start: int = 0,
    pipeline: str = PIPELINE,
    fresh: bool = False,
    checks: str | None = None,
) -> Plan:
    return make_plan(sales(pipeline), view, state, ask=Ask(slices=SLICES[start:], is_fresh=fresh, checks=checks))


def reasons(found: Plan) -> list[str]:
    return [step.reason.value + ("" if step.is_certain else "?") for step in found.steps]


def test_slices_without_a_run_are_missing() -> None:
    assert reasons(plan(published(0), log())) == ["missing"] * 6


def test_slices_after_the_published_ones_are_missing() -> None:
    found = plan(published(4), log())
    assert reasons(found) == ["current"] * 4 + ["missing"] * 2
    assert [step.expected_seconds for step in found.steps] == [0.0] * 4 + [4.0] * 2
    assert found.start.before is None


def test_new_records_make_a_slice_stale_and_later_slices_uncertain() -> None:
    found = plan(published(6), log(d02=coordinates(3, commits=(1, 7))))
    assert reasons(found) == ["current", "input changed"] + ["state before changed?"] * 4
    assert re.search(r"2 records then, 3 now \(log version \d+ then, \d+ now\)", found.steps[1].because)


def test_a_slice_stays_current_after_optimize_and_log_retention() -> None:
    optimized, cleaned = coordinates(digest="other"), coordinates(commits=(), since=99)
    assert reasons(plan(published(6), log(d02=optimized, d03=cleaned))) == ["current"] * 6


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (coordinates(), Match.SAME),
        (coordinates(digest="other"), Match.SAME),  # OPTIMIZE, by commits that can still be read
        (coordinates(digest="other", since=10), Match.SAME),
        (coordinates(digest="other", since=11), Match.UNKNOWN),
        (coordinates(since=11), Match.SAME),
        (coordinates(3), Match.CHANGED),
        (coordinates(3, since=11), Match.UNKNOWN),
        (coordinates(3, commits=(1, 10), since=10), Match.CHANGED),
        (coordinates(3, commits=(1, 12), since=11), Match.UNKNOWN),
        (coordinates(digest="other", commits=(1, 10)), Match.CHANGED),
        (coordinates(commits=(1, 10, 11)), Match.SAME),  # a DELETE, and a RESTORE of the same files
        (coordinates(table_id="another"), Match.CHANGED),
        (replace(coordinates(digest="other"), earlier_records=1), Match.CHANGED),  # in a slice before
        (coordinates(0), Match.SAME),  # OPTIMIZE wrote files without statistics
        (coordinates(0, commits=(1, 10)), Match.CHANGED),
    ],
)
def test_coordinates_are_compared_by_files_and_commits(now: LogCoordinates, found: Match) -> None:
    then = replace(coordinates(), earlier_records=2)
    assert compare_coordinates(then, replace(now, earlier_records=now.earlier_records or 2)) is found
    left_out = coordinates(digest="other")
    assert compare_coordinates(then, left_out) is Match.CHANGED, "`log.slice.first` leaves out the slices before"


def test_a_restored_table_has_lost_what_later_commits_had_added() -> None:
    """Defect: a slice with as many other records was current."""
    then = coordinates(commits=(1, 8))
    assert compare_coordinates(then, replace(coordinates(digest="other"), version=7)) is Match.CHANGED
    assert compare_coordinates(then, replace(coordinates(digest="other", commits=(1, 8)), version=8)) is Match.SAME


def test_a_sighting_in_a_former_table_does_not_tell_that_records_have_changed() -> None:
    """Defect: a slice whose commits were gone was restated by itself if its run had been seen in another table, too."""
    former, then = coordinates(table_id="former"), coordinates()
    sightings = [Sighting(log=former, is_equal=True), Sighting(log=then, is_equal=True)]
    assert match_input(sightings, coordinates(digest="other", since=11)) is Match.UNKNOWN
    assert match_input(sightings, coordinates(3)) is Match.CHANGED
    assert match_input(sightings[:1], coordinates()) is Match.CHANGED


def test_a_number_of_records_that_no_statistics_tell_is_neither_compared_nor_shown_as_0() -> None:
    """Defect: after ANALYZE, each slice had `0 records then`, and the schedule proposed to restate it."""
    unknown = coordinates(0)
    assert compare_coordinates(unknown, coordinates(16, digest="other")) is Match.SAME
    # Defect: if some of the files had statistics, their records were taken for all.
    partly = replace(coordinates(8), uncounted=1)
    assert compare_coordinates(partly, coordinates(16, digest="other")) is Match.SAME
    assert compare_coordinates(coordinates(16), replace(partly, digest="other")) is Match.SAME
    assert compare_coordinates(partly, coordinates(16, commits=(1, 10), digest="other")) is Match.CHANGED
    before = replace(coordinates(8), earlier_records=4, uncounted=1)
    assert compare_coordinates(before, replace(coordinates(8, digest="other"), earlier_records=9)) is Match.SAME
    changed = plan(published(6), log(d02=coordinates(0, commits=(1, 10))))
    assert reasons(changed)[1] == "input changed"
    assert "2 records then, an unknown number now" in changed.steps[1].because


def test_without_a_digest_equal_record_counts_do_not_prove_equal_input() -> None:
    """Old ledgers have no digest of the files."""
    then = coordinates(digest="")
    assert compare_coordinates(then, coordinates(digest="", since=11)) is Match.UNKNOWN
    assert compare_coordinates(then, coordinates(since=11)) is Match.UNKNOWN
    assert compare_coordinates(then, coordinates(since=10)) is Match.SAME


def test_other_files_without_their_commits_are_unverified_until_their_records_are_compared() -> None:
    cleaned = coordinates(digest="other", since=11)
    view = published(6)
    found = plan(view, log(d02=cleaned))
    assert reasons(found) == ["current", "input unverified"] + ["state before changed?"] * 4
    assert "plan --verify" in found.steps[1].because
    run_id = found.steps[1].run.result.run_id if found.steps[1].run else ""
    for is_equal, expected in ((True, "current"), (False, "input changed"), (True, "current")):
        view = seen(view, run_id, cleaned, is_equal=is_equal)
        assert reasons(plan(view, log(d02=cleaned)))[1] == expected
        assert reasons(plan(view, log(d02=cleaned), pipeline=PIPELINE.replace("size: 1d", "size: 2d")))[1] != "current"


def test_a_second_attempt_at_the_same_run_is_a_sighting() -> None:
    """Without this sighting, every run would replay a slice with rewritten files again, with the same result."""
    cleaned = coordinates(digest="other", since=11)
    view = published(2)
    run = view.published_run(IDS[1])
    assert run is not None
    again = replace(run.result, attempt_id="b", log=cleaned)
    events = [staged_event("r", run.result, is_chain_start=False), staged_event("r", again, is_chain_start=False)]
    sightings = project(events, version=2).run(run.result.run_id).sightings
    assert match_input(sightings, cleaned) is Match.SAME


def seen(view: LedgerView, run_id: str, at: LogCoordinates, *, is_equal: bool) -> LedgerView:
    """The view after a `verified` event that was written to JSON and read back."""
    run = view.run(run_id)
    event = verified_event(run.result, Sighting(log=at, is_equal=is_equal), fingerprint="f", who="me")
    stored = replace(event, details=json.loads(encode_details(event.details)))
    changed = replace(run, sightings=(*run.sightings, verified_sighting(stored)))
    return replace(view, runs={**view.runs, run_id: changed})


class Counting(dict[str, StagedRun]):
    """Counts how many runs are read."""

    read_count = 0

    def values(self) -> Any:  # noqa: ANN401 - dict's own view type cannot be named
        self.read_count += len(self)
        return super().values()


def test_the_cost_of_a_plan_does_not_multiply_runs_by_slices() -> None:
    view = published(6)
    runs = Counting(view.runs)
    plan(replace(view, runs=runs), log())
    assert runs.read_count <= 2 * len(runs)


def test_another_spec_replays_every_slice() -> None:
    changed = PIPELINE.replace("size: 1d", "size: 2d")
    assert reasons(plan(published(6), log(), pipeline=changed)) == ["spec changed"] * 6
    assert reasons(plan(published(6), log(), pipeline=PIPELINE + "owner: me\n")) == ["current"] * 6


def test_another_suite_makes_checked_slices_stale_and_not_their_states() -> None:
    assert reasons(plan(published(3), log(), checks="suite")) == ["current"] * 3 + ["missing"] * 3
    assert reasons(plan(published(3), log(), checks="other")) == ["checks changed"] * 3 + ["missing"] * 3


def test_a_slice_whose_check_broke_is_checked_again() -> None:
    assert reasons(plan(published(1, verdict=Verdict.ERROR), log()))[0] == "checks changed"


def test_fresh_replays_valid_runs() -> None:
    assert reasons(plan(published(6), log(), start=2, fresh=True)) == ["fresh"] * 4


def test_a_chain_continues_from_the_published_slice_before() -> None:
    found = plan(published(3), log(), start=3)
    assert found.start.before is not None
    assert found.start.before.slice_id == IDS[2]
    assert found.start.note == "continues from 2024-01-03, as published"


def test_a_range_without_a_run_before_it_is_refused_unless_the_log_begins_there() -> None:
    with pytest.raises(
        RequestError, match=r"2024-01-03 .* 2024-01-02 has no published run; the log begins at 2024-01-01"
    ):
        plan(published(0), log(), start=2)
    with pytest.raises(RequestError, match=r"slices before 2024-01-04 are published\. Replay from 2024-01-04 \(--from"):
        plan(published(3), log(), start=5)
    later = replace(log(), first_data=SLICES[2])
    assert plan(published(0), later, start=2).start.before is None
    assert plan(published(0), replace(log(), first_data=None), start=2).start.before is None
    first = PIPELINE.replace("slice: {by: day}", "slice: {by: day, first: 2024-01-03}")
    assert plan(published(0), log(), start=2, pipeline=first).start.before is None


def test_a_chain_that_began_with_a_warm_up_is_replayed_from_its_state_by_its_own_spec_only() -> None:
    """The state of one spec does not fit another: rows of both would be mixed. Without a state, any spec may begin."""
    time = ({"source": "*", "watermark_ms": 1},)
    warm_up = WarmUp(first=SLICES[2], time=time, fingerprint="of the warm-up")
    changed = PIPELINE.replace("size: 1d", "size: 2d")
    for begin, is_refused in ((warm_up, True), (None, False)):
        chain = published_chain(sales(), SLICES[2:], log=coordinates(), warm_up=begin)
        view = project(chain, version=len(chain))
        again = plan(view, log(), start=2)
        assert (again.start.warm_up, reasons(again)) == (begin, ["current"] * 4)
        if not is_refused:
            assert plan(view, log(), start=2, pipeline=changed).start.state == EMPTY_STATE
            continue
        told = (
            r"2024-01-03 of pipeline sales began with a warm-up by spec \w+, but .* anew at 2024-01-03 with --warm-up"
        )
        with pytest.raises(RequestError, match=told):
            plan(view, log(), start=2, pipeline=changed)


def test_a_plan_as_json_has_range_steps_and_runs() -> None:
    found = plan(published(2), log()).to_json()
    assert found["from"] == "2024-01-01"
    assert found["to"] == "2024-01-07"
    assert [step["published"] for step in found["steps"]] == [True, True, False, False, False, False]
    assert found["steps"][0]["run_id"] is not None


def test_a_plan_as_json_marks_a_waived_run() -> None:
    """The verdict of a waived run stays `fail`. A slice that is replayed has no verdict and no mark."""
    chain = published_chain(PIPELINE_FILE, SLICES[:2], log=coordinates(), verdict=Verdict.FAIL, checks="suite")
    checked = next(event for event in chain if event.kind is EventKind.CHECKED)
    waived = replace(checked, kind=EventKind.WAIVED, seq=len(chain) + 1, details={}, who="ann", reason="real")
    steps = plan(project([*chain, waived], version=waived.seq), log()).to_json()["steps"]
    assert [(step["verdict"], step["waived"]) for step in steps[:3]] == [("fail", True), ("fail", False), (None, None)]


def chunks(found: Plan, limit: int | None, growing: int = 1) -> list[str]:
    return [step.slice.slice_id for step in next_chunk(found, Staging(chunk=limit), growing=growing, skip=frozenset())]


@pytest.mark.parametrize("per_record", [0, 1])
@given(
    records=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    most=st.integers(1, 20),
    limit=st.none() | st.integers(1, 6),
)
def test_chunks_have_as_many_slices_as_their_limits_allow(
    per_record: int, records: list[int], most: int, limit: int | None
) -> None:
    """If the log has no numbers of records, the bytes of a slice tell how many records it may have."""
    found = plan(published(0), log())
    steps = tuple(
        replace(step, records=count * per_record, bytes=count * BYTES_PER_RECORD)
        for step, count in zip(found.steps, records, strict=True)
    )
    staging, done = Staging(chunk=limit, chunk_records=most), list[str]()
    while chunk := next_chunk(replace(found, steps=steps), staging, growing=1, skip=frozenset(done)):
        begin, count = len(done), len(chunk)
        assert [step.slice.slice_id for step in chunk] == IDS[begin : begin + count]
        assert count == 1 or (sum(records[begin : begin + count]) <= most and count <= (limit or 6))
        after = records[begin : begin + count + 1]
        assert begin + count == 6 or count == limit or sum(after) > most, "one more slice was possible"
        done += [step.slice.slice_id for step in chunk]
    assert done == IDS


def test_certain_slices_form_one_chunk_and_uncertain_ones_growing_chunks() -> None:
    assert chunks(plan(published(0), log()), None) == IDS
    assert chunks(plan(published(0), log()), 2) == IDS[:2]
    uncertain = plan(published(6), log(d02=coordinates(3)))
    assert chunks(uncertain, None, growing=4) == [IDS[1]], "its records have changed"
    rest = replace(
        uncertain, steps=(*(replace(step, reason=Reason.CURRENT) for step in uncertain.steps[:2]), *uncertain.steps[2:])
    )
    assert chunks(rest, None) == [IDS[2]]
    assert chunks(rest, None, growing=2) == IDS[2:4]
    assert chunks(rest, 1, growing=4) == [IDS[2]]


@given(st.integers(0, 6), st.sets(st.integers(0, 5)), st.integers(0, 5))
def test_slices_before_the_first_change_are_current_and_every_change_is_detected(
    count: int, touched: set[int], start: int
) -> None:
    view = published(count)
    state = log(**{f"d{index + 1:02d}": coordinates(5) for index in touched})
    if start > count:
        with pytest.raises(RequestError):
            plan(view, state, start=start)
        return
    found = plan(view, state, start=start)
    first = min((index for index in range(start, 6) if index >= count or index in touched), default=6)
    for index, step in enumerate(found.steps, start=start):
        if index < first:
            assert step.reason is Reason.CURRENT
        elif index >= count:
            assert (step.reason, step.is_certain) == (Reason.MISSING, True)
        elif index in touched:
            assert (step.reason, step.is_certain) == (Reason.INPUT_CHANGED, True)
        else:
            assert (step.reason, step.is_certain) == (Reason.STATE_CHANGED, False)


def test_an_earlier_plan_with_an_equal_basis_gives_the_same_plan() -> None:
    """The events of a request change runs, attempts, leases or nothing. The plan is always that of a new planning."""
    taken_over = 0
    for seed in seeds(60):
        chance = Random(seed)
        events = published_chain(PIPELINE_FILE, SLICES, log=coordinates(), checks="suite")
        state = log(**({f"d{IDS[2][-2:]}": coordinates(records=3)} if chance.random() < 0.5 else {}))
        ask = Ask(slices=SLICES[chance.randrange(3) :], checks="suite", is_fresh=chance.random() < 0.2)
        earlier = None
        cut = chance.randrange(len(events) // 2, len(events))
        for end in sorted([cut, cut, *(chance.randrange(cut, len(events)) for _ in range(4))]):
            extra = [LedgerEvent(kind=EventKind.NOTE, seq=end + 1)] * chance.randrange(2)
            view = project([*events[:end], *extra], version=end + len(extra))
            if earlier is not None and chance.random() < 0.3:
                state = replace(state)
            asked = replace(ask, request_id="r") if chance.random() < 0.5 else ask
            try:
                expected = make_plan(PIPELINE_FILE, view, state, ask=asked)
            except RequestError:
                continue
            found = make_plan(PIPELINE_FILE, view, state, ask=asked, earlier=earlier)
            assert found == expected, f"seed {seed}, {end} events"
            taken_over += earlier is not None and found.steps is earlier.steps
            earlier = found
    assert taken_over


def test_the_first_publication_of_a_slice_decodes_no_requests_for_the_repairs_that_it_ends() -> None:
    """A ledger of years has ten thousands of requests. Repairs are of slices that readers see."""
    unread: Any = None
    slices = {each.slice_id: each for each in SLICES}
    view = LedgerView(version=1, published={IDS[0]: "b"}, slices=slices, repairs={"b": "a"}, requests=unread)
    assert ended_repairs(view, [IDS[1], "2030-01-01"]) == []
