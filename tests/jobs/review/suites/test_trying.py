"""A suite that is tried says of each slice what it would say of that slice alone, however the past is read."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from expectations.suites import RUN, WINDOW_OUTPUTS, Check, Suite, SuiteFile
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun, Waiver
from jobs.reading.verify import Span
from jobs.replay.checks import conservation, run_checks, verdict
from jobs.review.suites.history import FAILED, OTHER_SPEC, WAIVED, good_history, whole_history
from jobs.review.suites.trying import Present, try_suite
from jobs.runs import JUDGED, CheckResult, Counts, Verdict
from tests.support.fuzzing import chances
from tests.support.past_runs import MemoryTables, random_past, staged
from windowlib.errors import SpecError


def random_file(chance: random.Random) -> SuiteFile:
    def check(index: int, kind: str, **kwargs: object) -> Check:
        return Check(index=index, type=kind, kwargs=kwargs, severity=chance.choice(["critical", "warning", "info"]))

    between = "expect_column_values_to_be_between"
    run = (
        check(0, between, column="records_read", min_value=chance.randrange(90)),
        check(1, between, column="invalid_share", max_value=chance.choice([0.0, 0.1, 0.3])),
    )
    outputs = (
        check(0, "expect_column_values_to_not_be_null", column="key"),
        check(1, "expect_table_row_count_to_be_between", max_value=chance.randrange(9)),
        check(2, "expect_column_max_to_be_between", column="total", max_value=chance.choice([5, 50])),
    )
    suites = {RUN: Suite(name="r", table=RUN, checks=run)}
    if chance.random() < 0.8:
        suites[WINDOW_OUTPUTS] = Suite(name="w", table=WINDOW_OUTPUTS, checks=outputs)
    return SuiteFile(path=Path("random.json"), suites=suites, content="{}")


def test_a_slice_is_judged_as_if_it_were_alone() -> None:
    for chance in chances(15):
        past = random_past(chance, chance.randrange(1, 10), rows_max=9, rows_at_once=chance.choice([1, 10, 1_000]))
        candidate, present = random_file(chance), random_file(chance)
        fail_on = chance.choice(["critical", "warning", "info"])
        trial = try_suite(candidate, Present(suites=present, fingerprint="x", fail_on="warning"), past, fail_on=fail_on)
        failed: Counter[int] = Counter()
        for one, run in zip(trial.slices, past.history.runs, strict=True):
            (found,) = alone(past, run, candidate, fail_on)
            (before,) = alone(past, run, present, "warning")
            assert (one.verdict, one.was) == (verdict(found, fail_on), verdict(before, "warning"))
            assert one.slice_id == run.result.slice.slice_id
            assert len(one.failed) == sum(result.verdict is not Verdict.PASS for result in found)
            failed.update(number for number, result in enumerate(found) if result.verdict is not Verdict.PASS)
        assert [one.failed + one.errors for one in trial.checks] == [failed[n] for n in range(len(trial.checks))]
        assert trial.to_json()["changes"] == [one.slice_id for one in trial.slices if one.verdict is not one.was]


def alone(past: MemoryTables, run: StagedRun, suites: SuiteFile, fail_on: str) -> list[tuple[CheckResult, ...]]:
    tables = past.tables_of([run], suites)
    return run_checks(suites, [run.result.slice.slice_id], tables, fail_on=fail_on, confirm="none")


def test_the_stored_verdict_counts_if_the_suite_in_force_made_it() -> None:
    past = random_past(random.Random(3), 5, rows_max=4, rows_at_once=3)
    present = Present(suites=None, fingerprint="none", fail_on="critical")
    trial = try_suite(random_file(random.Random(1)), present, past, fail_on="info")
    assert {one.was for one in trial.slices} == {Verdict.PASS}


BROKEN = conservation("x", Counts(read=2, assigned=1, late=0, unassigned=0, invalid=0, panes=1))


@pytest.mark.parametrize(
    "broken",
    [BROKEN, *(replace(BROKEN, table=table, check=table, verdict=Verdict.FAIL) for table in sorted(JUDGED))],
    ids=lambda check: check.table,
)
def test_a_check_of_hindcast_that_does_not_hold_counts_in_both_verdicts(broken: CheckResult) -> None:
    past = random_past(random.Random(3), 1, rows_max=4, rows_at_once=3)
    (run,) = past.history.runs
    run = replace(run, result=replace(run.result, checks=(broken,)))
    past = replace(past, history=replace(past.history, runs=(run,)))
    present = Present(suites=None, fingerprint="other", fail_on="critical")
    passes = SuiteFile(path=Path("x.json"), suites={}, content="{}")
    (tried,) = try_suite(passes, present, past, fail_on="critical").slices
    assert (tried.verdict, tried.was) == (broken.verdict, broken.verdict)
    assert len(tried.failed) == 1


def test_the_history_of_a_proposal_is_published_not_waived_and_of_one_spec() -> None:
    counts = Counts(read=1, assigned=1, late=0, unassigned=0, invalid=0, panes=1)
    runs = [staged(number, counts, watermark_ms=0) for number in range(5)]
    old = runs[0]
    runs[0] = replace(old, result=replace(old.result, spec_fingerprint="old"))
    waiver = Waiver(
        slice_id=runs[1].result.slice.slice_id, run_id=runs[1].result.run_id, who="ann", reason="x", at_ms=0,
        failed=frozenset(),
    )  # fmt: skip
    runs[1] = replace(runs[1], waiver=waiver)
    ids = [run.result.slice.slice_id for run in runs]
    candidate = Request(
        request_id="c", kind=RequestKind.CANDIDATE, from_ms=0, to_ms=1, who="", reason="", spec_json="", opened_seq=1,
        spec_fingerprint="edited", is_fresh=False, opened_at_ms=0,
    )  # fmt: skip
    held = replace(candidate, request_id="h", kind=RequestKind.RANGE, runs={ids[4]: runs[4].result.run_id})
    view = LedgerView(
        version=7,
        requests={"h": held},
        open_ids=("h",),
        runs={run.result.run_id: run for run in runs},
        published={run.result.slice.slice_id: run.result.run_id for run in runs[:4]},
    )
    good = good_history("sales", view, Span())
    assert good.slice_ids == (ids[2], ids[3])
    assert good.left_out == {WAIVED: (ids[1],), OTHER_SPEC: (ids[0],)}
    whole = whole_history("sales", view, Span())
    assert whole.slice_ids == tuple(ids[1:])
    assert whole.left_out == {OTHER_SPEC: (ids[0],)}
    ahead = staged(5, counts, watermark_ms=0)
    ahead = replace(ahead, request_id="c", result=replace(ahead.result, spec_fingerprint="edited"), seq=99)
    candidate = replace(candidate, runs={"x": ahead.result.run_id})
    view = replace(
        view, runs={**view.runs, ahead.result.run_id: ahead}, requests={"h": held, "c": candidate}, open_ids=("h", "c")
    )
    assert whole_history("sales", view, Span()).slice_ids == tuple(ids[1:])
    assert good_history("sales", view, Span(from_ms=runs[3].result.slice.start_ms)).slice_ids == (ids[3],)


def test_the_history_of_a_proposal_has_no_published_run_that_fails() -> None:
    counts = Counts(read=1, assigned=1, late=0, unassigned=0, invalid=0, panes=1)
    runs = [staged(number, counts, watermark_ms=0) for number in range(4)]
    for number, bad in ((1, Verdict.FAIL), (2, Verdict.ERROR)):
        runs[number] = replace(runs[number], result=replace(runs[number].result, verdict=bad))
    ids = [run.result.slice.slice_id for run in runs]
    view = LedgerView(
        version=7,
        runs={run.result.run_id: run for run in runs},
        published={run.result.slice.slice_id: run.result.run_id for run in runs},
    )
    good = good_history("sales", view, Span())
    assert (good.slice_ids, good.left_out) == ((ids[0], ids[3]), {FAILED: (ids[1], ids[2])})


def test_a_suite_that_does_not_fit_the_types_of_its_columns_is_not_tried() -> None:
    past = random_past(random.Random(3), 2, rows_max=4, rows_at_once=3)
    kwargs = {"column": "late", "value_set": ["1"]}
    misfit = Check(index=0, type="expect_column_values_to_not_be_in_set", kwargs=kwargs)
    suites = SuiteFile(path=Path("s"), suites={RUN: Suite(name="r", table=RUN, checks=(misfit,))}, content="{}")
    with pytest.raises(SpecError, match="column late is int64"):
        try_suite(suites, Present(suites=None, fingerprint="none", fail_on="critical"), past, fail_on="info")
