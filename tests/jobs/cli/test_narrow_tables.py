"""The tables of commands on a screen of 80 columns stay tables: no line is longer, and no value is lost."""

import re
from itertools import takewhile

import pytest

from jobs.console import print_table
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FAILS, append_day

DAYS = ("--from", "2024-01-01", "--to", "2024-01-06")
WIDTH = 80
AFTER_TABLE = re.compile(r"the chain |\d+ slices? replayed")
COUNTS = ("read", "assigned", "late", "unassigned", "invalid", "panes")


def _table(text: str, first: str) -> list[str]:
    """Return the lines of the table whose first column has this name, from its names on."""
    lines = text.splitlines()
    [start] = [number for number, line in enumerate(lines) if line.split()[:1] == [first]]
    table = list(takewhile(lambda line: not AFTER_TABLE.match(line), lines[start:]))
    assert max(map(len, table)) <= WIDTH, text
    return table


def test_plan_run_and_show_print_tables(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    append_day(shell.root, "2024-01-03", {"c": FAILS})
    assert shell("plan", "sales", *DAYS) == 0
    assert _table(shell.out, "slice")[0].split() == ["slice", "replay", "because", "records", "bytes", "about"]
    assert shell("run", "sales", *DAYS) == 1
    header, *rows = _table(shell.out, "slice")
    assert header.split() == ["slice", "verdict", "run", *COUNTS]
    assert all(any(row.startswith(f"2024-01-{day:02d}") for row in rows) for day in range(1, 6))
    assert shell("waive", "sales", "2024-01-03", "--run", shell.failed_run("2024-01-03"), "--reason", "x") == 0
    assert shell("publish", "sales") == 0
    assert shell("show", "sales") == 0
    assert _table(shell.out, "key")[0].split() == ["key", "window", "total", "slice"]


@pytest.mark.parametrize("size", [1, 1_000, 1_000_000, 9_999_999])
def test_the_table_of_a_run_has_room_for_large_numbers_and_folded_slices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    numbers = [f"{count:,}" for count in (size, size, size // 1_000, 0, size // 100, size)]
    rows = [("2013-02-01 … 2013-02-07", "fail, waived", "28f02afc6d1c", *numbers), ("2013-02-08", "pass", "", *numbers)]
    print_table("flights", ("slice", "verdict", "run", *COUNTS), rows, right=COUNTS, whole=("slice", "run"))
    shown = _table(capsys.readouterr().out, "slice")
    text = "\n".join(shown)
    assert {"2013-02-01", "2013-02-07", "2013-02-08", "28f02afc6d1c", *numbers} <= set(text.split())
    assert re.search(r"fail,\s.*\n.*waived|fail, waived", text, re.DOTALL)
