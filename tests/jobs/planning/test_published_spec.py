"""The message that the published spec is lost names only commands that go on with the chain."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.engine import fingerprints
from jobs.lake.lake import Lake
from jobs.lake.log_version import LogPlace
from jobs.ledger.projection import project
from jobs.pipeline.slices import slices_between
from jobs.planning import published_spec
from jobs.planning.chains import chain_before
from jobs.planning.log_state import LogState
from jobs.planning.published_spec import on_published_spec, why_lost
from jobs.planning.request_context import open_request_context
from jobs.planning.spec_changes import border_warning, spec_changes
from jobs.planning.stored_spec import stored_pipeline
from jobs.runs import WarmUp
from tests.jobs.planning.test_plan import coordinates
from tests.support.fake_replay import PIPELINE, append_day, day_ms, sales
from tests.support.ledger_chains import published_chain
from windowlib.errors import HindcastError, LedgerError, LogError, StoreError

WINDOWS = "windows: {tumbling: {size: 1d}}"
BY_THE_HEAD = "go on with the pipeline file: `hindcast adopt sales`"
FROM_THE_START = f"{BY_THE_HEAD} with --from the log's first slice, or a new chain, which has no earlier records"


@pytest.mark.parametrize(
    ("windows", "advice"),
    [
        (WINDOWS, BY_THE_HEAD),
        ("windows: {session: {gap: 1h}}", BY_THE_HEAD),
        ("windows: {global: {}, trigger: {continuous: {every: 1h}}}", FROM_THE_START),
        ("windows: {count: {size: 3}}", FROM_THE_START),
        ("windows: {storm: {length: 10s, lag: 1s}}", FROM_THE_START),
        ("windows: {tumbling: {size: 1d, stagger: natural}}", FROM_THE_START),
        ("windows: {session: {gap: 1h}, time: processing}", FROM_THE_START),
        ("windows: {dynamic_session: {gap: {column: amount, unit: ms}}}", FROM_THE_START),
    ],
)
def test_a_lost_spec_names_what_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: str, advice: str
) -> None:
    """Defect: `adopt` was named for all windows, and refused for those that do not end by time."""
    text = PIPELINE.replace(WINDOWS, windows)
    if not {"storm", "processing", "natural"}.isdisjoint(re.findall(r"\w+", windows)):
        text = text.replace("  record_id: id\n", "  arrival_time: {column: at_ms, unit: ms}\n  record_id: id\n")
    if "storm" in windows:
        text = text.replace("watermark: {kind: ascending}\n", "")
    slices = slices_between(sales(text), day_ms("2024-01-01"), day_ms("2024-01-03"))
    chain = published_chain(sales(text), slices, log=coordinates())
    work, view = (
        open_request_context(sales(text), Lake(root=str(tmp_path)), now_ms=lambda: 0),
        project(chain, version=9),
    )
    assert not why_lost(work, view)
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    assert why_lost(work, view).partition(" (")[0].endswith(advice)


def test_a_spec_with_functions_is_not_compiled(tmp_path: Path) -> None:
    """That would import code of users into Airflow's servers. This module does not exist."""
    text = PIPELINE.replace(
        "{tumbling: {size: 1d}}", "{tumbling: {size: 1d}, trigger: {function: {name: m:f, version: a}}}"
    )
    append_day(tmp_path, "2024-01-01", {"a": 1})
    slices = slices_between(sales(text), day_ms("2024-01-01"), day_ms("2024-01-03"))
    work = open_request_context(sales(text), Lake(root=str(tmp_path)), now_ms=lambda: 0)
    assert not why_lost(work, project(published_chain(sales(text), slices, log=coordinates()), version=9))


@pytest.mark.parametrize("damage", [LogError, LedgerError, StoreError])
def test_the_spec_of_the_chain_is_told_without_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: type[HindcastError]
) -> None:
    """Defects: `show` of a pipeline that reads another one wrote its log, and failed if that ledger was damaged."""

    def fail(*_: object) -> LogPlace:
        raise damage("it is damaged")

    monkeypatch.setattr(published_spec, "log_place", fail)
    edited = sales(PIPELINE.replace("{sum: amount}", "{max: amount}"))
    work = open_request_context(edited, Lake(root=str(tmp_path)), now_ms=lambda: 0)
    slices = slices_between(edited, day_ms("2024-01-01"), day_ms("2024-01-03"))
    view = project(published_chain(sales(), slices, log=coordinates()), version=9)
    used, [warning] = on_published_spec(work, view)
    assert "hindcast adopt" in warning
    assert not why_lost(used, view), "the reader of the log tells the damage"


@pytest.mark.parametrize(
    ("log", "place"),
    [
        ("  table: event_logs/moved\n", "event_logs/moved"),
        ("  pipeline: other\n", "event_logs/sales"),
        ("  table: event_logs/moved\n  format: parquet\n", "event_logs/sales"),
    ],
)
def test_a_log_that_was_moved_is_read_there_although_another_edit_is_not_adopted(log: str, place: str) -> None:
    """Defects: the schedule waited at the old place for ever, and `run --request` read it. Kinds differ in keys.

    And the schedule wrote into a directory with the former name of the pipeline.
    """
    edited = PIPELINE.replace("  table: event_logs/sales\n", log).replace("order: [id]", "order: [amount]")
    if "pipeline: other" in log:
        edited = edited.replace("{column: at_ms, unit: ms}", "{column: window_time}").replace("{by: day}", "{}")
        edited = edited.replace("  order: [amount]\n", "")
    slices = slices_between(sales(), day_ms("2024-01-01"), day_ms("2024-01-03"))
    view = project(published_chain(sales(), slices, log=coordinates()), version=9)
    request = next(iter(view.requests.values()))
    stored = stored_pipeline(sales(edited.replace("pipeline: sales", "pipeline: shop")), request)
    used = stored.log
    assert stored.name == "shop"
    assert (used.table, used.format, used.order) == (place, "delta", sales().log.order)


def test_the_schedule_of_the_file_counts_although_another_edit_is_not_adopted(tmp_path: Path) -> None:
    """Defect: with a schedule that is new, no hole was told, and nothing was behind it, until the edit was adopted."""
    unscheduled = sales(PIPELINE.replace('schedule: "0 6 * * *"\n', ""))
    slices = slices_between(unscheduled, day_ms("2024-01-01"), day_ms("2024-01-03"))
    view = project(published_chain(unscheduled, slices, log=coordinates()), version=9)
    edited = sales(PIPELINE.replace("{sum: amount}", "{max: amount}"))
    work = open_request_context(edited, Lake(root=str(tmp_path)), now_ms=lambda: 0)
    used, [_] = on_published_spec(work, view)
    assert used.pipeline.schedule == edited.schedule


def test_a_chain_that_goes_on_from_another_spec_begins_again_as_it_did() -> None:
    """Defect: after an adoption, a restatement of its first slice was proposed, and refused each time."""
    adopted = sales(PIPELINE.replace("{sum: amount}", "{max: amount}"))
    slices = slices_between(adopted, day_ms("2024-01-01"), day_ms("2024-01-04"))
    warm_up = WarmUp(first=slices[1], fingerprint="w" * 64)
    after = published_chain(adopted, slices[2:], log=coordinates(), warm_up=warm_up)
    events = [
        *published_chain(sales(), slices[:2], log=coordinates()),
        *(replace(event, request_id="q") for event in after),
    ]
    view = project([replace(event, seq=seq) for seq, event in enumerate(events, start=1)], version=9)
    start = chain_before(
        adopted, view, LogState(version=9, coordinates={}, first_data=slices[0]), first=slices[2], is_fresh=False
    )
    assert start.warm_up == warm_up


@pytest.mark.parametrize(("quality", "told"), [("", False), ("quality: {suite: expectations/a.json}\n", True)])
def test_checks_that_count_after_the_adoption_only_are_told(tmp_path: Path, quality: str, *, told: bool) -> None:
    """Defect: a suite that was named together with another edit did not check the slices of the schedule, untold."""
    slices = slices_between(sales(), day_ms("2024-01-01"), day_ms("2024-01-03"))
    view = project(published_chain(sales(), slices, log=coordinates()), version=9)
    edited = sales(PIPELINE.replace("{sum: amount}", "{max: amount}") + quality)
    work = open_request_context(edited, Lake(root=str(tmp_path)), now_ms=lambda: 0)
    used, [warning] = on_published_spec(work, view)
    assert used.pipeline.quality is None
    assert ("and has the checks of its `quality` from then on" in warning) is told


@pytest.mark.parametrize(("by", "told"), [("{by: ts}", True), ("{by: day, timezone: Europe/Berlin}", False)])
def test_records_that_other_columns_put_into_slices_are_told(by: str, *, told: bool) -> None:
    """Defect: the warning promised a check that does not exist for records of two slices."""
    changes = spec_changes(sales(), sales(PIPELINE.replace("{by: day}", by)))
    first, last = slices_between(sales(), day_ms("2024-01-01"), day_ms("2024-01-03"))
    warning = border_warning(changes, first=last, published=first)
    assert warning is not None
    assert ("No check tells records that the former columns" in warning) is told
