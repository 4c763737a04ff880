"""The page of a real ledger, which a replayer without Spark has written."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, RequestState
from jobs.orchestration.requests import run_request
from jobs.pipeline.slices import SliceGrid, previous_slice, slice_of_id
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.reading.verify import Span
from jobs.review.metrics import gauges
from jobs.review.pages.state import pipeline_state
from jobs.review.report.collect import Part, collect_view
from jobs.review.report.model import MAX_LISTED_SLICES, Status, build_model
from jobs.review.report.page import write_report
from jobs.review.report.rows import LateRow, ReportRows
from jobs.review.report.slice_calendar import strips
from jobs.review.suites.history import whole_history
from jobs.runs import RunResult, Slice, Verdict
from tests.support.fake_replay import FAILS, PIPELINE, SIDE, FakeReplayer, append_day, day_ms, sales, write_rows
from tests.support.report_rows import collect, many_days, with_result
from tests.support.waiving import waive_newest
from windowlib.errors import RequestError

NOW_MS = day_ms("2024-02-01")
HOUR_MS = 3_600_000


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    """Four days, the third of which fails its check."""
    for day, amount in (("2024-01-01", 1), ("2024-01-02", 2), ("2024-01-03", FAILS), ("2024-01-04", 4)):
        append_day(tmp_path, day, {"a": amount, "b": 1})
    return open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: NOW_MS)


def run(work: RequestContext, start: str, end: str, replayer: FakeReplayer | None = None) -> None:
    asked = Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="ines", reason="because <b>")
    run_request(work, asked, replayer or FakeReplayer())


def collected(work: RequestContext) -> ReportRows:
    return collect(work.lake, work.pipeline)


def statuses(work: RequestContext) -> list[Status]:
    return [line.status for line in build_model(collected(work)).lines]


def test_a_pipeline_without_runs_has_an_empty_page(work: RequestContext, tmp_path: Path) -> None:
    rows = collected(work)
    assert (rows.slices, rows.runs, rows.as_of_ms, rows.ledger_version) == ((), {}, None, 0)
    assert "Nothing has been replayed yet" in Path(write_report(work.lake, work.pipeline)).read_text(encoding="utf-8")
    with pytest.raises(RequestError, match=r"cannot be written to .*misspelled: No such file"):
        write_report(work.lake, work.pipeline, tmp_path / "misspelled" / "sales.html")
    assert not (tmp_path / "misspelled").exists()


def test_a_failed_slice_holds_all_of_its_request_until_it_is_waived(work: RequestContext) -> None:
    run(work, "2024-01-01", "2024-01-05")
    assert statuses(work) == [Status.STAGED, Status.STAGED, Status.FAIL, Status.STAGED]
    waive_newest(work, "2024-01-03", reason="seen", who="ines")
    assert statuses(work) == [Status.STAGED, Status.STAGED, Status.WAIVED, Status.STAGED]
    publish(work, who="ines")
    assert statuses(work) == [Status.PASS, Status.PASS, Status.WAIVED, Status.PASS]
    rows = collected(work)
    (waiver,) = [found.waiver for found in rows.runs.values() if found.waiver]
    assert (waiver.who, waiver.reason, waiver.at_ms) == ("ines", "seen", NOW_MS)
    assert [sorted(one.changes) for one in rows.publications] == [[f"2024-01-0{day}" for day in range(1, 5)]]


def test_a_cancelled_experiment_is_not_the_newest_run_of_a_published_slice(work: RequestContext) -> None:
    run(work, "2024-01-01", "2024-01-03")
    counting = replace(work, pipeline=sales(PIPELINE.replace("{sum: amount}", "{count: {}}")))
    fails = FakeReplayer(change=lambda result: replace(result, verdict=Verdict.FAIL))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="ines", reason="an experiment")
    tried = run_request(counting, asked, fails)
    assert statuses(work) == [Status.FAIL, Status.PASS]
    cancel(work, tried.request_id, reason="no", by=By(who="ines", decision_id="1"))
    assert build_model(collected(work)).headline == "All 2 slices published"
    history = whole_history("sales", work.ledger.view(), Span())
    assert (history.slice_ids, history.left_out) == (("2024-01-01", "2024-01-02"), {})


def test_a_run_that_a_later_request_has_taken_over_is_the_newest(work: RequestContext) -> None:
    """The request that staged it is closed."""
    run(work, "2024-01-01", "2024-01-05")
    append_day(Path(work.lake.root), "2024-01-04", {"c": 1})
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-05"), who="bo", reason="", if_open=IfOpen.REPLACE)
    run_request(work, asked, FakeReplayer())
    view = work.ledger.view()
    [newest] = view.open_requests()
    assert view.run(newest.runs["2024-01-03"]).request_id != newest.request_id
    assert {name: run.result.run_id for name, run in view.newest_runs().items()} == newest.runs
    assert statuses(work) == [Status.STAGED, Status.STAGED, Status.FAIL, Status.STAGED]


def test_slices_between_two_replayed_ranges_are_missing(work: RequestContext) -> None:
    run(work, "2024-01-01", "2024-01-02")
    asked = Asked(from_ms=day_ms("2024-01-04"), to_ms=day_ms("2024-01-05"), who="x", reason="y", is_fresh=True)
    run_request(work, asked, FakeReplayer())
    found = statuses(work)
    assert (len(found), found[1:3]) == (4, [Status.MISSING, Status.MISSING])


def test_a_part_looks_for_missing_slices_only_as_far_back_as_it_shows(
    work: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice was tried years before the live ones."""
    looks: list[Slice] = []

    def counting(grid: SliceGrid, slice_: Slice) -> Slice | None:
        looks.append(slice_)
        return previous_slice(grid, slice_)

    monkeypatch.setattr("jobs.review.report.collect.previous_slice", counting)
    pipeline = sales(PIPELINE.replace("{by: day}", "{by: day, every: 5m}"))
    tried, live = (slice_of_id(pipeline, text) for text in ("2014-01-01T00:00", "2024-01-01T00:00"))
    view = LedgerView(version=1, slices={slice_.slice_id: slice_ for slice_ in (tried, live)})
    rows = collect_view(work.lake, pipeline, view, part=Part(count=10))
    assert [slice_.slice_id for slice_ in rows.slices[::9]] == ["2023-12-31T23:15", "2024-01-01T00:00"]
    assert len(looks) <= 10


def test_an_empty_slice_is_a_state_of_its_own_on_every_screen(work: RequestContext) -> None:
    """In the calendar, the headline, the overview of the pages, and the gauges."""
    append_day(Path(work.lake.root), "2024-01-07", {"a": 1})
    run(work, "2024-01-01", "2024-01-03")
    asked = Asked(from_ms=day_ms("2024-01-05"), to_ms=day_ms("2024-01-08"), who="x", reason="y", is_fresh=True)
    run_request(work, asked, FakeReplayer())
    assert statuses(work)[4:] == [Status.EMPTY, Status.EMPTY, Status.PASS]
    text = Path(write_report(work.lake, work.pipeline)).read_text(encoding="utf-8")
    assert '<a class="c-empty"' in text
    assert "2024-01-06: empty, published; 0 read" in text
    view = work.ledger.view()
    assert pipeline_state(work, view).sees.endswith("2 slices without a record")
    found = gauges(work, view)
    assert (found["empty_slices"], found["unpublished_slices"], found["waiting_seconds"]) == (2, 24, 23 * 86_400)


def test_empty_slices_of_many_years_are_hatched() -> None:
    rows = many_days(MAX_LISTED_SLICES + 1)
    empty = {
        slice_id: with_result(one, counts=replace(one.result.counts, read=0)) for slice_id, one in rows.runs.items()
    }
    drawn = "".join(strip.drawing for strip in strips(build_model(replace(rows, runs=empty))))
    assert '<path class="s-empty" d="M' in drawn
    assert "l3 -3M" in drawn, "diagonal lines"


def test_the_page_has_the_counts_and_ids_of_the_ledger(work: RequestContext) -> None:
    run(work, "2024-01-01", "2024-01-03")
    view, rows = work.ledger.view(), collected(work)
    assert rows.ledger_version == view.version
    for slice_id, run_id in view.published.items():
        assert rows.runs[slice_id] == view.run(run_id)
    assert {line.is_published for line in build_model(rows).lines} == {True}
    (request,) = rows.requests
    assert (request.who, request.reason, request.state) == ("ines", "because <b>", RequestState.PUBLISHED)
    assert len(request.runs) == 2


def test_lateness_comes_only_from_the_late_records_of_the_newest_attempt(work: RequestContext) -> None:
    def two_late(result: RunResult) -> RunResult:
        return replace(result, counts=replace(result.counts, read=5, assigned=3, late=2))

    late_by = [10 * 60_000, 5 * HOUR_MS, 7 * HOUR_MS]
    rows: list[dict[str, object]] = [
        {"slice_id": "2024-01-01", "rank": rank, "late_by_ms": late_ms, "missed_all": rank < 2}
        for rank, late_ms in enumerate(late_by)
    ]
    replayer = FakeReplayer(change=two_late, beside={"2024-01-01": {"late_records": rows}})
    run(work, "2024-01-01", "2024-01-02", replayer)
    other = replace(replayer.orders[0], attempt_id="another attempt")
    write_rows(other, SIDE["late_records"], [rows[0] | {"attempt_id": "another attempt", "run_id": "another run"}])
    late = collected(work).late["2024-01-01"]
    assert (late.count, late.max_ms, late.classes) == (2, 5 * HOUR_MS, (1, 0, 0, 1, 0, 0, 0))


DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")


@pytest.fixture
def all_late(work: RequestContext) -> RequestContext:
    """Four days that one attempt has replayed. Each has two late records, the second day's two hours late and so on."""

    def two_late(result: RunResult) -> RunResult:
        return replace(result, counts=replace(result.counts, read=4, late=2))

    beside: dict[str, dict[str, list[dict[str, object]]]] = {
        day: {"late_records": [{"rank": rank, "late_by_ms": hours * HOUR_MS, "missed_all": True} for rank in range(2)]}
        for hours, day in enumerate(DAYS, start=1)
    }
    run(work, "2024-01-01", "2024-01-05", FakeReplayer(change=two_late, beside=beside))
    return work


def with_lateness(work: RequestContext, part: Part) -> tuple[list[str], list[str], int]:
    """Return the slices of a part, those with lateness, and the number of those whose lateness was left out."""
    rows = collect_view(work.lake, work.pipeline, work.ledger.view(), part=part)
    late = {slice_id: row.max_ms // HOUR_MS for slice_id, row in rows.late.items()}
    assert late == {slice_id: DAYS.index(slice_id) + 1 for slice_id in late}
    return [one.slice_id for one in rows.slices], sorted(late), rows.late_left_out


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("last", [None, *DAYS])
def test_a_part_has_the_slices_up_to_its_last_one(all_late: RequestContext, count: int, last: str | None) -> None:
    end = len(DAYS) if last is None else DAYS.index(last) + 1
    wanted = list(DAYS[max(0, end - count) : end])
    assert with_lateness(all_late, Part(count=count, last=last)) == (wanted, wanted, 0)


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_a_part_reads_the_lateness_of_few_slices_and_rows_the_newest_first(all_late: RequestContext, most: int) -> None:
    """Each slice has two late records, so 2 n + 1 rows are those of n slices."""
    newest = list(DAYS[len(DAYS) - most :])
    for part in (
        Part(count=4, late_slices=most),
        Part(count=4, late_rows=2 * most),
        Part(count=4, late_rows=2 * most + 1),
    ):
        assert with_lateness(all_late, part) == (list(DAYS), newest, 4 - most)


def test_lateness_that_was_read_before_counts_towards_no_limit(all_late: RequestContext) -> None:
    known: dict[tuple[str, str], LateRow] = {}
    for read in (2, 4, 4):
        part = Part(count=4, late_slices=2, known=known)
        assert with_lateness(all_late, part)[1:] == (list(DAYS[4 - read :]), 4 - read)


def test_the_page_is_replaced_in_one_step_and_is_reproducible(work: RequestContext, tmp_path: Path) -> None:
    run(work, "2024-01-01", "2024-01-03")
    path = Path(write_report(work.lake, work.pipeline))
    first = path.read_text(encoding="utf-8")
    assert path == tmp_path / "reports" / "sales.html"
    assert Path(write_report(work.lake, work.pipeline)).read_text(encoding="utf-8") == first
    assert [one.name for one in path.parent.iterdir()] == ["sales.html"]
    assert "because &lt;b&gt;" in first
