"""`hindcast run` on a range of which another open request has slices: refused, replaced, or waited for."""

import pytest

from jobs.cli import adopt, run as cli_run
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FAILS, append_day

HELD = "2024-01-03"
RANGE = ("--from", "2024-01-01", "--to", "2024-01-05")
SHORTER = ("--from", "2024-01-01", "--to", "2024-01-04")


@pytest.fixture
def request_id(shell: Shell) -> str:
    """The request of ann that a failed check holds."""
    append_day(shell.root, HELD, {"c": FAILS})
    assert shell("run", "sales", *RANGE, "--reason", "late files") == 1
    [request] = shell.json("status", "sales")["pipelines"][0]["requests"]
    return str(request["request_id"])


def test_another_range_is_refused_with_the_open_request_and_the_three_ways(shell: Shell, request_id: str) -> None:
    assert shell("run", "sales", *SHORTER) == 1
    assert f"request {request_id[:12]} of ann (late files) is open for [2024-01-01, 2024-01-05)" in shell.err
    assert f"({HELD}: " in shell.err
    assert "Decide it (`hindcast publish`, `waive` or `cancel`), or run again with --replace" in shell.err
    assert "If open" not in shell.err, "these are the words of the form"
    assert len(shell.json("status", "sales")["pipelines"][0]["requests"]) == 1


def test_a_command_without_replace_does_not_name_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: `adopt` advised --replace and --wait, which it refuses as unknown."""
    assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-03") == 0
    append_day(shell.root, HELD, {"c": FAILS})
    assert shell("run", "sales", "--from", "2024-01-02", "--to", "2024-01-05") == 1
    path = shell.root / "pipelines" / "sales.yaml"
    path.write_text(path.read_text().replace("size: 1d", "size: 2d"))
    monkeypatch.setattr(adopt, "restart_of", lambda *_of, **_named: None)
    assert shell("adopt", "sales", "--from", "2024-01-02") == 1
    assert "Decide it (`hindcast publish`, `waive` or `cancel`), and run this command again" in shell.err


def test_replace_closes_the_open_request(shell: Shell, request_id: str) -> None:
    append_day(shell.root, HELD, {"correction": -FAILS})
    assert shell("run", "sales", *SHORTER, "--replace") == 0, shell.err
    assert shell.replayer.replayed[-1] == [HELD]
    state = shell.json("status", "sales")["pipelines"][0]
    assert (state["requests"], state["published"]["last"]) == ([], HELD)
    assert request_id


def test_wait_starts_when_the_open_request_has_ended(
    shell: Shell, request_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            assert shell("cancel", "sales", "--request", request_id, "--reason", "not needed") == 0

    # `time.sleep` itself must stay: threads of Py4J call it in a loop.
    monkeypatch.setattr(cli_run, "sleep", sleep)
    assert shell("run", "sales", *SHORTER, "--wait") == 1
    assert pauses == [cli_run.WAIT_POLL_S] * 3
    [request] = shell.json("status", "sales")["pipelines"][0]["requests"]
    assert (request["from"], request["to"]) == ("2024-01-01", "2024-01-04")


def test_replace_and_wait_exclude_each_other(shell: Shell) -> None:
    """Defect: the last one counted without a word."""
    assert shell("run", "sales", *SHORTER, "--replace", "--wait") == 2
    assert "give one of them" in shell.err


@pytest.mark.parametrize(("options", "after"), [((), ()), ((), ("resume",)), (("--no-publish",), ())])
def test_a_run_that_waited_while_somebody_rolled_back_publishes_nothing(
    shell: Shell, options: tuple[str, ...], after: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: it published what was rolled back, and ended the hold, of which the person did not know."""
    assert shell("run", "sales", "--from", "2024-01-01", "--to", HELD) == 0
    append_day(shell.root, HELD, {"c": FAILS})
    assert shell("run", "sales", "--from", HELD, "--to", "2024-01-04") == 1
    state = shell.json("status", "sales")["pipelines"][0]
    publication, request_id = str(state["newest_publication"]["publication"]), state["requests"][0]["request_id"]

    def sleep(_seconds: float) -> None:
        append_day(shell.root, HELD, {"correction": -FAILS})
        assert shell("rollback", "sales", "--publication", publication, "--reason", "wrong rates") == 0
        for command in after:
            assert shell(command, "sales", "--reason", "go on") == 0
        assert shell("cancel", "sales", "--request", request_id, "--reason", "not needed") == 0

    monkeypatch.setattr(cli_run, "sleep", sleep)
    status = shell("run", "sales", *SHORTER, "--wait", *options)
    told, state = shell.err, shell.json("status", "sales")["pipelines"][0]
    assert (state["published"]["slices"], state["held"] is None) == (0, bool(after))
    assert (status, "(wrong rates)" in told, len(state["requests"])) == ((0, False, 1) if options else (1, True, 0))


def test_a_run_that_waited_while_another_spec_was_published_does_not_undo_it(
    shell: Shell, request_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: it published the spec that the pipeline file had when the wait began, without a word."""

    def sleep(_seconds: float) -> None:
        assert shell("cancel", "sales", "--request", request_id, "--reason", "not needed") == 0
        path = shell.root / "pipelines" / "sales.yaml"
        path.write_text(path.read_text().replace("size: 1d", "size: 2d"))
        assert shell("run", "sales", "--from", "2024-01-01", "--to", HELD) == 0

    monkeypatch.setattr(cli_run, "sleep", sleep)
    assert shell("run", "sales", *SHORTER, "--wait") == 1
    assert "another spec of 2024-01-01, 2024-01-02 since this command began to wait, so it replays nothing" in shell.err
