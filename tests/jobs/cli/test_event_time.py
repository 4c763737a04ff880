"""A range in event time: `hindcast plan|run PIPELINE --event-time A..B` is that of the slices that it needs."""

import pytest

from tests.jobs.cli.conftest import Shell

AT = ("--event-time", "2024-01-02..2024-01-03")
SENTENCE = "event time [2024-01-02, 2024-01-03) is in the records of 2024-01-02 … 2024-01-04."


def told(shell: Shell) -> str:
    return " ".join(shell.err.split())


def test_a_range_of_event_time_is_planned_and_run_as_its_slices(shell: Shell) -> None:
    assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-02") == 0
    planned = shell.json("plan", "sales", *AT)
    assert SENTENCE in told(shell)
    assert (planned["from"], planned["to"]) == ("2024-01-02", "2024-01-05")
    assert shell("run", "sales", *AT) == 0
    assert SENTENCE in told(shell)
    assert shell.replayer.replayed[1:] == [["2024-01-02", "2024-01-03", "2024-01-04"]]
    assert shell.json("plan", "sales", *AT)["at_most"] == 0


def test_it_begins_a_fresh_chain_and_is_stored_as_a_plan(shell: Shell) -> None:
    path = str(shell.root / "plan.json")
    assert shell("plan", "sales", *AT) == 1
    assert "or begin a new chain at 2024-01-02 with --fresh" in told(shell)
    assert shell("plan", "sales", *AT, "--fresh", "--out", path) == 0
    assert shell("run", "sales", "--plan", path) == 0
    assert shell.replayer.replayed == [["2024-01-02", "2024-01-03", "2024-01-04"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "sales", *AT, "--from", "2024-01-01"), "--event-time has its own range; leave out --from"),
        (("run", "sales", *AT, "--to", "2024-01-01"), "--event-time has its own range; leave out --to"),
        (("run", "sales", *AT, "--request", "a"), "--request has its own range; leave out --event-time"),
        (("run", "sales", *AT, "--plan", "."), "is a directory"),
        (("plan", "sales", "--to", "2024-01-01"), "Missing option '--from'. Give --from and --to, or --event-time."),
    ],
)
def test_it_is_the_only_range(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    assert shell(*arguments) == 2
    assert message in told(shell)


def test_a_range_without_records_is_refused_and_tells_what_the_log_has(shell: Shell) -> None:
    assert shell("plan", "sales", "--event-time", "2025-01-01..2025-01-02") == 1
    assert "The event times of its 5 slices are from 2024-01-01 00:00:00 UTC to 2024-01-05 00:00:00 UTC" in told(shell)
