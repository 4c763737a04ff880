"""The progress of a request is the same in `run --progress json`, `status`, `status --watch` and its page."""

import json
from typing import Any
from unittest.mock import patch

import pytest

from jobs.cli import status
from jobs.lake.lake import Lake
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.review.pages.request_page import plan_of, request_page
from jobs.review.report.model import Status
from jobs.runs import SHOWN_DIGITS
from jobs.wall_clock import now_ms
from tests.jobs.cli.conftest import Shell
from tests.support.commands import Commands
from tests.support.fake_replay import FAILS, PIPELINE, append_day, sales

RANGE = ("--from", "2024-01-01", "--to", "2024-01-05")


def context(shell: Shell) -> RequestContext:
    return open_request_context(sales(), Lake(root=str(shell.root)), now_ms=now_ms)


def test_progress_is_told_as_lines_of_json(shell: Shell) -> None:
    found = shell.json("run", "sales", *RANGE, "--chunk", "3", "--progress", "json")
    assert len(found["runs"]) == 4
    lines = [json.loads(line) for line in shell.err.splitlines()]
    assert [(line["replaying"], [*line["staged"]], line["slices_done"], line["slices"]) for line in lines] == [
        (["2024-01-01", "2024-01-03"], [], 0, 4),
        (["2024-01-01", "2024-01-03"], ["2024-01-01", "2024-01-02", "2024-01-03"], 3, 4),
        (["2024-01-04", "2024-01-04"], [], 3, 4),
        (["2024-01-04", "2024-01-04"], ["2024-01-04"], 4, 4),
    ]
    assert lines[1]["records"] == lines[2]["records"] == 6
    assert lines[2]["seconds_left"] == 0.5, "the plan knows the runs of the first chunk"
    assert lines[3]["seconds_left"] is None
    shell("run", "sales", *RANGE, "--fresh", "--progress", "none")
    assert not [line for line in shell.err.splitlines() if "2024-01-0" in line]


def test_every_line_on_standard_error_is_json(shell: Shell) -> None:
    """Also the reason why a request is held, an error of usage and an error of a file."""
    append_day(shell.root, "2024-01-05", {"x": FAILS})
    assert shell("run", "sales", *RANGE, "--progress", "json") == 0
    progress = [json.loads(line) for line in shell.err.splitlines()]
    assert all("sentence" in line for line in progress)
    assert shell("run", "sales", "--from", "2024-01-05", "--to", "2024-01-06", "--progress", "json") == 1
    *_, held = [json.loads(line) for line in shell.err.splitlines()]
    assert held["message"].startswith("not published: held by 2024-01-05")
    for wrong in (("run", "sales", "--chunk", "none"), ("run", "unknown", *RANGE), ("run", "sales", "--from", "5th")):
        assert shell(*wrong, "--progress", "json") == 2
        *_, error = [json.loads(line) for line in shell.err.splitlines()]
        assert error["message"].startswith("error: ")
    assert shell("run", "unknown", *RANGE) == 2
    assert shell.err.startswith("error: "), "the next command of the process prints text"


def test_log_records_and_warnings_on_standard_error_are_json() -> None:
    program = (
        "import logging, warnings; from jobs.console import complain_in_json, log_to_stderr; log_to_stderr(); "
        "complain_in_json(); logging.warning('a %s', 'b\\x1b[2J'); warnings.warn('c'); logging.error('d\\ne')"
    )
    with Commands() as commands:
        _, told = commands.python("-c", program).communicate()
    messages = [json.loads(line)["message"] for line in told.splitlines()]
    assert messages[0] == "WARNING a b\\x1b[2J"
    assert messages[1].startswith("WARNING <string>:1: UserWarning: c")
    assert messages[2] == "ERROR d\\ne"


class Stopped(Exception):  # noqa: N818 - no error
    """Ends a watch."""


def test_every_place_tells_the_same_progress(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    """In the middle of a replay: the command that replays, the status, the watch and the page of the request."""
    seen: list[dict[str, Any]] = []

    def look(_order: object) -> None:
        work = context(shell)
        view = work.ledger.view()
        (request,) = view.open_requests()
        planned, _ = plan_of(work, view, request)
        seen.append(request_page(work, view, request, planned=planned).progress.to_json())
        with pytest.raises(Stopped), patch.object(status, "sleep", stop):
            status._watch([work], as_json=True)
        written = capsys.readouterr()
        seen.append({name: value for name, value in json.loads(written.out).items() if name in seen[0]})
        seen.append(json.loads(written.err.splitlines()[-1]))
        (state,) = status._state(work)["requests"]
        seen.append(state["progress"])
        assert status._progress(state) == f"being worked on: {state['progress']['sentence']}"

    def stop(_seconds: float) -> None:
        raise Stopped

    shell.replayer.on_order = look
    shell("run", "sales", *RANGE, "--chunk", "3", "--progress", "json")
    assert len(seen) == 8
    for four in (seen[:4], seen[4:]):
        page, watched, ran, told = four
        assert page == watched == told == {name: ran[name] for name in page}
    assert seen[4]["sentence"].startswith("3 of 4 slices, watermark ")
    assert seen[4]["sentence"].endswith("late 0 %, about 1 s left")


def test_a_ledger_that_cannot_be_read_does_not_end_the_watch_of_the_others(shell: Shell) -> None:
    shell("run", "sales", *RANGE)
    (shell.root / "pipelines" / "another.yaml").write_text(PIPELINE.replace("sales", "another", 1), encoding="utf-8")
    commits = shell.root / "another" / "ledger" / "_delta_log"
    commits.mkdir(parents=True)
    (commits / f"{0:020}.json").write_text("{", encoding="utf-8")
    assert shell("status", "--watch") == 1
    assert "sales: readers see 4 slices" in shell.out
    assert "another: broken: " in shell.out


def test_a_watch_ends_with_the_status_when_nothing_is_worked_on(shell: Shell) -> None:
    shell("run", "sales", *RANGE)
    assert shell("status", "sales", "--watch") == 0
    assert shell.out.startswith("sales: readers see 4 slices")


def test_a_slice_that_a_request_leaves_as_it_is_counts_as_done_and_keeps_its_status(shell: Shell) -> None:
    """After it, `status` tells the command that publishes, and not that the slices are published."""
    shell("run", "sales", *RANGE)
    append_day(shell.root, "2024-01-04", {"z": 9})
    shell("run", "sales", *RANGE, "--no-publish")
    work = context(shell)
    view = work.ledger.view()
    (request,) = view.open_requests()
    page = request_page(work, view, request, planned=None)
    assert [*request.runs] == ["2024-01-04"]
    assert [(line.status, line.effect.split(";")[0]) for line in page.lines[2:]] == [
        (Status.PASS, "readers see this run"),
        (Status.STAGED, f"replaces run {view.published['2024-01-04'][:12]} with other rows"),
    ]
    assert (page.progress.done, page.progress.total, page.progress.records) == (4, 4, 9)
    (state,) = status._state(work)["requests"]
    name = request.request_id[:SHOWN_DIGITS]
    assert state["publication"] == f"ready: hindcast publish sales --request {name} publishes 1 slice"
