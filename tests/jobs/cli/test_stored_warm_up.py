"""A stored warm-up is used only if the log before the range is as it was: `run --plan` and `run --request`."""

from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.jobs.cli import test_adopt
from tests.jobs.cli.conftest import Shell
from tests.jobs.cli.test_adopt import day, write
from tests.jobs.replay.test_without_spark import DAY_MS, FIRST

RANGE: Final = ("--from", day(2), "--to", day(3))
TOLD: Final = f"the log before slice {day(2)}, or what is published of it, has changed"
real_shell = test_adopt.shell


def append(shell: Shell, number: int, *, later_ms: int, value: int) -> None:
    """Append a record to the slice of a day. Its event time is so much later than the begin of the slice."""
    at_ms = (FIRST - date(1970, 1, 1)).days * DAY_MS + number * DAY_MS + later_ms
    rows = {"k": [1], "at": [at_ms], "v": [value], "day": pa.array([FIRST.fromisoformat(day(number))], pa.date32())}
    write_deltalake(shell.root / "event_logs" / "plain", pa.table(rows), mode="append", partition_by=["day"])


@pytest.fixture
def shell(real_shell: Shell) -> Shell:
    """A shell with a log of three days that can grow."""
    write(
        real_shell,
        "0s",
        **{"event_logs/sales": "event_logs/plain", "size: 30h": "size: 2h", "{by: day}": "{by: day}\n  order: [v]"},
    )
    for number in range(3):
        append(real_shell, number, later_ms=DAY_MS // 2, value=number)
    return real_shell


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_plan_with_a_warm_up_is_refused_if_the_log_before_has_changed(
    shell: Shell, tmp_path: Path, *, is_changed: bool
) -> None:
    file = str(tmp_path / "plan.json")
    assert shell("plan", "sales", *RANGE, "--warm-up", "--out", file) == 0, shell.err
    if is_changed:
        append(shell, 0, later_ms=9 * DAY_MS, value=9)
    assert shell("run", "sales", "--plan", file) == int(is_changed), shell.err
    assert (f"{TOLD}, and with it the warm-up. Nothing was done" in flat(shell.err)) == is_changed


@pytest.mark.slow
def test_a_request_with_a_warm_up_is_refused_if_the_log_before_has_changed(shell: Shell) -> None:
    assert shell("run", "sales", *RANGE, "--warm-up", "--no-publish") == 0, shell.err
    [opened] = shell.json("status", "sales")["pipelines"][0]["requests"]
    assert shell("run", "sales", "--request", opened["request_id"], "--no-publish") == 0, shell.err
    append(shell, 0, later_ms=9 * DAY_MS, value=9)
    assert shell("run", "sales", "--request", opened["request_id"]) == 1
    assert TOLD in flat(shell.err)
    assert "Cancel it, and make a new request" in flat(shell.err)
    assert shell("run", "sales", *RANGE, "--warm-up", "--replace") == 0, shell.err
