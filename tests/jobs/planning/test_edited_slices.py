"""An edited `log.slice`: readers see no record twice and none never, because slices that do not fit are refused."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.orchestration.requests import run_request
from jobs.pipeline.models.log import SliceGrammar
from jobs.pipeline.slices import parse_bound
from jobs.planning.request_context import Asked, open_request_context
from jobs.publishing.decisions import rollback
from tests.support.fake_replay import PIPELINE, FakeReplayer, day_ms, sales
from windowlib.errors import RequestError

HOUR_MS = 3_600_000
DAYS = [f"2024-01-{day:02d}" for day in range(1, 7)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log of six days, cut by a column of times. Each day has a file."""
    for day in DAYS:
        rows = [
            {"id": f"{day} {hour}", "key": "a", "amount": 1, "at_ms": day_ms(day), "ts": datetime.fromisoformat(day)}
            for hour in range(2)
        ]
        write_deltalake(tmp_path / "event_logs" / "sales", pa.Table.from_pylist([*map(_in_utc, rows)]), mode="append")
    return tmp_path


def _in_utc(row: dict[str, object]) -> dict[str, object]:
    assert isinstance(row["ts"], datetime)
    return row | {"day": str(row["ts"].date()), "ts": row["ts"].replace(hour=12, tzinfo=UTC)}


def replayed(root: Path, cut: str, start: str, end: str) -> LedgerView:
    """Replay and publish a range with an edited `log.slice`; return the ledger."""
    text = PIPELINE.replace("slice: {by: day}", f"slice: {{by: ts, {cut}}}")
    work = open_request_context(sales(text), Lake(root=str(root)), now_ms=lambda: day_ms("2024-01-09"))
    bounds = [parse_bound(work.pipeline, bound) for bound in (start, end)]
    asked = Asked(from_ms=bounds[0], to_ms=bounds[1], who="ann", reason="test", is_fresh=True)
    run_request(work, asked, FakeReplayer())
    return work.ledger.view()


@pytest.mark.parametrize(
    ("published", "edited", "start", "end"),
    [
        ("timezone: Europe/Berlin", "timezone: UTC", "2024-01-03", "2024-01-05"),
        ("timezone: UTC", "timezone: Europe/Berlin", "2024-01-03", "2024-01-05"),
        ("timezone: UTC", "timezone: Asia/Tokyo", "2024-01-01", "2024-01-03"),
        ("timezone: UTC", "timezone: America/New_York", "2024-01-05", "2024-01-06"),
        ("every: 1d", "every: 12h", "2024-01-03", "2024-01-05"),
        ("every: 12h", "every: 1d", "2024-01-01", "2024-01-05"),
    ],
)
def test_slices_that_do_not_fit_the_published_ones_are_refused(
    root: Path, published: str, edited: str, start: str, end: str
) -> None:
    before = replayed(root, published, "2024-01-01", "2024-01-05")
    with pytest.raises(RequestError, match="cuts the log of pipeline sales into other slices than readers see") as info:
        replayed(root, edited, start, end)
    assert "Restore `log.slice`" in str(info.value)
    after = replayed(root, published, "2024-01-05", "2024-01-06")
    assert list(after.published)[: len(before.published)] == list(before.published)


@pytest.mark.parametrize("rules", [("Etc/GMT+4", "Etc/GMT+3"), ("Etc/GMT+3", "Etc/GMT+4")])
def test_an_update_of_the_time_zone_rules_counts_no_hour_twice_or_never(
    root: Path, monkeypatch: pytest.MonkeyPatch, rules: tuple[str, str]
) -> None:
    """The file, and so the spec, is the same. The day after the head, as the schedule takes it, may be refused."""

    def published(rule: str, start: str, end: str) -> LedgerView:
        monkeypatch.setattr(SliceGrammar, "zone", property(lambda _: ZoneInfo(rule)))
        work = open_request_context(sales(text), Lake(root=str(root)), now_ms=lambda: day_ms("2024-01-09"))
        bounds = [parse_bound(work.pipeline, bound) for bound in (start, end)]
        run_request(work, Asked(from_ms=bounds[0], to_ms=bounds[1], who="ann", reason="test"), FakeReplayer())
        return work.ledger.view()

    def edges(view: LedgerView) -> list[int]:
        slices = [view.run(run_id).result.slice for run_id in view.published.values()]
        assert [view.slices[slice_.slice_id] for slice_ in slices] == slices
        assert all(one.end_ms == other.start_ms for one, other in pairwise(slices))
        return [slices[0].start_ms, slices[-1].end_ms]

    text = PIPELINE.replace("slice: {by: day}", "slice: {by: ts, timezone: America/Asuncion}")
    before = published(rules[0], "2024-01-01", "2024-01-05")
    with pytest.raises(
        RequestError, match=r"An update of tzdata has moved the edge: replay 2024-01-04 in the same req"
    ):
        published(rules[1], "2024-01-05", "2024-01-06")
    assert edges(published(rules[0], "2024-01-01", "2024-01-05")) == edges(before)
    after = edges(published(rules[1], "2024-01-01", "2024-01-06"))
    assert [new - old for new, old in zip(after, edges(before), strict=True)] == [
        (hours := int(rules[1][-1]) - int(rules[0][-1])) * HOUR_MS, (24 + hours) * HOUR_MS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("published", "edited", "start", "end"),
    [
        ("timezone: Europe/Berlin", "timezone: UTC", "2024-01-01", "2024-01-05"),
        ("timezone: UTC", "timezone: Asia/Tokyo", "2024-01-01", "2024-01-05"),
        ("every: 1d", "every: 12h", "2024-01-05", "2024-01-06"),
    ],
)
def test_slices_that_replace_all_published_ones_or_follow_them_are_published(
    root: Path, published: str, edited: str, start: str, end: str
) -> None:
    replayed(root, published, "2024-01-01", "2024-01-05")
    view = replayed(root, edited, start, end)
    slices = [view.run(run_id).result.slice for run_id in view.published.values()]
    assert all(one.end_ms == other.start_ms for one, other in pairwise(slices))
    assert [view.slices[slice_.slice_id] for slice_ in slices] == slices
    work = open_request_context(sales(), Lake(root=str(root)), now_ms=lambda: day_ms("2024-01-09"))
    rollback(work, view.standing[-1].seq, reason="test", who="ann")
    view = work.ledger.view()
    slices = [view.run(run_id).result.slice for run_id in view.published.values()]
    assert [view.slices[slice_.slice_id] for slice_ in slices] == slices
