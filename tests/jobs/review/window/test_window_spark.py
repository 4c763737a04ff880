"""The explanation of a window whose trigger is a user's function, and whose records are read by Spark's workers."""

from pathlib import Path

from jobs.replay.tasks import SparkTasks
from jobs.review.window.explanation import AskedWindow, explain_window, key_columns_of
from jobs.review.window.wanted import key_of_text
from tests.support.explained_windows import FIRST_MS, row, shop_of
from tests.support.random_windows import SAYS_EVERYTHING
from tests.support.replays import context_in, run_range
from tests.support.spark_session import SparkSession


def test_the_function_of_a_user_runs_again_and_workers_read_the_records(spark: SparkSession, tmp_path: Path) -> None:
    trigger = f"{{function: {SAYS_EVERYTHING}}}"
    windows = f"{{tumbling: {{size: 1h}}, trigger: {trigger}, leftovers: report, accumulation: discarding}}"
    shop = shop_of(tmp_path / "lake", windows)
    shop.append(0, [row(number, at=1 + number / 20, amount=number) for number in range(10)])
    shop.append(0, [row(10, at=1.2, amount=4), row(11, at=1.1, user="y")])
    run_range(spark, shop.root, shop.pipeline, ("2026-03-01", "2026-03-02"))
    view = context_in(shop.root, shop.pipeline).ledger.view()
    key = key_of_text(shop.pipeline, "x", key_columns_of(shop.lake, shop.pipeline))
    asked = AskedWindow(key=key, start_ms=FIRST_MS + 3_600_000)
    found = explain_window(shop.lake, shop.pipeline, asked, view=view, reading=lambda _: SparkTasks(spark.sparkContext))
    assert found.counts == {"counted": 11}
    assert found.differences == ()
    assert [pane.row["all"] for pane in found.panes if pane.row["kind"] == "result"]
