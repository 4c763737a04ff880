"""The content of the page of a slice."""

from dataclasses import replace
from random import Random

from hypothesis import given, strategies as st

from jobs.ledger.view import StagedRun
from jobs.pipeline.slices import slice_of_id
from jobs.review.pages.slice_page import slice_page
from jobs.runs import CheckResult, Verdict
from tests.jobs.review.pages.conftest import DAYS, Made
from tests.support.report_rows import collect

LATER = {Verdict.ERROR: 0, Verdict.FAIL: 1, Verdict.WARN: 2, Verdict.PASS: 3}


def test_the_checks_that_did_not_pass_are_first(made: Made) -> None:
    """Broken and failed checks, then warnings, then the others; equal verdicts keep the order of the suite."""
    work, _ = made(Random(5))
    view, rows = work.ledger.view(), collect(work.lake, work.pipeline)
    one = slice_of_id(work.pipeline, DAYS[1])
    run = view.published_run(one.slice_id)
    assert run is not None

    def shown(found: StagedRun) -> list[CheckResult]:
        page = slice_page(view, one, shown=found, rows=rows)
        assert [line for line in page.checks if not line.is_passed] == list(page.failures)
        return [line.check for line in page.checks]

    @given(st.lists(st.sampled_from(Verdict), max_size=12))
    def is_sorted(verdicts: list[Verdict]) -> None:
        checks = [
            CheckResult(
                slice_id=one.slice_id, table="window_outputs", check=f"check_{n}", severity="warning", verdict=v
            )
            for n, v in enumerate(verdicts)
        ]
        staged = replace(run, result=replace(run.result, checks=tuple(checks)))
        wanted = sorted(zip(verdicts, checks, strict=True), key=lambda pair: LATER[pair[0]])
        assert shown(staged) == [check for _, check in wanted]

    is_sorted()
