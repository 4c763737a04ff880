"""Late repairs: readers see what a chain with the greater allowed lateness would show, and the chain goes on."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.comparing.views import request_sides
from jobs.lake.lake import Lake
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.run_projection import failing_in_sight
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.orchestration import late_repair, repair_proposals
from jobs.orchestration.gating import gate
from jobs.orchestration.late_repair import asked_for, check_current, refusal_of, repairing
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.repair_proposals import propose_repairs, within_budget
from jobs.orchestration.repair_range import LateRepair, repair_of
from jobs.orchestration.requests import Staging, run_request
from jobs.orchestration.restatements import BackfillStart, plan_request, to_start
from jobs.orchestration.scheduling import Replay, replay
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.restate import RepairGrammar
from jobs.pipeline.slices import slices_between
from jobs.planning.chains import newly_shown
from jobs.planning.estimate import Estimate
from jobs.planning.lease_keeping import release
from jobs.planning.plan import Plan
from jobs.planning.request_context import (
    Asked,
    IfOpen,
    Opened,
    RequestContext,
    context_of,
    open_request_context,
    requested_event,
)
from jobs.planning.restating import request_to_continue
from jobs.planning.steps import Ask, Reason
from jobs.publishing.decisions import cancel, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish_request
from jobs.publishing.rules import judge_publication
from jobs.publishing.waivers import SliceWaiver, waive_events
from jobs.readers import published_table
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.verify import Span, verify
from jobs.replay.replayer import replay_chunk
from jobs.replay.restart import restart_before
from jobs.replay.sizes import Sizes
from jobs.review.pages.decision_forms import decision_forms
from jobs.review.pages.request_page import plan_of
from jobs.review.pages.state import held_slices
from jobs.review.suites.history import OTHER_SPEC, whole_history
from jobs.runs import RunResult, Verdict, WarmUp
from jobs.wall_clock import now_ms
from tests.jobs.replay.test_without_spark import DAY_MS, DAYS, FIRST, linked_lake, make_log
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.no_spark import threads
from tests.support.replays import NOW_MS, context_in, pipeline_of
from tests.support.report_rows import collect
from windowlib.errors import LogError, RequestError

EPOCH: Final = date(1970, 1, 1)
SIZES: Final = Sizes(local_records=10**9)
SESSION: Final = threads()


def pipeline_text(*, windows: str, bound: str, lateness: str) -> str:
    return (
        "pipeline: late\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        f"watermark: {{kind: bounded, out_of_orderness: {bound}}}\n"
        f"windows:\n  {windows}\n  allowed_lateness: {lateness}\n"
        "aggregates: {n: {count: {}}, total: {sum: v}}\n"
    )


def random_pipeline(random: Random) -> Pipeline:
    windows = random.choice(("tumbling: {size: 2h}", "sliding: {size: 4h, slide: 2h}", "session: {gap: 1h}"))
    return pipeline_of(
        pipeline_text(windows=windows, bound=random.choice(("0s", "6h")), lateness=random.choice(("0s", "30m", "3h")))
    )


def start_ms(day: int) -> int:
    return (FIRST + timedelta(days=day) - EPOCH).days * DAY_MS


def run(work: RequestContext, asked: Asked, *, publish: bool = True) -> RequestOutcome:
    return run_request(
        work, asked, lambda order: replay_chunk(SESSION, order, sizes=SIZES), staging=Staging(chunk=2), publish=publish
    )


def run_days(work: RequestContext, first: int, end: int) -> RequestOutcome:
    return run(work, Asked(from_ms=start_ms(first), to_ms=start_ms(end), who="a test", reason=""))


def repair(work: RequestContext, found: LateRepair, *, publish: bool = True) -> RequestOutcome:
    repaired = repairing(work, found)
    warm_up = restart_before(SESSION, repaired, found.slices)
    return run(repaired, asked_for(found, who="a test", warm_up=warm_up), publish=publish)


def shown(work: RequestContext) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return window -> values, as readers see them."""
    rows = published_table(work.lake.root, work.pipeline.name)
    columns = (rows[name].to_pylist() for name in ("k", "window_start", "window_end", "n", "total"))
    return {(key, start, end): (n, total) for key, start, end, n, total in zip(*columns, strict=True)}


def tried_without(work: RequestContext) -> set[str]:
    """Return the slices that a trial of a suite leaves out, because their runs have another spec than the chain."""
    return {*whole_history(work.pipeline.name, work.ledger.view(), Span()).left_out.get(OTHER_SPEC, ())}


def planned(work: RequestContext, end: int) -> Plan:
    slices = slices_between(work.pipeline, start_ms(0), start_ms(end))
    return work.plan(work.ledger.view(), Ask(slices=slices))


@pytest.mark.slow
def test_readers_see_the_windows_of_a_chain_with_the_greater_lateness(tmp_path: Path) -> None:
    """For random logs and windows. The rest of the chain is as without a repair, and rollbacks undo all."""
    repaired_slices = 0
    for seed in seeds(3):
        random, root = Random(seed), tmp_path / str(seed)
        root.mkdir()
        make_log(root / "log", random, keys=[*range(5)], share=random.choice((0.4, 0.9)))
        pipeline = random_pipeline(random)
        mended, plain, model = (linked_lake(root / name, root / "log") for name in ("mended", "plain", "model"))
        work, other = context_in(mended, pipeline), context_in(plain, pipeline)
        head = random.randint(2, DAYS - 1)
        for one in (work, other):
            run_days(one, 0, head)
        before = shown(work)
        found = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
        if not found.late:
            continue
        try:
            outcome = repair(work, found)
        except RequestError:  # sessions that are still open
            assert shown(work) == before
            assert pipeline.windows is not None
            assert pipeline.windows.session is not None
            continue
        assert outcome.is_published
        repaired_slices += len(outcome.runs)
        greater = context_in(model, repairing(work, found).pipeline)
        run_days(greater, 0, head)
        assert shown(work) == shown(greater)
        assert sum(run.result.counts.late for run in outcome.runs) == 0
        assert repair_of(work, from_ms=None, to_ms=None, at_most_ms=None).records == 0
        assert {step.reason for step in planned(work, head).steps} == {Reason.CURRENT}
        assert {step.is_published for step in planned(work, head).steps} == {True}
        assert not verify(work.lake, pipeline.name, work.ledger.view()).findings
        assert tried_without(work) <= {run.result.slice.slice_id for run in outcome.runs}

        assert run_days(work, 0, head).replayed == 0
        ends = [run_days(one, head, DAYS).runs[-1].result for one in (work, other)]
        assert ends[0].run_id == ends[1].run_id
        publications = work.ledger.view().publications
        rollback(work, publication=publications[-1].seq, reason="a test", who="a test")
        rollback(work, publication=publications[-2].seq, reason="a test", who="a test")
        assert shown(work) == before
    assert repaired_slices > 2


def make_small(tmp_path: Path, *, trigger: str = "") -> RequestContext:
    """Two days: a record of the second is 30 hours late for its window of two hours."""
    make_log(tmp_path / "log", Random(3), keys=[*range(4)], share=0.9)
    text = pipeline_text(windows=f"tumbling: {{size: 2h}}{trigger}", bound="0s", lateness="0s")
    return context_in(linked_lake(tmp_path / "lake", tmp_path / "log"), pipeline_of(text))


def append_one(log: Path, day: int, at_ms: int, *, value: int) -> None:
    """Append a record to the slice of a day. `at_ms` is its event time from the first day on."""
    arrived = pa.array([FIRST + timedelta(days=day)], pa.date32())
    rows = {"k": [1], "at": [start_ms(0) + at_ms], "v": [value], "day": arrived}
    write_deltalake(str(log), pa.table(rows), mode="append", partition_by=["day"])


def ordered_context(root: Path, windows: str = "tumbling: {size: 2h}") -> tuple[str, RequestContext]:
    """The text and the context of a pipeline over the log of `append_one`."""
    text = pipeline_text(windows=windows, bound="0s", lateness="0s")
    ordered = text.replace("  slice: {by: day}\n", "  slice: {by: day}\n  order: [v]\n")
    return ordered, context_in(linked_lake(root / "lake", root / "log"), pipeline_of(ordered))


@pytest.mark.slow
def test_a_changed_slice_is_refused_before_anything_is_replayed(tmp_path: Path) -> None:
    def append(day: int, at_ms: int, value: int) -> None:
        append_one(tmp_path / "log", day, at_ms, value=value)

    append(0, DAY_MS // 2, 1)
    append(1, DAY_MS, 2)
    append(1, DAY_MS // 4, 3)
    ordered, work = ordered_context(tmp_path)
    run_days(work, 0, 2)
    late = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    check_current(work, late, None)
    rule = f"{ordered}repair: {{mode: auto, at_most_age: 36500d}}\n"
    append(1, DAY_MS, 4)
    told = r"1 published day changed: .*Replay the changed slices first: hindcast run late --from \S+ --to \S+$"
    with pytest.raises(RequestError, match=told):
        check_current(work, late, None)
    [sentence] = propose_repairs(
        open_request_context(pipeline_of(rule), work.lake, now_ms=lambda: NOW_MS), who="the schedule"
    )
    assert sentence.startswith("no late repair is proposed: 1 published day changed")
    assert not work.ledger.view().open_requests()
    append(2, 3 * DAY_MS // 2, 5)
    append(2, DAY_MS // 4, 6)
    run_days(work, 0, 3)
    check_current(work, late, None)
    killed = killed_repair(work, rule, tmp_path / "late.yaml")
    append(2, 2 * DAY_MS, 7)
    run_days(work, 2, 3)
    propose_repairs(open_request_context(pipeline_of(rule), work.lake, now_ms=lambda: NOW_MS), who="the schedule")
    closed = work.ledger.view().requests[killed]
    assert closed.failure == f"slices were published again after it was opened, first {FIRST + timedelta(days=2)}"
    assert [request.is_proposed for request in work.ledger.view().open_requests()] == [True]


@pytest.mark.slow
def test_the_budget_covers_the_warm_up_and_one_wrong_clock_does_not_exhaust_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice takes a second. One record is later than the log is long, so its repair would begin with the log."""
    log, lateness = tmp_path / "log", DAY_MS * 3 // 4
    for day in range(8):
        append_one(log, day, day * DAY_MS + DAY_MS // 2, value=day)
    for number, (day, late_ms) in enumerate([(4, lateness), (7, lateness), (7, 400 * DAY_MS)], start=8):
        append_one(log, day, day * DAY_MS + DAY_MS // 2 - late_ms, value=number)
    _, work = ordered_context(tmp_path)
    run_days(work, 0, 8)
    monkeypatch.setattr(repair_proposals, "estimator", lambda _view: lambda _records: Estimate(1.0, 1.0, 1.0))

    def within(budget: str, **rule: str) -> list[int]:
        """The first day of the warm-up, and the days of the repair."""
        grammar = RepairGrammar.model_validate({"daily_budget": budget, **rule})
        found, warm_up = within_budget(work, work.ledger.view(), grammar, from_ms=start_ms(0))
        assert warm_up is not None
        return [(slice_.start_ms - start_ms(0)) // DAY_MS for slice_ in (warm_up.first, *found.slices)]

    reads, read = list[str](), StoredRuns.read

    def reading(self: StoredRuns, table: str, runs: Sequence[StagedRun], **columns: Any) -> pa.Table:  # noqa: ANN401
        reads.extend(run.result.slice.slice_id for run in runs)
        return read(self, table, runs, **columns)

    with monkeypatch.context() as patched:
        patched.setattr(StoredRuns, "read", reading)
        repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert reads == [str(FIRST + timedelta(days=day)) for day in (4, 7)], "other slices have no late record to read"
    assert within("9s") == [3, 4, 5, 6, 7]
    assert within("2s") == [3, 4]
    assert within("9s", at_most_lateness="9999d") == [0, 4, 5, 6, 7]
    assert within("7s", at_most_lateness="9999d") == [3, 4], "the first slice without the record of the wrong clock"
    with pytest.raises(RequestError, match=r"take about 2 s, with a warm-up from 1970-01-08 on, .*daily_budget is 1s"):
        within("1s")


def killed_repair(work: RequestContext, rule: str, file: Path) -> str:
    """Propose a repair, start it by itself, and kill its replay; return the request. Its DAG run is to run again."""

    def dies(_order: object) -> list[RunResult]:
        raise LogError("killed")

    file.write_text(rule, encoding="utf-8")
    propose_repairs(open_request_context(pipeline_of(rule), work.lake, now_ms=lambda: NOW_MS), who="the schedule")
    start = to_start(str(file), lake=work.lake.root)
    assert isinstance(start, BackfillStart)
    origin = DagRunOrigin(dag_id="backfill_late", run_id=start.run_id, slice_ids=())
    asked = Asked(from_ms=None, to_ms=None, who="a", reason="", request_id=start.conf["request"], origin=origin)
    order = plan_request(open_request_context(work.pipeline, work.lake, now_ms=now_ms), asked=asked)
    assert isinstance(order, Replay)
    with pytest.raises(LogError, match="killed"):
        replay(
            open_request_context(work.pipeline, work.lake, now_ms=now_ms),
            opened=order.opened,
            slices=order.slices,
            replayer=dies,
        )
    release(open_request_context(work.pipeline, work.lake, now_ms=now_ms), order.opened)
    assert to_start(str(file), lake=work.lake.root) == start
    return order.opened.request_id


@pytest.mark.slow
def test_records_that_are_later_than_asked_stay_late(tmp_path: Path) -> None:
    work = make_small(tmp_path)
    run_days(work, 0, DAYS)
    every = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert every.late
    some = repair_of(work, from_ms=None, to_ms=None, at_most_ms=every.lateness_ms - 1)
    assert some.late
    assert (some.records + some.left, some.lateness_ms < every.lateness_ms) == (every.records, True)
    outcome = repair(work, some)
    assert outcome.is_published
    after = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert after.late or after.left
    assert after.records <= some.left


@pytest.mark.slow
def test_a_later_repair_keeps_what_an_earlier_one_with_a_greater_lateness_took(tmp_path: Path) -> None:
    """Also if the person asks for less. Then it takes all records that this lateness takes, and tells so."""
    for day in range(4):
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 2, value=day)
    hours = [(0, 5), (1, 11), (2, 5), (2, 9), (3, 9)]  # the last one is in no slice that is computed again
    for number, (day, late_h) in enumerate(hours, start=4):
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 2 - late_h * DAY_MS // 24, value=number)
    _, work = ordered_context(tmp_path)
    run_days(work, 0, 4)
    repair(work, repair_of(work, from_ms=start_ms(1), to_ms=start_ms(2), at_most_ms=None))
    later = repair_of(work, from_ms=None, to_ms=None, at_most_ms=DAY_MS // 4)
    assert [slice_.start_ms for slice_ in later.slices] == [start_ms(day) for day in range(3)]
    assert (later.records, later.left) == (3, 1)
    assert repair(work, later).is_published
    last = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert (last.records, repair(work, last).is_published) == (1, True)
    greater = context_in(linked_lake(tmp_path / "model", tmp_path / "log"), repairing(work, later).pipeline)
    run_days(greater, 0, 4)
    assert shown(work) == shown(greater)


@pytest.mark.slow
def test_a_repair_that_a_greater_one_has_overtaken_is_refused(tmp_path: Path) -> None:
    """It was made from what readers saw before."""
    for day in range(2):
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 2, value=day)
    for number, late_h in enumerate((5, 11), start=2):
        append_one(tmp_path / "log", 1, DAY_MS + DAY_MS // 2 - late_h * DAY_MS // 24, value=number)
    _, work = ordered_context(tmp_path)
    run_days(work, 0, 2)
    less, greater = (repair_of(work, from_ms=None, to_ms=None, at_most_ms=limit) for limit in (DAY_MS // 4, None))
    repair(work, greater)
    seen = shown(work)
    with pytest.raises(RequestError, match=r"would show it with 4 h\. Repair again"):
        repair(work, less)
    assert shown(work) == seen
    assert not work.ledger.view().open_requests()


@pytest.mark.slow
def test_a_repair_of_runs_that_readers_do_not_see_any_more_is_not_published(tmp_path: Path) -> None:
    work = make_small(tmp_path)
    run_days(work, 0, 2)
    run_days(work, 2, DAYS)
    found = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert found.late
    staged = repair(work, found, publish=False)
    rollback(work, publication=work.ledger.view().publications[-1].seq, reason="a test", who="a test")
    seen = shown(work)
    attempt = publish_request(work, staged.request_id, who="a test")
    assert not attempt.is_published
    assert "the repair is of other runs than readers see" in attempt.why
    assert shown(work) == seen


def test_the_report_tells_that_a_repair_is_refused(tmp_path: Path) -> None:
    """Defect: `hindcast repair` named a command for records of slices that nothing can replay any more."""
    for day in range(2):
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 2, value=2 * day)
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 4, value=2 * day + 1)
    _, work = ordered_context(tmp_path)
    run_days(work, 0, 2)
    late = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert late.records == 2
    assert not refusal_of(work, late)
    for file in (tmp_path / "log").glob("day=*/*.parquet"):
        file.unlink()
    assert "4 files of the range that do not exist" in refusal_of(work, late)
    append_one(tmp_path / "log", 0, DAY_MS // 2, value=9)
    assert "Replay the changed slices first" in refusal_of(work, late)


@pytest.mark.parametrize("windows", ["tumbling: {size: 2h}", "session: {gap: 2h}"])
def test_the_report_tells_that_the_warm_up_of_a_repair_is_refused(tmp_path: Path, windows: str) -> None:
    """Defect: only the range was looked at, so `hindcast repair` named a command that is refused."""
    append_one(tmp_path / "log", 0, DAY_MS // 2, value=0)
    append_one(tmp_path / "log", 1, DAY_MS + DAY_MS // 2, value=1)
    append_one(tmp_path / "log", 1, DAY_MS // 2 + 1, value=2)
    _, work = ordered_context(tmp_path, windows=windows)
    run_days(work, 0, 2)
    late = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert [slice_.slice_id for slice_ in late.slices] == ["1970-01-06"]
    assert not refusal_of(work, late)
    [file] = (tmp_path / "log").glob("day=1970-01-05/*.parquet")
    file.unlink()
    assert "1 file of the range that does not exist, first day=1970-01-05" in refusal_of(work, late)


@pytest.mark.slow
def test_the_runs_that_the_end_of_a_repair_shows_stop_a_publication_until_they_are_waived(tmp_path: Path) -> None:
    """An edited suite has failed the run of the chain of a day, in whose place readers see the run of the repair."""
    for day in range(3):
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 2, value=2 * day)
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 4, value=2 * day + 1)
    _, work = ordered_context(tmp_path)
    run_days(work, 0, 3)
    repair(work, repair_of(work, from_ms=None, to_ms=None, at_most_ms=None))
    repaired = [*work.ledger.view().repairs]
    append_one(tmp_path / "log", 2, 2 * DAY_MS + DAY_MS // 2, value=9)
    staged = run(work, Asked(from_ms=start_ms(2), to_ms=start_ms(3), who="a test", reason=""), publish=False).request_id
    view = work.ledger.view()
    ended = newly_shown(view, view.requests[staged])
    assert len(ended) > len(view.requests[staged].runs)
    failed_slice, failed = next(
        (name, run_id) for name, run_id in ended.items() if name not in view.requests[staged].runs
    )
    assert failed not in repaired
    failing = replace(view.run(failed), result=replace(view.run(failed).result, verdict=Verdict.FAIL))
    view = replace(view, runs={**view.runs, failed: failing})
    assert judge_publication(work, view, view.requests[staged]).stopped_by == (failed_slice,)
    assert [held.slice_id for held in held_slices(view)] == [failed_slice]
    for of_request, of_run in ((staged, None), (None, failed)):
        forms = decision_forms(work, view, request_id=of_request, run_id=of_run).request
        assert forms is not None
        assert (forms.request_id, [held.run_id for held in forms.held]) == (staged, [failed])
    waiver = SliceWaiver(slice_id=failed_slice, run_id=failed, reason="seen")
    [event] = waive_events(work, view, waivers=[waiver], by=By(who="a test", decision_id="1"), request_id=staged)
    assert event.run_id == failed
    assert publish_request(work, staged, who="a test").is_published
    view = work.ledger.view()
    view = replace(view, runs={**view.runs, failed: failing})  # after the publication, a later request has failed it
    shown_form = decision_forms(work, view, run_id=failed).request
    assert shown_form is not None
    assert (shown_form.request_id, [held.run_id for held in shown_form.held]) == (staged, [failed])
    waive_events(work, view, waivers=[waiver], by=By(who="a test", decision_id="2"), request_id=staged)


@pytest.mark.slow
@pytest.mark.parametrize("is_published", [False, True])
def test_a_waiver_of_a_run_that_the_end_of_a_repair_shows_ends_with_the_request(
    tmp_path: Path, *, is_published: bool
) -> None:
    """Defect: after the cancellation or the rollback, the next request published the failed run without a waiver."""
    for day in range(3):
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 2, value=2 * day)
        append_one(tmp_path / "log", day, day * DAY_MS + DAY_MS // 4, value=2 * day + 1)
    _, work = ordered_context(tmp_path)
    run_days(work, 0, 3)
    repair(work, repair_of(work, from_ms=None, to_ms=None, at_most_ms=None))
    append_one(tmp_path / "log", 2, 2 * DAY_MS + DAY_MS // 2, value=9)
    staged = run(work, Asked(from_ms=start_ms(2), to_ms=start_ms(3), who="a test", reason=""), publish=False).request_id
    view = work.ledger.view()
    request = view.requests[staged]
    name, chain_run = next(pair for pair in newly_shown(view, request).items() if pair[0] not in request.runs)
    waived = LedgerEvent(
        kind=EventKind.WAIVED, request_id=staged, slice_id=name, run_id=chain_run, who="a test", reason="for this one"
    )
    assert work.ledger.write(lambda _: [waived]).run(chain_run).waiver is not None
    if is_published:
        publication = publish_request(work, staged, who="a test")
        assert work.ledger.view().run(chain_run).waiver is not None
        rollback(work, publication.ledger_version, reason="wrong", who="a test")
    else:
        cancel(work, staged, reason="no", by=By(who="a test", decision_id="c"))
    assert work.ledger.view().run(chain_run).waiver is None


@pytest.mark.slow
def test_settled_windows_that_the_end_of_a_repair_takes_back_are_judged(tmp_path: Path) -> None:
    """Defect: an adoption whose own runs are those of the repair was not judged at all."""
    hours = [(day, late_h) for day in range(5) for late_h in ((0, 5, -8) if day else (0, -8))]
    for number, (day, late_h) in enumerate(hours):
        append_one(tmp_path / "log", day, day * DAY_MS + (12 - late_h) * DAY_MS // 24, value=number)
    text, work = ordered_context(tmp_path)
    run_days(work, 0, 5)
    late = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert repair(work, late).is_published
    windows = repairing(work, late).pipeline.windows
    assert windows is not None
    text = text.replace("allowed_lateness: 0s", f"allowed_lateness: {windows.allowed_lateness_ms}ms")
    rule = "publish: {settled: {after: 1h, change_at_most: {share: 0}}}\n"
    work = context_in(work.lake.root, pipeline_of(text + rule))
    warm_up = restart_before(SESSION, work, slices_between(work.pipeline, start_ms(2), start_ms(5)))
    asked = Asked(from_ms=start_ms(2), to_ms=start_ms(5), who="ann", reason="adopt", warm_up=warm_up)
    outcome = run(work, asked, publish=False)
    view = work.ledger.view()
    assert {*view.requests[outcome.request_id].runs.values()} <= {*view.published.values()}
    sides = request_sides(view)  # Defect: the request changed nothing, so `diff` was refused and the report left it out
    assert (sides.request_id, sides.slices) == (outcome.request_id, ("1970-01-06",))
    assert [*collect(work.lake, work.pipeline).effects] == [outcome.request_id]
    attempt = publish_request(work, outcome.request_id, who="ann")
    assert not attempt.is_published
    assert "at most 0 % of the windows may change: found 1 of" in attempt.why
    own = [slice_.slice_id for slice_ in slices_between(work.pipeline, start_ms(2), start_ms(5))]
    opened = Opened(request_id=outcome.request_id, lease_id="")
    held = gate(work, opened=opened, slices=own).held  # Defect: the gate passed, and the task `publish` failed
    assert [run.result.slice.slice_id for run in held] == ["1970-01-06"]
    cancel(work, outcome.request_id, reason="no", by=By(who="ann", decision_id="c"))
    rollback(work, work.ledger.view().standing[-1].seq, reason="wrong", who="ann")
    assert not failing_in_sight(work.ledger.view()), "the judgement of the cancelled request does not count"


@pytest.mark.slow
def test_a_killed_repair_goes_on_with_the_same_runs(tmp_path: Path) -> None:
    work = make_small(tmp_path)
    run_days(work, 0, DAYS)
    found = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert found.late
    repaired = repairing(work, found)
    asked = asked_for(found, who="a test", warm_up=restart_before(SESSION, repaired, found.slices))
    chunks = 0

    def dies(order: Any) -> Any:  # noqa: ANN401 - a replayer
        nonlocal chunks
        chunks += 1
        if chunks == 2:
            raise KeyboardInterrupt
        return replay_chunk(SESSION, order, sizes=SIZES)

    with pytest.raises(KeyboardInterrupt):
        run_request(repaired, asked, dies, staging=Staging(chunk=1))
    [request] = work.ledger.view().open_requests()
    outcome = run(repaired, asked)
    assert (outcome.request_id, outcome.is_published) == (request.request_id, True)


@pytest.mark.slow
def test_a_trigger_that_does_not_fire_for_late_records_is_refused(tmp_path: Path) -> None:
    work = make_small(tmp_path, trigger="\n  trigger: {count: 100}\n  leftovers: report")
    run_days(work, 0, DAYS)
    found = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    assert found.late
    rule = work.pipeline.model_copy(update={"repair": RepairGrammar.model_validate({"at_most_age": "36500d"})})
    propose_repairs(open_request_context(rule, work.lake, now_ms=lambda: NOW_MS), who="the schedule")
    [proposed] = work.ledger.view().open_requests()
    with pytest.raises(RequestError, match="does not fire for late records"):
        repair(work, found)
    closed = work.ledger.view().requests[proposed.request_id]
    assert (closed.is_open, "does not fire for late records" in (closed.failure or "")) == (False, True)
    assert propose_repairs(open_request_context(rule, work.lake, now_ms=lambda: NOW_MS), who="the schedule") == (), (
        "it would be refused again"
    )


@pytest.mark.slow
def test_a_trigger_that_is_not_valid_with_a_lateness_does_not_stop_the_schedule(tmp_path: Path) -> None:
    """`after_watermark` without `late` is allowed only without lateness, and a repair computes with a lateness."""
    work = make_small(tmp_path, trigger="\n  trigger: {after_watermark: {early: {after_count: 2}}}")
    run_days(work, 0, DAYS)
    with pytest.raises(RequestError, match=r"cannot be repaired, because its file is not valid .* `late` trigger"):
        repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    rule = work.pipeline.model_copy(update={"repair": RepairGrammar.model_validate({"at_most_age": "36500d"})})
    [sentence] = propose_repairs(open_request_context(rule, work.lake, now_ms=lambda: NOW_MS), who="the schedule")
    assert sentence.startswith("no late repair is proposed: late records of pipeline late cannot be repaired")
    assert not work.ledger.view().open_requests()


def test_windows_without_end_are_refused(tmp_path: Path) -> None:
    make_log(tmp_path / "log", Random(3), keys=[*range(4)], share=0.9)
    text = pipeline_text(windows="count: {size: 2}", bound="0s", lateness="0s").replace("  allowed_lateness: 0s\n", "")
    work = context_in(linked_lake(tmp_path / "lake", tmp_path / "log"), pipeline_of(text))
    run_days(work, 0, DAYS)
    with pytest.raises(RequestError, match="late records of pipeline late cannot be repaired: its windows do not end"):
        repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)


def test_nothing_published_is_refused(tmp_path: Path) -> None:
    work = make_small(tmp_path)
    with pytest.raises(RequestError, match="no published slice in the range"):
        repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)


class TestProposals:
    """What the schedule proposes with `repair: {mode: propose}`, and how a proposal is started."""

    def proposed(
        self, work: RequestContext, rule: str = "mode: propose, at_most_age: 36500d", *, is_again: bool = False
    ) -> tuple[str, ...]:  # fmt: skip
        text = pipeline_text(windows="tumbling: {size: 2h}", bound="0s", lateness="0s")
        pipeline = pipeline_of(f"{text}repair: {{{rule}}}\n")
        return propose_repairs(
            open_request_context(pipeline, work.lake, now_ms=lambda: NOW_MS), who="the schedule", is_again=is_again
        )

    def opened(self, work: RequestContext) -> list[Request]:
        return list(work.ledger.view().open_requests(RequestKind.REPAIR))

    @pytest.mark.slow
    def test_a_proposal_is_started_as_any_other_and_made_once(self, tmp_path: Path) -> None:
        work = make_small(tmp_path)
        assert self.proposed(work) == ()
        run_days(work, 0, DAYS)
        [sentence] = self.proposed(work)
        assert re.search(r"late repair: .* late records of . slices, .*: proposed as request", sentence)
        [request] = self.opened(work)
        assert request.is_proposed
        shown, problem = plan_of(context_of(work, request.request_id)[0], work.ledger.view(), request)
        assert problem is None
        assert shown is not None
        assert {step.reason for step in shown.steps} <= {Reason.SPEC_CHANGED, Reason.WARM_UP}
        assert "is open" in self.proposed(work)[0]
        asked = Asked(from_ms=request.from_ms, to_ms=request.to_ms, who="a", reason="", request_id=request.request_id)
        order = plan_request(open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS), asked=asked)
        assert isinstance(order, Replay)
        assert len(order.slices) == ((request.to_ms or 0) - (request.from_ms or 0)) // DAY_MS
        context, request = request_to_continue(work, request.request_id, lease_id=order.opened.lease_id)
        asked = replace(asked, kind=request.kind, warm_up=request.warm_up, lease_id=order.opened.lease_id)
        outcome = run(context, asked)
        assert (outcome.request_id, outcome.is_published) == (request.request_id, True)
        assert self.proposed(work) == ()

    @pytest.mark.slow
    def test_a_decision_after_a_wait_reads_no_late_record(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A DAG run decides again each minute. It tells of an open repair all the same."""
        work = make_small(tmp_path)
        run_days(work, 0, DAYS)
        with monkeypatch.context() as patched:
            patched.setattr(repair_proposals, "within_budget", None)
            assert self.proposed(work, is_again=True) == ()
        self.proposed(work)
        assert "is open" in self.proposed(work, is_again=True)[0]

    @pytest.mark.slow
    def test_a_declined_repair_is_not_proposed_again(self, tmp_path: Path) -> None:
        work = make_small(tmp_path)
        run_days(work, 0, DAYS)
        self.proposed(work)
        [request] = self.opened(work)
        cancel(work, request.request_id, reason="known", by=By(who="ann", decision_id="1"))
        assert self.proposed(work) == ()
        assert not self.opened(work)

    @pytest.mark.slow
    def test_age_and_budget_bound_a_proposal(self, tmp_path: Path) -> None:
        work = make_small(tmp_path)
        run_days(work, 0, DAYS)
        assert self.proposed(work, "mode: propose, at_most_age: 1d") == ()
        assert self.proposed(work, "mode: off") == ()
        [sentence] = self.proposed(work, "at_most_age: 36500d, daily_budget: 1ms")
        assert "repair.daily_budget is 1ms" in sentence
        assert not self.opened(work)

    @pytest.mark.slow
    def test_sessions_need_the_log_and_are_told(self, tmp_path: Path) -> None:
        make_log(tmp_path / "log", Random(3), keys=[*range(4)], share=0.9)
        text = pipeline_text(windows="session: {gap: 1h}", bound="0s", lateness="0s")
        pipeline = pipeline_of(text + "repair: {at_most_age: 36500d}\n")
        work = context_in(linked_lake(tmp_path / "lake", tmp_path / "log"), pipeline)
        run_days(work, 0, DAYS)
        first = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None).slices[0]
        sentences = propose_repairs(
            open_request_context(pipeline, work.lake, now_ms=lambda: NOW_MS), who="the schedule"
        )
        assert first.start_ms == start_ms(0) or "needs the times of all earlier records" in sentences[0]


SALES_EDITED: Final = PIPELINE.replace("size: 1d", "size: 2d")
SALES_REPAIRED: Final = PIPELINE.replace("size: 1d}", "size: 1d}, allowed_lateness: 1h")


def published_sales(lake: Path) -> tuple[RequestContext, Asked]:
    """Two published days without Spark, and the request that has published them."""
    for day in ("2024-01-01", "2024-01-02"):
        append_day(lake, day, {"a": 1})
    work = open_request_context(sales(), Lake(root=str(lake)), now_ms=lambda: day_ms("2024-02-01"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ann", reason="")
    run_request(work, asked, FakeReplayer())
    return work, asked


def repaired_sales(lake: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RequestContext, Asked]:
    """A late repair of two published days, without Spark, that is proposed. Only the rows of the first day differ."""
    work, asked = published_sales(lake)
    run_request(replace(work, pipeline=sales(SALES_EDITED)), asked, FakeReplayer(), publish=False)

    def repairs_of(_work: RequestContext, view: LedgerView, request: Request) -> dict[str, str]:
        return {request.runs["2024-01-01"]: view.published["2024-01-01"]}

    monkeypatch.setattr(late_repair, "repairs_of", repairs_of)
    repair_asked = replace(asked, kind=RequestKind.REPAIR, request_id="repair")
    repaired = replace(work, pipeline=sales(SALES_REPAIRED))
    work.ledger.write(lambda _view: [requested_event(repaired, repair_asked, request_id="repair")])
    return repaired, repair_asked


def test_a_complete_repair_that_is_run_again_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: it took its run with the rows of the chain again, and was refused from then on."""
    work, asked = repaired_sales(tmp_path, monkeypatch)
    run_request(work, asked, FakeReplayer(), publish=False)
    outcome = run_request(work, asked, FakeReplayer())
    assert outcome.is_published, outcome.publication
    view = work.ledger.view()
    assert view.repairs.keys() == {view.published["2024-01-01"]}


def test_a_late_repair_settles_no_request_of_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: a staged adoption that waited for a person was closed by an automatic repair of its slices."""
    work, asked = repaired_sales(tmp_path, monkeypatch)
    [adoption, _] = work.ledger.view().open_requests()
    assert run_request(work, asked, FakeReplayer()).is_published
    assert work.ledger.view().open_requests() == (adoption,)


def test_a_repair_is_not_refused_because_other_records_have_left_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the newest run with the state counted as its warm-up, also if a run of the chain's records had left it.

    The repair was refused for ever after the log was restored.
    """
    monkeypatch.setattr(late_repair, "_check_states", lambda *_positional, **_named: None)
    work, asked = published_sales(tmp_path)
    warm_up = WarmUp(first=work.ledger.view().slices["2024-01-01"])
    repaired = replace(work, pipeline=sales(SALES_REPAIRED))
    second = replace(asked, from_ms=day_ms("2024-01-02"), kind=RequestKind.REPAIR, warm_up=warm_up)
    run_request(repaired, second, FakeReplayer(), publish=False)
    append_day(tmp_path, "2024-01-01", {"b": 5, "c": -5})
    assert run_request(repaired, replace(second, if_open=IfOpen.REPLACE), FakeReplayer()).is_published
