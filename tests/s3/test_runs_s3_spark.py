"""Replays of two weeks of flights have the same run ids and digests on a disk and in an object store."""

from pathlib import Path

import pyarrow.fs as pafs
import pytest

from jobs.demo.flights import TABLE
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.readers import published
from jobs.reading.verify import verify
from jobs.replay.pinned import Pinned
from jobs.replay.sizes import Sizes
from jobs.replay.stages import run_chunk
from jobs.storage import file_system
from tests.support.object_store import SOURCE
from tests.support.places import ROOT
from tests.support.replays import NOW_MS, run_range, what_was_run
from tests.support.spark_session import SparkSession

pytestmark = [pytest.mark.s3, pytest.mark.spark]

FROM, TO, SOON = "2013-02-01", "2013-02-15", "2013-02-04"
SMALL = Sizes(
    records_per_task=500, rows_per_file=200, rows_from=50, records_per_columnar_bucket=2_000, full_state_rows=0
)
ORDER = "[dep_delay, flight_id]"


@pytest.fixture(scope="module")
def expected(spark: SparkSession, log: Path) -> list[dict[str, object]]:
    """The runs on the disk, through files."""
    return what_was_run(_run(spark, str(log), _pipeline(), TO))


def _pipeline(table: str = TABLE, *, order: str = "commits") -> Pipeline:
    path = ROOT / "pipelines" / "flights.yaml"
    text = path.read_text(encoding="utf-8").replace(f"table: {TABLE}", f"table: {table}")
    text = text.replace("order: commits", f"order: {order}")
    return parse_pipeline(text, source=str(path))


def _run(spark: SparkSession, lake: str, pipeline: Pipeline, to: str, *, sizes: Sizes | None = None) -> RequestOutcome:
    return run_range(spark, lake, pipeline, (FROM, to), chunk=5, sizes=sizes or Sizes())


def _findings(lake: str) -> tuple[object, ...]:
    place = Lake(root=lake)
    view = Ledger(place.ledger("flights"), now_ms=lambda: NOW_MS).view()
    return verify(place, "flights", view).findings


@pytest.mark.parametrize("sizes", [Sizes(), SMALL], ids=["usual", "small files"])
def test_two_weeks_have_the_same_runs(
    spark: SparkSession, expected: list[dict[str, object]], lake: str, sizes: Sizes
) -> None:
    own = f"{lake}/{sizes.rows_per_file}"
    found = _run(spark, own, _pipeline(f"{SOURCE}/{TABLE}"), TO, sizes=sizes)
    assert what_was_run(found) == expected
    assert _findings(own) == ()


def test_tasks_may_sort_in_the_store(
    spark: SparkSession, log: Path, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = _pipeline(f"{log}/{TABLE}", order=ORDER)  # in a lake of its own: the fixture's has an open request
    expected = what_was_run(_run(spark, str(tmp_path), here, SOON))
    monkeypatch.setattr(run_chunk, "_directory", lambda _tasks, pinned: pinned.order.lake.scratch("flights", "sorted"))
    found = _run(spark, f"{lake}/sorted", _pipeline(f"{SOURCE}/{TABLE}", order=ORDER), SOON, sizes=SMALL)
    assert what_was_run(found) == expected


@pytest.mark.parametrize("is_remote", [False, True], ids=["log in S3", "lake in S3"])
def test_the_log_and_the_lake_may_be_in_different_places(
    spark: SparkSession, log: Path, expected: list[dict[str, object]], lake: str, tmp_path: Path, *, is_remote: bool
) -> None:
    own = f"{lake}/mixed" if is_remote else str(tmp_path)
    table = f"{log}/{TABLE}" if is_remote else f"{SOURCE}/{TABLE}"
    assert what_was_run(_run(spark, own, _pipeline(table), SOON)) == expected[:3]


def test_tasks_may_exchange_rows_through_the_store(
    spark: SparkSession, expected: list[dict[str, object]], lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    def scratch(_spark: object, pinned: Pinned) -> str:
        used.append(pinned.order.lake.scratch("flights", pinned.order.attempt_id))
        return used[-1]

    monkeypatch.setattr(run_chunk, "_directory", scratch)
    found = _run(spark, lake, _pipeline(f"{SOURCE}/{TABLE}"), SOON, sizes=SMALL)
    assert what_was_run(found) == expected[:3]
    for place in used:
        system, root = file_system(place)
        left = system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
        assert [one for one in left if one.type == pafs.FileType.File and one.size] == []


def test_users_read_publications_with_spark(spark: SparkSession, log: Path, lake: str) -> None:
    places = [f"{lake}/read", str(log.parent / "read")]
    for place in places:
        _run(spark, place, _pipeline(f"{SOURCE}/{TABLE}"), SOON)
    shown = [
        sorted(map(str, published(spark, place, "flights").drop("run_id", "attempt_id").collect()))
        for place in (places[0].replace("s3:", "s3a:"), places[1])
    ]
    assert shown[0] == shown[1] != []
