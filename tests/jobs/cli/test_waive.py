"""`hindcast waive`: a waiver is for a run that the person has named or was shown, never for the newest one unseen."""

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import pytest

from jobs.lake.lake import Lake
from jobs.ledger.view import RequestKind, StagedRun
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request_context
from jobs.runs import RunResult
from jobs.wall_clock import now_ms
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FAILS, PIPELINE, append_day, day_ms, sales
from tests.support.fuzzing import seeds

HELD = "2024-01-03"
REASON = ("--reason", "a real sale")


def staged_runs(root: Path) -> list[StagedRun]:
    work = open_request_context(sales(), Lake(root=str(root)), now_ms=now_ms)
    return [run for run in work.ledger.view().runs.values() if run.result.slice.slice_id == HELD]


def waived_ids(root: Path) -> list[str]:
    return [run.result.run_id for run in staged_runs(root) if run.waiver is not None]


@pytest.fixture
def run_id(shell: Shell) -> str:
    """The id of the failed run of a slice."""
    append_day(shell.root, HELD, {"c": FAILS})
    assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-05") == 1
    (staged,) = staged_runs(shell.root)
    return staged.result.run_id


def on_terminal(monkeypatch: pytest.MonkeyPatch, answer: str, before: Callable[[], object] = lambda: None) -> None:
    """Let both ends be a terminal at which a person types `answer`, after `before` has happened."""

    def typed(prompt: str) -> str:
        sys.stdout.write(prompt)
        before()
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(click.termui, "visible_prompt_func", typed)


def test_without_a_run_and_without_a_terminal_the_command_names_what_to_look_at(shell: Shell, run_id: str) -> None:
    for more in ((), ("--json",)):
        assert shell("waive", "sales", HELD, *REASON, *more) == 1
        assert waived_ids(shell.root) == []
        assert "nothing was waived" in shell.err
        assert "total: failed" in shell.err
        assert f"hindcast waive sales {HELD} --run {run_id[:12]}" in shell.err


def test_an_empty_run_names_none(shell: Shell, run_id: str) -> None:
    assert shell("waive", "sales", HELD, "--run", "", *REASON) == 1
    assert run_id[:12] in shell.err
    assert waived_ids(shell.root) == []


@pytest.mark.parametrize(("answer", "status"), [("", 1), ("n", 1), ("y", 0)])
def test_on_a_terminal_the_run_is_shown_and_the_default_answer_is_no(
    shell: Shell, run_id: str, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    on_terminal(monkeypatch, answer)
    assert shell("waive", "sales", HELD, *REASON) == status
    assert f"run {run_id[:12]}" in shell.out
    assert "total: failed" in shell.out
    assert "[y/N]" in shell.out
    assert waived_ids(shell.root) == ([run_id] if answer == "y" else [])
    assert ("nothing was waived" in shell.err) == (answer != "y")


def test_a_program_that_reads_json_is_not_asked(shell: Shell, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, "y")
    assert shell("waive", "sales", HELD, *REASON, "--json") == 1
    assert run_id[:12] in shell.err
    assert waived_ids(shell.root) == []


def test_a_waiver_that_would_be_refused_is_refused_before_the_question(
    shell: Shell, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, "y")
    for words, message in (
        (("waive", "sales", HELD, "--reason", " "), "needs a reason"),
        (("waive", "sales", "2024-01-02", *REASON), "did not fail"),
        (("waive", "sales", "2024-01-05", *REASON), "nothing to waive"),
    ):
        assert shell(*words) == 1
        assert message in shell.err
        assert "[y/N]" not in shell.out
    assert shell("waive", "sales", HELD, *REASON) == 0
    assert shell("waive", "sales", HELD, *REASON) == 1
    assert "already waived, by ann" in shell.err
    assert waived_ids(shell.root) == [run_id]


def test_a_run_that_is_staged_while_the_person_reads_is_not_waived(
    shell: Shell, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile() -> None:
        append_day(shell.root, HELD, {"d": FAILS})
        with monkeypatch.context() as patch:
            patch.setattr(sys.stdin, "isatty", lambda: False)
            shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-05")

    on_terminal(monkeypatch, "y", meanwhile)
    assert shell("waive", "sales", HELD, *REASON) == 1
    assert len(staged_runs(shell.root)) == 2
    assert waived_ids(shell.root) == []
    assert f"waiver names run {run_id[:12]}" in shell.err
    assert "another run was staged since" in shell.err


def test_a_run_whose_checks_change_while_the_person_reads_is_not_waived(
    shell: Shell, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile() -> None:
        shell.replayer.change = also_failing
        assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-05", "--fresh", "--replace") == 1

    on_terminal(monkeypatch, "y", meanwhile)
    assert shell("waive", "sales", HELD, *REASON) == 1
    assert "since you looked" in shell.err
    assert f"there is run {run_id[:12]}" in shell.err
    assert "window_outputs: total: failed; window_outputs: mean: failed" in shell.err
    assert waived_ids(shell.root) == []


@pytest.mark.slow
def test_a_prefix_names_a_run_only_if_no_other_run_begins_with_it(shell: Shell) -> None:
    """Two open requests have different runs of the slice. Their ids share a random number of first digits."""
    append_day(shell.root, HELD, {"c": FAILS})
    for seed in seeds(4):
        chance = random.Random(seed)
        options = "".join(chance.choices("0123456789abcdef", k=chance.randrange(1, 9)))
        work = open_request_context(sales(), Lake(root=str(shell.root)), now_ms=now_ms)
        ids = [f"{options}{digit}{chance.randbytes(30).hex()}"[:64] for digit in chance.sample("0123456789abcdef", 2)]
        for number, name in enumerate(ids):
            shell.replayer.change = partial(named, run_id=name)
            kind = (RequestKind.RANGE, RequestKind.SCHEDULED)[number]  # the schedule is not refused
            end_ms = day_ms(("2024-01-04", "2024-01-05")[number])
            asked = Asked(from_ms=day_ms(HELD), to_ms=end_ms, who="ann", reason=f"{seed}", kind=kind, is_fresh=True)
            assert not run_request(work, asked, shell.replayer).is_published
        length = chance.randrange(1, len(options) + 1)
        assert shell("waive", "sales", HELD, "--run", options[:length], *REASON) == 1, f"seed {seed}"
        assert all(name[:12] in shell.err for name in ids), f"seed {seed}: {shell.err}"
        assert "total: failed" in shell.err
        assert shell("waive", "sales", HELD, *REASON) == 1
        assert all(name[:12] in shell.err for name in ids), f"seed {seed}: {shell.err}"
        chosen = chance.choice(ids)
        assert shell("waive", "sales", HELD, "--run", chosen[: len(options) + 1], *REASON) == 0, f"seed {seed}"
        assert chosen in waived_ids(shell.root)
        assert not ({*ids} - {chosen}) & {*waived_ids(shell.root)}
        for request in shell.json("status", "sales")["pipelines"][0]["requests"]:
            assert shell("cancel", "sales", "--request", request["request_id"], "--reason", "the next case") == 0


def also_failing(result: RunResult) -> RunResult:
    return replace(result, checks=(*result.checks, *(replace(one, check="mean") for one in result.checks)))


def named(result: RunResult, run_id: str) -> RunResult:
    return replace(result, run_id=run_id) if result.slice.slice_id == HELD else result


def test_slices_of_an_earlier_cut_are_named_by_the_ids_that_verify_and_status_print(shell: "Shell") -> None:
    append_day(shell.root, "2024-01-02", {"c": FAILS})
    assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-03") == 1
    edited = PIPELINE.replace("slice: {by: day}", "slice: {by: day, every: 12h}")
    (shell.root / "pipelines" / "sales.yaml").write_text(edited, encoding="utf-8")
    assert shell("mend", "sales", "2024-01-02", "--dry-run") == 0, shell.err
    failed = shell.failed_run("2024-01-02")
    assert shell("waive", "sales", "2024-01-02", "--run", failed, "--reason", "a real sale") == 0, shell.err
    assert shell("publish", "sales") == 0, shell.err
