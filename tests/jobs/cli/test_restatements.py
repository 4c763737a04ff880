"""Changed slices on the command line: status, metrics, run --request, cancel."""

import re
from typing import TYPE_CHECKING

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.view import Request
from jobs.pipeline.models.restate import RestateGrammar
from jobs.planning.request_context import open_request_context
from jobs.planning.restating import propose
from jobs.wall_clock import now_ms
from tests.support.fake_replay import PIPELINE, append_day, sales

if TYPE_CHECKING:
    from tests.jobs.cli.conftest import Shell

TOLD = "1 published day changed: 2024-01-02, 2 records then, 3 now"


@pytest.fixture
def changed(shell: "Shell") -> "Shell":
    """Four published days, of which one has another record now."""
    (shell.root / "pipelines" / "sales.yaml").write_text(f"{PIPELINE}restate: {{at_most_age: 9999d}}\n")
    shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-05")
    append_day(shell.root, "2024-01-02", {"late": 7})
    return shell


def proposal(shell: "Shell") -> Request:
    work = open_request_context(sales(), Lake(root=str(shell.root)), now_ms=now_ms)
    found = propose(work, rule=RestateGrammar.model_validate({"at_most_age": "9999d"}), who="schedule").proposal
    assert found is not None
    return found


def test_status_and_metrics_tell_the_change_before_and_after_the_proposal(changed: "Shell") -> None:
    assert changed("status", "sales") == 0
    assert TOLD in changed.out
    assert "2024-01-02: the next scheduled run proposes to restate it" in changed.out
    assert changed.json("metrics")["sales"]["changed_slices"] == 1
    request = proposal(changed)
    found = changed.json("metrics")["sales"]
    assert (found["proposed_restatements"], found["open_requests"]) == (1, 0)
    found = changed.json("status", "sales")["pipelines"][0]
    assert found["changed"]["slices"] == ["2024-01-02"]
    assert found["changed"]["proposal"] == request.request_id
    assert changed("status", "sales") == 0
    flat = " ".join(changed.out.split())
    assert f"hindcast run sales --request {request.request_id[:12]} --no-publish" in flat


def test_without_a_schedule_nothing_proposes_and_status_names_the_command(changed: "Shell") -> None:
    """Defect: `status` told that the next scheduled run proposes the restatement, and there is none."""
    text = re.sub(r"^schedule: .*\n", "", PIPELINE, flags=re.MULTILINE)
    (changed.root / "pipelines" / "sales.yaml").write_text(f"{text}restate: {{at_most_age: 9999d}}\n")
    assert changed("status", "sales") == 0
    flat = " ".join(changed.out.split())
    assert "2024-01-02: not proposed, because the pipeline has no schedule. To restate it: hindcast run sales" in flat
    assert "schedule;" not in flat
    command = flat.partition("To restate it: hindcast ")[2].split(" ")[:6]
    assert changed(*command) == 0
    assert changed("status", "sales") == 0
    assert "not proposed" not in changed.out


def test_run_continues_a_proposal_and_publishes_it(changed: "Shell") -> None:
    request = proposal(changed)
    assert changed("run", "sales", "--request", request.request_id[:6], "--no-publish") == 0
    assert changed("publish", "sales", "--request", request.request_id) == 0
    assert changed.json("metrics")["sales"]["changed_slices"] == 0
    assert changed.json("status", "sales")["pipelines"][0]["changed"] == {
        "slices": [], "proposal": None, "sentences": [],
    }  # fmt: skip
    assert changed("run", "sales", "--request", request.request_id) == 1
    assert "is published; make a new request" in " ".join(changed.err.split())


def test_cancel_declines_a_proposal(changed: "Shell") -> None:
    request = proposal(changed)
    assert changed("cancel", "sales", "--request", request.request_id[:6], "--reason", "a test sale") == 0
    assert "declined by" in changed.out
    assert changed("status", "sales") == 0
    assert "a test sale" in changed.out
    assert changed.json("metrics")["sales"]["changed_slices"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Missing option '--from'. Give --from and --to, or --event-time or --request."),
        (("--from", "2024-01-01"), "Missing option '--to'"),
        (("--from", "2024-01-01", "--request", "a"), "--request has its own range"),
        (("--fresh", "--request", "a"), "--request has its own range"),
    ],
)
def test_the_range_or_a_request_is_needed(changed: "Shell", options: tuple[str, ...], message: str) -> None:
    assert changed("run", "sales", *options) == 2
    assert message in " ".join(changed.err.split())


def test_a_log_that_cannot_be_read_is_told_and_hides_nothing_else(changed: "Shell") -> None:
    (changed.root / "event_logs" / "sales").rename(changed.root / "event_logs" / "gone")
    assert changed("status", "sales") == 0
    assert "the published slices were not compared with the log" in " ".join(changed.out.split())
    assert "readers see 4 slices" in changed.out
    found = changed.json("metrics")["sales"]
    assert "changed_slices" not in found
    assert found["published_slices"] == 4
