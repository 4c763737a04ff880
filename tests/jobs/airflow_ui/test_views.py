"""The views of the ledgers that the pages share."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.airflow_ui import views
from jobs.airflow_ui.views import Views
from jobs.lake.delta_tables import commit_stamp
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request_context
from jobs.storage import FileStamp
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales

DAYS = ("2024-01-01", "2024-01-02")


def published(root: Path, days: int, name: str = "sales") -> Lake:
    for day in DAYS:
        if not (root / "event_logs" / "sales" / f"day={day}").exists():
            append_day(root, day, {"a": 1})
    lake = Lake(root=str(root))
    work = open_request_context(sales(PIPELINE.replace("sales", name, 1)), lake, now_ms=lambda: day_ms("2024-02-01"))
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[0]) + days * 86_400_000, who="me", reason="r")
    run_request(work, asked, FakeReplayer())
    return lake


@pytest.mark.parametrize("days", [1, 2])
def test_a_lake_made_anew_at_a_place_is_read_anew_also_if_its_directories_are_the_same(
    tmp_path: Path, days: int
) -> None:
    lake, other, kept = published(tmp_path / "one", 1), published(tmp_path / "other", days), Views()
    assert [*kept.view(lake, "sales").published] == [DAYS[0]]
    ledger, anew = Path(lake.ledger("sales")), Path(other.ledger("sales"))
    for old in [file for file in ledger.rglob("*") if file.is_file()]:
        old.unlink()
    shutil.copytree(anew, ledger, dirs_exist_ok=True)
    assert kept.view(lake, "sales").runs == Ledger(str(anew), now_ms=lambda: 0).view().runs


def test_a_lake_made_anew_while_it_is_read_is_read_anew_by_the_next_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the former view was kept with the stamp of the new commit. In a store, it was a request more."""
    lake, other, kept = published(tmp_path / "one", 1), published(tmp_path / "other", 1), Views()
    ledger, anew = Path(lake.ledger("sales")), Path(other.ledger("sales"))
    view, asked = Ledger.view, list[int]()
    kept.view(lake, "sales")

    def noted(uri: str, version: int) -> FileStamp | None:
        asked.append(version)
        return commit_stamp(uri, version)

    def replaced(read: Ledger) -> object:
        seen = view(read)
        shutil.rmtree(ledger)
        shutil.copytree(anew, ledger)
        return seen

    monkeypatch.setattr(views, "commit_stamp", noted)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "view", replaced)
        kept.view(lake, "sales")
    assert len(asked) == 1
    assert kept.view(lake, "sales").runs == Ledger(str(anew), now_ms=lambda: 0).view().runs


def test_a_round_over_many_ledgers_opens_each_of_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"sales_{number}" for number in range(70)]
    opened: list[str] = []

    def noted(uri: str, now_ms: Callable[[], int]) -> Ledger:
        opened.append(uri)
        return Ledger(uri, now_ms=now_ms)

    monkeypatch.setattr(views, "Ledger", noted)
    lake, kept = Lake(root=str(tmp_path)), Views()
    for _ in range(3):
        for name in names:
            kept.view(lake, name)
    assert sorted(opened) == sorted(lake.ledger(name) for name in names)
