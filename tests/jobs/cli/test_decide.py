"""`hindcast publish` and `cancel` on a request of a DAG run: what is told about Airflow, and what is refused."""

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.provenance import DagRunOrigin
from jobs.orchestration import outside_airflow
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request_context
from jobs.wall_clock import now_ms
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FakeReplayer, day_ms, sales

RUN = "manual__2024-01-05T06:00:00+00:00"


@pytest.fixture
def request_id(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """A request that a DAG run has staged."""
    for name in (outside_airflow.URL, outside_airflow.TOKEN, outside_airflow.USER, outside_airflow.PASSWORD):
        monkeypatch.delenv(name, raising=False)
    work = open_request_context(sales(), Lake(root=str(shell.root)), now_ms=now_ms)
    origin = DagRunOrigin(dag_id="backfill_sales", run_id=RUN, slice_ids=("2024-01-01", "2024-01-02"))
    asked = Asked(
        from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ines (Airflow)", reason="a test", origin=origin
    )
    return run_request(work, asked, FakeReplayer(), publish=False).request_id


def test_publish_tells_what_to_clear_in_airflow(shell: Shell, request_id: str) -> None:
    assert shell("publish", "sales", "--request", request_id) == 0
    assert "published: 2 slices" in shell.out
    assert f"backfill_sales {RUN}" in shell.err
    assert "`gate`" in shell.err


def test_publish_says_that_airflow_does_not_answer_after_it_has_published(
    shell: Shell, request_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert request_id
    monkeypatch.setenv(outside_airflow.URL, "http://127.0.0.1:9")
    assert shell("publish", "sales") == 1, "nothing is published before the settings are right"
    assert "neither HINDCAST_AIRFLOW_TOKEN nor both" in shell.err
    monkeypatch.setenv(outside_airflow.TOKEN, "s3cret")
    assert shell("publish", "sales") == 1
    assert "published: 2 slices" in shell.out
    assert "does not answer" in shell.err
    assert "s3cret" not in shell.out + shell.err


def test_cancel_takes_the_first_letters_of_a_request(shell: Shell, request_id: str) -> None:
    assert shell("cancel", "sales", "--request", request_id[:6], "--reason", " ") == 1
    assert shell("cancel", "sales", "--request", request_id[:6], "--reason", "the wrong range") == 0
    assert f"request {request_id} is cancelled by ann: the wrong range" in shell.out
    assert shell("publish", "sales", "--request", request_id) == 1
    assert "cancelled by ann" in shell.err
    assert shell("cancel", "sales", "--request", "nothing", "--reason", "x") == 1
    assert "has no request nothing" in shell.err


@pytest.mark.parametrize("text", ["pipeline: [", "pipeline: sales\nslide: 0\n", "pipeline: sold\n"])
def test_a_broken_pipeline_file_stops_neither_show_nor_a_rollback(shell: Shell, text: str) -> None:
    """Defect: both ended with the error of the file, although the ledger has the spec."""
    assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-03") == 0
    assert shell("run", "sales", "--from", "2024-01-03", "--to", "2024-01-04") == 0
    before = shell.json("status", "sales")["pipelines"][0]
    file = shell.root / "pipelines" / "sales.yaml"
    file.write_text(text)
    for name in ("sales", str(file)):
        assert shell("show", name) == 0
        assert shell.err.startswith("the spec of the published chain is used, because the pipeline file is broken: ")
        assert len(shell.err.strip().splitlines()) == 1
    assert shell("rollback", "sales", "--publication", "1", "--reason", "wrong") == 1
    assert (
        shell(
            "rollback", "sales", "--publication", str(before["newest_publication"]["publication"]), "--reason", "wrong"
        )
        == 0
    )
    assert "rolled back" in shell.out
    assert shell("run", "sales", "--from", "2024-01-03", "--to", "2024-01-04") == 2
    assert shell("show", "nothing") == 2
    (shell.root / "sales").rename(shell.root / "shop")
    file.rename(file.with_stem("shop"))
    assert shell("show", "shop") == 0
    assert "no published windows" not in shell.out, "the directory was renamed since"
