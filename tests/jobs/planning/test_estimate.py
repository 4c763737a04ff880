"""Estimates from the seconds of past runs."""

from dataclasses import replace

from hypothesis import given, strategies as st

from jobs.ledger.view import LedgerView, StagedRun
from jobs.planning.estimate import estimator
from jobs.runs import Counts, LogCoordinates, RunResult, Slice, Verdict

RUN = StagedRun(
    result=RunResult(
        slice=Slice(slice_id="2024-01-01", start_ms=0, end_ms=1), run_id="r", attempt_id="a", spec_fingerprint="s",
        input_fingerprint="i", state_before="b", state_after="c", digests={}, watermark_ms=None, seconds=1.0,
        counts=Counts(read=0, assigned=0, late=0, unassigned=0, invalid=0, panes=0), verdict=Verdict.PASS,
        log=LogCoordinates(table_id="t", version=1, commits=(), files=0, records=0, bytes=0),
    ),
    request_id="q", seq=1, at_ms=0, is_chain_start=False, checks_attempt_id="a",
)  # fmt: skip


def run(number: int, read: int, seconds: float) -> StagedRun:
    counts = replace(RUN.result.counts, read=read)
    return replace(RUN, seq=number, result=replace(RUN.result, run_id=str(number), counts=counts, seconds=seconds))


def view(*runs: StagedRun) -> LedgerView:
    return LedgerView(version=1, runs={one.result.run_id: one for one in runs})


def test_empty_slices_do_not_count() -> None:
    filled = [run(number, 1_000, 10.0) for number in range(3)]
    empty = [run(number, 0, 0.5) for number in range(3, 70)]
    assert estimator(view(*filled, *empty))(2_000) == (20.0, 20.0, 20.0)


def test_only_empty_slices_tell_nothing_of_records() -> None:
    assert estimator(view(run(1, 0, 0.5)))(2_000) is None
    assert estimator(view(run(1, 0, 0.5)))(0) == (0.0, 0.0, 0.0)
    assert estimator(view())(0) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 10)), max_size=8), st.integers(0, 9))
def test_an_estimate_is_between_the_fastest_and_the_slowest_of_the_runs_with_records(
    past: list[tuple[int, float]], records: int
) -> None:
    found = estimator(view(*(run(number, read, seconds) for number, (read, seconds) in enumerate(past))))(records)
    rates = [seconds / read for read, seconds in past if read]
    if records and rates:
        assert found is not None
        least = min(seconds for read, seconds in past if read)
        assert max(min(rates) * records, least) - 0.001 <= found.least <= found.seconds
        assert found.seconds <= found.most <= max(max(rates) * records, least) + 0.001
