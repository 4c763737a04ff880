"""The plan as a pure function: what is judged stale, and why."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.fingerprints import fingerprint, spec_fingerprint
from jobs.ledger_events import EventKind, LedgerEvent, checked_event, slice_columns, staged_event
from jobs.ledger_fold import fold
from jobs.ledger_view import LedgerView
from jobs.plan import Ask, LogState, Plan, Reason, is_same_input, make_plan
from jobs.requests import next_chunk
from jobs.runs import EMPTY_STATE, Counts, LogCoordinates, RunResult, Verdict
from jobs.slices import slices_between
from tests.support.fake_replay import PIPELINE, day_ms, sales
from windowlib.errors import RequestError

PIPELINE_FILE = sales()
SLICES = slices_between(PIPELINE_FILE, day_ms("2024-01-01"), day_ms("2024-01-07"))
IDS = [one.slice_id for one in SLICES]


def coordinates(
    records: int = 2, *, commits: tuple[int, ...] = (1,), table_id: str = "log", files: int = 1
) -> LogCoordinates:
    return LogCoordinates(table_id=table_id, version=9, commits=commits, files=files, records=records, bytes=100)


def log(**changed: LogCoordinates) -> LogState:
    known = {slice_id: changed.get("d" + slice_id[-2:], coordinates()) for slice_id in IDS}
    return LogState(version=9, coordinates=known, first_data=SLICES[0])


def published(
    count: int, *, pipeline: str = PIPELINE, checks: str = "suite", verdict: Verdict = Verdict.PASS
) -> LedgerView:
    """A chain of `count` published slices."""
    spec = spec_fingerprint(sales(pipeline))
    events = [LedgerEvent(kind=EventKind.REQUESTED, request_id="r", who="me", spec_fingerprint=spec, seq=1)]
    state = EMPTY_STATE
    for one in SLICES[:count]:
        after = fingerprint([state, one.slice_id])
        result = RunResult(
            slice=one,
            run_id=fingerprint([spec, one.slice_id])[:32],
            attempt_id="a",
            spec_fingerprint=spec,
            input_fingerprint="i",
            state_before=state,
            state_after=after,
            digests={},
            counts=Counts(read=2, assigned=2, late=0, unassigned=0, invalid=0, panes=1),
            watermark_ms=1,
            log=coordinates(),
            seconds=4.0,
            verdict=verdict,
            extras={"checks_fingerprint": checks},
        )
        events += [staged_event("r", result, is_chain_start=state == EMPTY_STATE), checked_event("r", result)]
        events.append(
            LedgerEvent(
                kind=EventKind.PUBLISHED, request_id="r", **slice_columns(one), run_id=result.run_id, attempt_id="a"
            )
        )
        state = after
    return fold([replace(event, seq=index) for index, event in enumerate(events, start=1)], version=len(events))


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


def test_nothing_yet() -> None:
    assert reasons(plan(published(0), log())) == ["missing"] * 6


def test_everything_current_but_the_end() -> None:
    found = plan(published(4), log())
    assert reasons(found) == ["current"] * 4 + ["missing"] * 2
    assert [step.expected_seconds for step in found.steps] == [0.0] * 4 + [4.0] * 2
    assert found.before is None


def test_new_records_make_the_slice_stale_and_its_successors_perhaps() -> None:
    found = plan(published(6), log(d02=coordinates(3, commits=(1, 7))))
    assert reasons(found) == ["current", "input changed"] + ["state before changed?"] * 4


def test_optimize_and_retention_change_nothing() -> None:
    assert reasons(plan(published(6), log(d02=coordinates(files=5), d03=coordinates(commits=())))) == ["current"] * 6


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (coordinates(), True),
        (coordinates(files=9), True),
        (coordinates(commits=()), True),
        (coordinates(3), False),
        (coordinates(commits=(1, 2)), False),
        (coordinates(table_id="another"), False),
    ],
)
def test_the_same_input(now: LogCoordinates, *, same: bool) -> None:
    assert is_same_input(coordinates(), now) is same


def test_another_spec_replays_everything() -> None:
    changed = PIPELINE.replace("size: 1d", "size: 2d")
    assert reasons(plan(published(6), log(), pipeline=changed)) == ["spec changed"] * 6
    assert reasons(plan(published(6), log(), pipeline=PIPELINE + "owner: me\n")) == ["current"] * 6


def test_another_suite_checks_again_and_replays_no_successor() -> None:
    assert reasons(plan(published(3), log(), checks="suite")) == ["current"] * 3 + ["missing"] * 3
    assert reasons(plan(published(3), log(), checks="other")) == ["checks changed"] * 3 + ["missing"] * 3


def test_a_check_that_broke_runs_again() -> None:
    assert reasons(plan(published(1, verdict=Verdict.ERROR), log()))[0] == "checks changed"


def test_fresh_replays_what_holds() -> None:
    assert reasons(plan(published(6), log(), start=2, fresh=True)) == ["fresh"] * 4


def test_the_chain_goes_on_from_the_published_predecessor() -> None:
    found = plan(published(3), log(), start=3)
    assert found.before is not None
    assert found.before.slice_id == IDS[2]
    assert found.chain_note == "goes on from 2024-01-03, as published"


def test_no_predecessor_is_refused_unless_the_log_begins_there() -> None:
    with pytest.raises(
        RequestError, match=r"2024-01-03 .* 2024-01-02 has no published run; the log begins at 2024-01-01"
    ):
        plan(published(0), log(), start=2)
    later = replace(log(), first_data=SLICES[2])
    assert plan(published(0), later, start=2).before is None
    assert plan(published(0), replace(log(), first_data=None), start=2).before is None
    first = PIPELINE.replace("slice: {by: day}", "slice: {by: day, first: 2024-01-03}")
    assert plan(published(0), log(), start=2, pipeline=first).before is None


def test_a_plan_is_json() -> None:
    found = plan(published(2), log()).to_json()
    assert found["from"] == "2024-01-01"
    assert found["to"] == "2024-01-07"
    assert [step["published"] for step in found["steps"]] == [True, True, False, False, False, False]
    assert found["steps"][0]["run_id"] is not None


def chunks(found: Plan, limit: int | None, growing: int = 1) -> list[str]:
    return [step.slice.slice_id for step in next_chunk(found, limit=limit, growing=growing, skip=frozenset())]


def test_certain_slices_go_together_and_doubtful_ones_carefully() -> None:
    assert chunks(plan(published(0), log()), None) == IDS
    assert chunks(plan(published(0), log()), 2) == IDS[:2]
    doubtful = plan(published(6), log(d02=coordinates(3)))
    assert chunks(doubtful, None) == [IDS[1]]
    rest = replace(
        doubtful, steps=(*(replace(step, reason=Reason.CURRENT) for step in doubtful.steps[:2]), *doubtful.steps[2:])
    )
    assert chunks(rest, None) == [IDS[2]]
    assert chunks(rest, None, growing=2) == IDS[2:4]
    assert chunks(rest, 1, growing=4) == [IDS[2]]


@given(st.integers(0, 6), st.sets(st.integers(0, 5)), st.integers(0, 5))
def test_what_comes_before_the_first_change_is_current_and_the_change_is_found(
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
