"""What a person is told to publish, what `publish` takes without --request, and published slices that fail."""

import json
import re
from dataclasses import replace

import pytest

from expectations.loader import SUITES_VARIABLE
from jobs.lake.lake import Lake
from jobs.planning.request_context import open_request_context
from jobs.planning.suites import suite_fingerprint
from jobs.review.report.page import newest_differences
from jobs.runs import RunResult
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FAILS, PIPELINE, append_day, sales
from tests.support.report_rows import collect

FIRST, SECOND, HELD = "2024-01-01", "2024-01-02", "2024-01-03"
QUALITY = f"{PIPELINE}quality: {{suite: expectations/sales.json, fail_on: critical}}\n"


def run(shell: Shell, start: str, end: str, *more: str) -> int:
    return shell("run", "sales", "--from", start, "--to", end, *more)


def waive(shell: Shell, slice_id: str) -> int:
    return shell("waive", "sales", slice_id, "--run", shell.failed_run(slice_id), "--reason", "real")


def published(shell: Shell) -> list[list[str]]:
    ranges: list[list[str]] = shell.json("status", "sales")["pipelines"][0]["published_ranges"]
    return ranges


def test_a_waiver_names_the_request_that_is_to_be_published(shell: Shell) -> None:
    append_day(shell.root, HELD, {"bad": FAILS})
    assert run(shell, FIRST, HELD) == 0
    assert run(shell, HELD, "2024-01-04") == 1
    assert run(shell, "2024-01-05", "2024-01-06", "--no-publish", "--fresh") == 0
    assert waive(shell, HELD) == 0
    command = re.search("next: hindcast (publish sales --request [0-9a-f]{12})", shell.out)
    assert command is not None
    assert shell(*command[1].split()) == 0
    assert f"published: 1 slice published together (request {command[1][-12:]}, {HELD}; ledger version " in shell.out
    assert published(shell) == [[FIRST, HELD]]


def test_a_range_that_is_not_published_names_the_next_command_and_a_newer_candidate_is_not_compared(
    shell: Shell,
) -> None:
    assert run(shell, FIRST, SECOND, "--no-publish") == 0
    told = shell.out
    [request] = shell.json("status", "sales")["pipelines"][0]["requests"]
    command = f"publish sales --request {request['request_id'][:12]}"
    assert f"next: hindcast {command}" in told
    assert run(shell, FIRST, SECOND, "--as-candidate") == 0
    lake = Lake(root=str(shell.root))
    view = open_request_context(sales(), lake, now_ms=lambda: 0).ledger.view()
    differences = newest_differences(lake, "sales", view)
    assert differences is not None
    assert differences.request_id == request["request_id"]
    assert shell(*command.split()) == 0


def test_publish_is_refused_if_several_requests_can_be_published(shell: Shell) -> None:
    assert run(shell, FIRST, SECOND, "--no-publish") == 0
    assert run(shell, HELD, "2024-01-05", "--no-publish", "--fresh") == 0
    assert shell("publish", "sales") == 1
    assert "has 2 requests that can be published" in shell.err
    assert f"({HELD}, 2024-01-04); " in shell.err
    assert f"({FIRST}). Nothing was published" in shell.err
    first = re.search(rf"([0-9a-f]{{12}}) \({FIRST}\)", shell.err)
    assert first is not None
    assert published(shell) == []
    assert shell("publish", "sales", "--request", first[1]) == 0
    assert shell("publish", "sales") == 0, "the other one alone is left"
    assert len(published(shell)) == 2


@pytest.mark.parametrize("rule", ["", "publish: {settled: {after: 1h, change_at_most: {share: 0.9}}}\n"])
def test_the_waiver_of_one_of_two_held_slices_names_the_other(shell: Shell, rule: str) -> None:
    """Defect: it named the publication, which is refused; also before settled windows are judged again."""
    (shell.root / "pipelines" / "sales.yaml").write_text(PIPELINE + rule)
    for day in (HELD, "2024-01-04"):
        append_day(shell.root, day, {"bad": FAILS})
    assert run(shell, FIRST, "2024-01-05", "--no-publish") == 1
    assert run(shell, "2024-01-05", "2024-01-06", "--fresh") == 0
    assert waive(shell, HELD) == 0
    assert "cannot be published yet: held by 2024-01-04" in shell.out.splitlines()[-1]
    assert waive(shell, "2024-01-04") == 0
    assert shell.out.splitlines()[-1].startswith("next: hindcast publish sales")


@pytest.mark.slow
def test_the_waiver_of_a_candidate_names_it(shell: Shell) -> None:
    append_day(shell.root, HELD, {"bad": FAILS})
    assert run(shell, FIRST, HELD) == 0
    assert run(shell, HELD, "2024-01-04", "--as-candidate") == 1
    assert f"held by {HELD}: window_outputs: total: failed" in shell.err
    assert "next: hindcast publish" not in shell.out, "the publication would be refused"
    assert run(shell, "2024-01-04", "2024-01-05", "--no-publish", "--fresh") == 0
    assert waive(shell, HELD) == 0
    [candidate] = [
        request["request_id"]
        for request in shell.json("status", "sales")["pipelines"][0]["requests"]
        if request["kind"] == "candidate"
    ]
    assert run(shell, HELD, "2024-01-04", "--as-candidate") == 0
    assert f"next: hindcast publish sales --request {candidate[:12]}" in shell.out


def test_the_report_tells_of_each_publication_what_status_tells(shell: Shell) -> None:
    """Defect: it told of each open request that all its slices are published at once."""
    append_day(shell.root, HELD, {"bad": FAILS})
    assert run(shell, FIRST, HELD) == 0
    assert run(shell, HELD, "2024-01-04") == 1
    assert run(shell, HELD, "2024-01-04", "--as-candidate") == 1
    assert run(shell, "2024-01-05", "2024-01-06", "--no-publish", "--fresh") == 0
    requests = shell.json("status", "sales")["pipelines"][0]["requests"]
    told = {request["request_id"]: request["publication"] for request in requests}
    rows = collect(Lake(root=str(shell.root)), sales())
    assert [*rows.effects] == [*reversed(told)]
    [ready, *stopped] = rows.effects.items()
    assert ready[1] == "Publishes 1 slice."
    assert told[ready[0]].endswith("publishes 1 slice")
    assert [effect for _, effect in stopped] == [f"Not possible now: {told[name]}." for name, _ in stopped]
    assert all(f"held by {HELD}" in effect for _, effect in stopped)


@pytest.fixture
def suite(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Published slices that the suite allows."""

    def judged(result: RunResult) -> RunResult:
        return replace(result, extras={"checks_fingerprint": suite_fingerprint(sales(QUALITY))})

    (shell.root / "suites").mkdir()
    monkeypatch.setenv(SUITES_VARIABLE, str(shell.root / "suites"))
    (shell.root / "pipelines" / "sales.yaml").write_text(QUALITY)
    shell.replayer.change = judged
    limit(shell, 100)
    assert run(shell, FIRST, HELD) == 0
    return shell


def limit(shell: Shell, most: int) -> None:
    check = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": most}}
    document = {"window_outputs": {"name": "sales", "expectations": [check | {"severity": "critical"}]}}
    (shell.root / "suites" / "sales.json").write_text(json.dumps(document))


def test_a_published_slice_that_fails_an_edited_suite_is_told_and_waived(suite: Shell) -> None:
    limit(suite, 2)
    told = f"readers see 1 slice with failed checks: {SECOND}: window_outputs: total: failed. They stay published; "
    for _ in range(2):  # the second one replays nothing
        assert run(suite, FIRST, HELD) == 1
        assert "1 passed, 1 failed; published." in suite.out
        assert told in suite.err
        assert (
            f"let a slice pass with `hindcast waive PIPELINE SLICE --run RUN --reason …` ({SECOND} --run " in suite.err
        )
    assert suite("status", "sales") == 0
    assert told in suite.out
    assert waive(suite, SECOND) == 0
    assert "readers see this run already; there is nothing to publish" in suite.out
    assert suite("status", "sales") == 0
    assert "1 passed, 1 waived" in suite.out
    assert "failed" not in suite.out
    assert run(suite, FIRST, HELD) == 0
    assert suite("waive", "sales", SECOND, "--run", "0", "--reason", "again") == 1
    assert "there is nothing to waive" in suite.err
