"""Commands fold long runs of equal lines, keep ids whole, and count waived slices as waived. JSON is not folded."""

import random
import re
from dataclasses import replace

import pytest

from jobs.cli.slice_lines import SINGLE, progress_lines, show_plan
from jobs.folding import FOLD_FROM
from jobs.planning.chains import ChainStart
from jobs.planning.log_state import LogState
from jobs.planning.plan import Basis, Plan
from jobs.planning.steps import Ask, Reason, Step
from jobs.runs import Slice
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FAILS, append_day, sales
from tests.support.fuzzing import chances
from tests.support.timing import growth

RANGE = ("--from", "2024-01-01", "--to", "2024-01-13")
DAY_MS = 86_400_000


def two_weeks(shell: Shell) -> None:
    for day in range(6, 13):
        append_day(shell.root, f"2024-01-{day:02d}", {"a": FAILS if day in {8, 9} else day})


def test_waived_slices_are_counted_as_waived(shell: Shell) -> None:
    two_weeks(shell)
    assert shell("run", "sales", *RANGE) == 1
    assert "12 slices replayed, 12 in the range: 10 passed, 2 failed; staged, not published." in shell.out
    assert "2024-01-01 … 2024-01-07: 7 slices, pass, read 12, late 0, invalid 0, panes 12, 3.5 s" in shell.err
    assert len(re.findall("^2024-01-0[89] +fail +[0-9a-f]{12} ", shell.out, re.MULTILINE)) == 2
    assert shell("status", "sales") == 0
    assert (
        "12 slices staged: 10 passed, 2 failed\n    held by 2024-01-08: window_outputs: total: failed; 2024-01-09"
        in shell.out
    )
    for day in ("2024-01-08", "2024-01-09"):
        assert shell("waive", "sales", day, "--run", shell.failed_run(day), "--reason", "seen") == 0
    assert shell("status", "sales") == 0
    assert "12 slices staged: 10 passed, 2 waived" in shell.out
    assert shell("publish", "sales") == 0
    assert shell("status", "sales") == 0
    assert "readers see 12 slices, 2024-01-01 … 2024-01-12: 10 passed, 2 waived" in shell.out
    state = shell.json("status", "sales")["pipelines"][0]
    assert state["published_ranges"] == [["2024-01-01", "2024-01-12"]]
    assert state["published_verdicts"] == {"passed": 10, "waived": 2}
    assert shell("run", "sales", *RANGE) == 0
    assert "0 slices replayed, 12 in the range: 10 passed, 2 waived; published." in shell.out


def test_a_plan_is_folded_and_its_json_is_not(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    two_weeks(shell)
    assert shell("run", "sales", *RANGE) == 1
    append_day(shell.root, "2024-01-03", {"b": 1})
    monkeypatch.delenv("COLUMNS")
    assert shell("plan", "sales", *RANGE) == 0
    lines = [re.split(r"  +", line) for line in shell.out.splitlines()]
    assert [line[:2] for line in lines[2:7]] == [
        ["2024-01-01", "current"],
        ["2024-01-02", "current"],
        ["2024-01-03", "input changed"],
        ["2024-01-04", "perhaps: state before changed"],
        ["2024-01-05 … 2024-01-12: 8 slices", "not reached"],
    ]
    assert shell("plan", "sales", *RANGE, "--all") == 0
    assert len(re.findall("^2024-01-", shell.out, re.MULTILINE)) == 12
    planned = shell.json("plan", "sales", *RANGE)
    assert (len(planned["steps"]), planned["certain"], planned["at_most"]) == (12, 1, 2)
    assert [step["beyond"] for step in planned["steps"]] == [False] * 4 + [True] * 8
    monkeypatch.setenv("COLUMNS", "60")
    assert shell("plan", "sales", *RANGE) == 0
    assert re.search(r"published|\b[0-9a-f]{12}\b", shell.out)


def random_plan(chance: random.Random, count: int) -> Plan:
    steps: list[Step] = []
    for number in range(count):
        changes = not steps or chance.random() < 0.2
        reason = chance.choice(list(Reason)) if changes else steps[-1].reason
        because = chance.choice(["same", f"of {number}"])
        one = Slice(slice_id=f"{number:06}", start_ms=number * DAY_MS, end_ms=(number + 1) * DAY_MS)
        records = chance.randrange(1_000)
        steps.append(
            Step(
                slice=one, reason=reason, because=because, is_certain=True, records=records, bytes=records,
                expected=None, run=None, is_published=False,
            )
        )  # fmt: skip
    log = LogState(version=1, coordinates={}, first_data=None, missing={})
    basis = Basis(pipeline=sales(), log=log, ask=Ask(slices=()), runs={}, published={}, own={})
    return Plan(
        pipeline="p", from_text="a", to_text="b", spec_fingerprint="s", ledger_version=1,
        start=ChainStart(note="new"), steps=tuple(steps), basis=basis,
    )  # fmt: skip


def test_folded_plans_name_every_slice_and_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    for chance in chances(60):
        planned = random_plan(chance, chance.randrange(1, 40))
        at_least = chance.choice([1, 2, FOLD_FROM, SINGLE])
        capsys.readouterr()
        show_plan(planned, at_least=at_least)
        lines = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\d{6}", line)]
        named: list[str] = []
        for line in lines:
            ends = re.match(r"(\d{6})(?: … (\d{6}): ([\d,]+) slices)?", line)
            assert ends is not None
            first, last = int(ends[1]), int(ends[2] or ends[1])
            assert ends[3] is None or int(ends[3]) == last - first + 1
            named += [f"{number:06}" for number in range(first, last + 1)]
        assert named == [step.slice.slice_id for step in planned.steps]
        totals = [int(re.split(r"  +", line)[3].replace(",", "")) for line in lines]
        assert sum(totals) == sum(step.records for step in planned.steps)


def test_a_long_plan_is_printed_in_linear_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    planned = random_plan(random.Random(1), 4_000)
    uniform = replace(planned, steps=tuple(replace(step, reason=Reason.MISSING) for step in planned.steps))
    for one, at_least in ((uniform, FOLD_FROM), (planned, FOLD_FROM), (planned, SINGLE)):

        def shown(count: int, one: Plan = one, at_least: int = at_least) -> None:
            show_plan(replace(one, steps=one.steps[:count]), at_least=at_least)

        assert growth(shown, 400, 4_000) < 20
    assert "000000 … 003999: 4,000 slices" in capsys.readouterr().out
    assert list(progress_lines(())) == []
