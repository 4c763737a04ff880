"""Pages of a ledger with 10,000 slices and a million late records need less than a usual second of CPU time."""

from datetime import date
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.review import links
from tests.jobs.airflow_ui.conftest import Clients
from tests.support.big_lake import BigLake
from tests.support.fake_replay import PIPELINE, sales
from tests.support.timing import usual_seconds

pytestmark = [pytest.mark.dags, pytest.mark.slow]

MOST_S = 1.0


def test_pages_of_a_long_history_take_less_than_a_second(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = BigLake(slices=10_000, late=100, first=date(1996, 1, 1))
    lake, pipelines = tmp_path / "lake", tmp_path / "pipelines"
    lake.mkdir()
    pipelines.mkdir()
    big.fill(Lake(root=str(lake)), sales())
    (pipelines / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    monkeypatch.setenv("HINDCAST_LAKE", str(lake))
    monkeypatch.setenv("HINDCAST_PIPELINES", str(pipelines))
    client = clients("viewer")
    middle, last = big.slice_id(5_000), big.slice_id(9_999)
    client.get(links.overview())  # reads the ledger, as the thread does at the start of the server
    client.get(links.rows_page("sales", middle, "late_records"))  # imports the libraries
    paths = [
        links.overview(),
        f"{links.PREFIX}/held.json",
        links.pipeline_page("sales"),
        f"{links.pipeline_page('sales')}?last={middle}",
        links.slice_page("sales", last),
        links.slice_page("sales", middle),
        links.rows_page("sales", last, "late_records"),
        f"{links.rows_page('sales', middle, 'late_records')}?sort=late_by_ms&order=desc&page=2",
        links.request_page("sales", f"{9_000:032x}"),
        links.record_page("sales", "record 999000"),
        links.compare_page("sales"),
    ]
    slow = {}
    for path in paths:

        def got(path: str = path) -> None:
            assert client.get(path).status_code == 200, path

        took = usual_seconds(got, enough=MOST_S)
        if took > MOST_S:
            slow[path] = took
    assert slow == {}


def test_pages_of_a_slice_with_a_million_late_records_take_less_than_a_second(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = BigLake(slices=2, late=500_000)
    lake, pipelines = tmp_path / "lake", tmp_path / "pipelines"
    lake.mkdir()
    pipelines.mkdir()
    big.fill(Lake(root=str(lake)), sales())
    (pipelines / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    monkeypatch.setenv("HINDCAST_LAKE", str(lake))
    monkeypatch.setenv("HINDCAST_PIPELINES", str(pipelines))
    client = clients("viewer")
    path = links.rows_page("sales", big.slice_id(1), "late_records")
    client.get(path)
    slow = {}
    for query in ("", "?page=5000", "?sort=late_by_ms&order=desc", "?column=rank&how=at+least&value=499990"):

        def got(query: str = query) -> None:
            answer = client.get(f"{path}{query}")
            assert answer.status_code == 200
            assert "the content of the rows was not" in answer.text

        took = usual_seconds(got, enough=MOST_S)
        if took > MOST_S:
            slow[query] = took
    assert slow == {}
