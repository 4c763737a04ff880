"""Status, overview, digest, gauges and report tell the same held and failing slices, in random histories."""

import json
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from expectations.loader import SUITES_VARIABLE
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.pipeline.files import parse_pipeline
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.planning.standing import standing
from jobs.planning.suites import suite_fingerprint
from jobs.review.digest import digest
from jobs.review.metrics import gauges
from jobs.review.pages.decision_forms import decision_forms
from jobs.review.pages.state import pipeline_state
from jobs.review.report.collect import collect_view
from jobs.review.report.model import build_model
from jobs.runs import RunResult, Verdict
from jobs.wall_clock import now_ms
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import PIPELINE, append_day

if TYPE_CHECKING:
    from collections.abc import Callable

QUALITY = f"{PIPELINE}quality: {{suite: expectations/sales.json, fail_on: critical}}\n"


@pytest.fixture
def checked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A pipeline with a suite that limits the totals."""
    monkeypatch.setenv(SUITES_VARIABLE, str(shell.root / "suites"))
    (shell.root / "suites").mkdir()
    (shell.root / "pipelines" / "sales.yaml").write_text(QUALITY)

    def judged(result: RunResult) -> RunResult:
        return replace(result, extras={"checks_fingerprint": suite_fingerprint(pipeline_context(shell).pipeline)})

    shell.replayer.change = judged
    limit(shell, 100)
    return shell


def pipeline_context(shell: Shell) -> RequestContext:
    pipeline = parse_pipeline(QUALITY, source=str(shell.root / "pipelines" / "sales.yaml"))
    return open_request_context(pipeline, Lake(root=str(shell.root)), now_ms=now_ms)


def limit(shell: Shell, most: int) -> None:
    check = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": most}}
    suite = {"window_outputs": {"name": "sales", "expectations": [check | {"severity": "critical"}]}}
    (shell.root / "suites" / "sales.json").write_text(json.dumps(suite))


def stopped(view: LedgerView) -> tuple[set[str], set[str]]:
    """Return the slices with a failed run that an open request has, and those of which readers see one."""
    failed = {
        run_id
        for run_id, run in view.runs.items()
        if run.verdict is Verdict.ERROR or (run.verdict is Verdict.FAIL and run.waiver is None)
    }
    open_ones = [each for each in view.requests.values() if each.state.value == "open" and not each.is_candidate]
    held = {name for request in open_ones for name, run_id in request.runs.items() if run_id in failed}
    return held, {name for name, run_id in view.published.items() if run_id in failed}


def check_surfaces(shell: Shell) -> None:
    work = pipeline_context(shell)
    view = work.ledger.view()
    held, failing = stopped(view)
    [status] = shell.json("status", "sales")["pipelines"]
    assert (status["failed"] or "").startswith(f"readers see {len(failing)} slice" if failing else "")
    values = gauges(work, view)
    assert (values["held_slices"], values["failed_published_slices"]) == (len(held), len(failing))
    state, model = pipeline_state(work, view), build_model(collect_view(work.lake, work.pipeline, view))
    told = digest(work, view, standing(work, view), since_ms=0)
    for expected, slices, cards in ((held, state.held, model.held), (failing, state.failed, model.failed)):
        assert {each.slice_id for each in slices} == expected
        assert {card.run.result.slice.slice_id for card in cards} == expected
    assert {run.result.slice.slice_id for run in told.failed} == failing
    assert len(told.held) == len(held) + (view.hold is not None)
    is_told = "held by" in model.headline or "in spite of" in model.headline
    assert is_told == bool(held or failing), model.headline
    assert not (model.is_healthy and view.hold)


def step(shell: Shell, random: Random) -> None:
    """Make one random change: of the log, the suite, the runs, or by a decision."""
    view = pipeline_context(shell).ledger.view()
    days = [f"2024-01-{day:02d}" for day in range(1, 6)]
    first = random.randrange(4)
    span = ("--from", days[first], "--to", days[random.randrange(first + 1, 5)])
    opened = [request.request_id for request in view.open_requests()]
    failed = [run.result for run in view.runs.values() if run.verdict is Verdict.FAIL and run.waiver is None]
    steps: list[Callable[[], object]] = [
        lambda: shell("run", "sales", *span),
        lambda: shell("run", "sales", *span, "--replace"),
        lambda: shell("run", "sales", *span, "--no-publish"),
        lambda: shell("run", "sales", *span, "--as-candidate"),
        lambda: append_day(shell.root, days[first], {random.choice("cd"): random.randint(1, 60)}),
        lambda: limit(shell, random.choice((2, 50, 1000))),
    ]
    if opened:
        named = ("sales", "--request", random.choice(opened))
        steps += [lambda: shell("publish", *named), lambda: shell("cancel", *named, "--reason", "no")]
    if failed:
        run = random.choice(failed)
        steps.append(lambda: shell("waive", "sales", run.slice.slice_id, "--run", run.run_id, "--reason", "seen"))
    if view.standing:
        newest = str(view.standing[-1].seq)
        steps.append(lambda: shell("rollback", "sales", "--publication", newest, "--reason", "wrong"))
    random.choice(steps)()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_all_surfaces_tell_the_same_held_and_failing_slices(checked: Shell, seed: int) -> None:
    random = Random(seed)
    checked("run", "sales", "--from", "2024-01-01", "--to", "2024-01-05")
    for _ in range(10):
        step(checked, random)
        check_surfaces(checked)


@pytest.mark.slow
def test_the_report_tells_the_runs_of_readers_and_of_open_requests_and_not_the_newest_ones(checked: Shell) -> None:
    days = ("--from", "2024-01-01", "--to", "2024-01-05")
    checked("run", "sales", *days)
    limit(checked, 2)
    checked("run", "sales", *days)
    check_surfaces(checked)  # readers see days that fail the edited suite
    limit(checked, 100)
    append_day(checked.root, "2024-01-04", {"c": 1})
    checked("run", "sales", "--from", "2024-01-04", "--to", "2024-01-05", "--no-publish")
    check_surfaces(checked)  # the newest run of one of these days passes, and readers do not see it
    limit(checked, 3)
    append_day(checked.root, "2024-01-05", {"c": 50})
    checked("run", "sales", "--from", "2024-01-05", "--to", "2024-01-06", "--no-publish")
    [*_, newest] = pipeline_context(checked).ledger.view().open_requests()
    check_surfaces(checked)
    checked("cancel", "sales", "--request", newest.request_id, "--reason", "no")
    check_surfaces(checked)  # the failed run of a cancelled request holds nothing


def test_no_surface_offers_a_publication_that_is_refused_after_the_waiver(checked: Shell) -> None:
    limit(checked, 0)
    assert checked("run", "sales", "--from", "2024-01-01", "--to", "2024-01-02", "--no-publish") == 1
    work = pipeline_context(checked)
    [request] = work.ledger.view().open_requests()

    def offered() -> bool:
        forms = decision_forms(work, work.ledger.view(), request_id=request.request_id).request
        assert forms is not None
        return bool(forms.waive_and_publish if forms.held else forms.publish)

    assert offered()
    limit(checked, -1)
    assert not offered()
    [run_id] = [run.result.run_id for run in work.ledger.view().runs.values() if run.verdict is Verdict.FAIL]
    assert checked("waive", "sales", "2024-01-01", "--run", run_id, "--reason", "seen") == 0
    assert "next:" not in checked.out
    assert "cannot be published yet: suite expectations/sales.json has changed" in checked.out
    assert not offered()
    assert checked("publish", "sales", "--request", request.request_id) == 1


def test_a_suite_that_this_version_refuses_is_told_before_the_schedule_fails(checked: Shell) -> None:
    """Defect: after an upgrade that refuses the suite, `status` and the pages told nothing."""
    checked("run", "sales", "--from", "2024-01-01", "--to", "2024-01-02")
    suite = checked.root / "suites" / "sales.json"
    suite.write_text(suite.read_text().replace('"max_value": 100', '"max_value": 100, "mostly": 0'))
    assert checked("status", "sales") == 0
    why = "nothing is replayed until the suite is right: "
    assert f"\n  {why}" in checked.out
    assert "expect_column_values_to_be_between: accepts everything" in checked.out
    work = pipeline_context(checked)
    assert pipeline_state(work, work.ledger.view()).lost.startswith(why)


def test_a_candidate_that_readers_see_is_not_called_ready(checked: Shell) -> None:
    days = ("--from", "2024-01-01", "--to", "2024-01-03")
    assert (checked("run", "sales", *days, "--as-candidate"), checked("run", "sales", *days)) == (0, 0)
    work = pipeline_context(checked)
    [candidate] = pipeline_state(work, work.ledger.view()).requests
    assert candidate.waits == "readers see all of it already"
