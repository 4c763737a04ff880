"""`hindcast metrics`: the gauges follow what happens to a pipeline, and Prometheus can read them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobs.review.metrics import HELP
from tests.support.fake_replay import FAILS, PIPELINE, append_day

if TYPE_CHECKING:
    from tests.jobs.cli.conftest import Shell

RANGE = ("--from", "2024-01-01", "--to", "2024-01-05")


def gauges(shell: "Shell", status: int = 0) -> dict[str, float]:
    """Return what Prometheus reads for the pipeline: the same as the JSON form."""
    assert shell("metrics") == status
    read = {
        sample.name.removeprefix("hindcast_"): sample.value
        for family in text_string_to_metric_families(shell.out)
        for sample in family.samples
        if sample.labels == {"pipeline": "sales"}
    }
    plain = shell.json("metrics")["sales"]
    age = "newest_publication_age_seconds"
    assert {name: value for name, value in read.items() if name != age} == {
        name: pytest.approx(value) for name, value in plain.items() if name != age
    }
    assert shell("metrics") == status
    return read


def test_the_gauges_follow_a_request_from_a_failed_check_to_its_rollback(shell: "Shell") -> None:
    nothing = gauges(shell)
    assert (nothing["readable"], nothing["published_slices"], nothing["open_requests"]) == (1, 0, 0)
    assert "newest_publication_age_seconds" not in nothing

    append_day(shell.root, "2024-01-03", {"c": FAILS})
    assert shell("run", "sales", *RANGE) == 1
    held = gauges(shell)
    assert (held["held_slices"], held["open_requests"], held["published_slices"]) == (1, 1, 0)

    assert (
        shell("waive", "sales", "2024-01-03", "--run", shell.failed_run("2024-01-03"), "--reason", "a real sale") == 0
    )
    assert gauges(shell)["held_slices"] == 0
    assert shell("publish", "sales") == 0
    seen = gauges(shell)
    assert (seen["published_slices"], seen["newest_publication_slices"], seen["open_requests"]) == (4, 4, 0)
    assert seen["newest_publication_records"] == 9
    assert 0 <= seen["newest_publication_age_seconds"] < 600
    assert {"readable", *HELP} >= seen.keys()

    newest = str(shell.json("status", "sales")["pipelines"][0]["newest_publication"]["publication"])
    assert shell("rollback", "sales", "--publication", newest, "--reason", "no") == 0
    back = gauges(shell)
    assert (back["rolled_back"], back["published_slices"]) == (1, 0)
    assert "newest_publication_slices" not in back, "the only publication is rolled back"
    assert "newest_publication_age_seconds" in back


def test_an_edited_cut_changes_no_gauge_and_no_status_until_it_is_adopted(shell: "Shell") -> None:
    assert shell("run", "sales", *RANGE) == 0
    assert shell("run", "sales", "--from", "2024-01-05", "--to", "2024-01-06", "--no-publish") == 0
    times = {"newest_publication_age_seconds", "waiting_seconds"}
    before, (told,) = gauges(shell), shell.json("status", "sales")["pipelines"]
    text = PIPELINE.replace("slice: {by: day}", "slice: {by: day, timezone: America/New_York}")
    (shell.root / "pipelines" / "sales.yaml").write_text(text, encoding="utf-8")
    after, (state,) = gauges(shell), shell.json("status", "sales")["pipelines"]
    assert {name: after[name] for name in after.keys() - times} == {
        name: before[name] for name in before.keys() - times
    }
    assert len(state["edited"]) == 1
    assert state | {"edited": []} == told


def test_a_pipeline_that_cannot_be_read_is_a_gauge_and_an_exit_status(shell: "Shell") -> None:
    for name in ("other", "not UTF-8 \udcff\n"):
        (shell.root / "pipelines" / f"{name}.yaml").write_text("pipeline: other\n", encoding="utf-8")
    assert gauges(shell, status=1)["readable"] == 1
    assert r'hindcast_readable{pipeline="not UTF-8 \\udcff\\n"} 0.0' in shell.out
    assert 'hindcast_readable{pipeline="other"} 0.0' in shell.out
    assert shell("run", "sales", *RANGE) == 0
    (commit,) = Path(shell.root, "sales", "ledger", "_delta_log").glob("*03.json")
    commit.write_text("{", encoding="utf-8")
    assert shell("metrics") == 1
    assert 'hindcast_readable{pipeline="sales"} 0.0' in shell.out
    assert "hindcast_published_slices" not in shell.out
    assert shell.err.startswith("sales: ledger ")


@pytest.mark.parametrize("command", ["metrics", "status"])
def test_a_directory_without_pipeline_files_is_an_error(shell: "Shell", command: str) -> None:
    """Nothing was printed, and the status was 0: a directory that is not mounted looks so."""
    (shell.root / "pipelines" / "sales.yaml").unlink()
    assert shell(command) == 2
    assert f"the directory {shell.root / 'pipelines'} has no pipeline file" in shell.err
