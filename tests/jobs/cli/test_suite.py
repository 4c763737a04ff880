"""`hindcast suite propose` and `suite try`, from the ledger and the stored rows to the printed lines."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake.lake import Lake
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FAILS, PIPELINE, append_day

RANGE = ("--from", "2024-01-01", "--to", "2024-01-13")
BLIZZARD = ("2024-01-08", "2024-01-09")


@pytest.fixture
def blizzard(shell: Shell) -> Shell:
    """Twelve published slices, two of them waived."""
    for day in range(6, 13):
        name = f"2024-01-{day:02d}"
        append_day(shell.root, name, {"a": FAILS if name in BLIZZARD else day})
    assert shell("run", "sales", *RANGE) == 1
    for name in BLIZZARD:
        assert shell("waive", "sales", name, "--run", shell.failed_run(name), "--reason", "a blizzard") == 0
    assert shell("publish", "sales") == 0
    return shell


@pytest.mark.slow
def test_a_suite_is_proposed_tried_and_never_overwritten(blizzard: Shell, tmp_path: Path) -> None:
    version = blizzard.json("status", "sales")["pipelines"][0]["ledger_version"]
    path = tmp_path / "proposed.json"
    assert blizzard("suite", "propose", "sales", "--output", str(path)) == 0
    assert "from 10 slices 2024-01-01 … 2024-01-12, written to" in blizzard.out
    assert "left out: 2 slices 2024-01-08 … 2024-01-09: a person has waived a failed check" in blizzard.err
    assert "warning: too little history for ranges: 10 runs." in blizzard.err
    text = path.read_text()
    assert blizzard("suite", "propose", "sales", "--runs-needed", "5", "--margin", "0.5") == 0
    assert "too_little" in text
    assert "too_little" not in blizzard.out
    assert json.loads(blizzard.out)["run"]["expectations"] == json.loads(text)["run"]["expectations"]
    assert blizzard("suite", "propose", "sales", "--output", str(path)) == 1
    assert "exists and is not overwritten" in blizzard.err
    assert path.read_text() == text
    assert blizzard("suite", "propose", "sales") == 0
    assert blizzard.out == text
    assert blizzard("suite", "try", str(path), "sales") == 0
    assert "would have said of 12 slices: 10 pass, 2 warn" in blizzard.out
    assert "2024-01-01 … 2024-01-07: 7 slices  pass" in blizzard.out
    assert "greatest total" in blizzard.out
    found = blizzard.json("suite", "try", str(path), "sales", "--fail-on", "warning")
    assert tuple(found["changes"]) == BLIZZARD
    assert [one["verdict"] for one in found["slices"]] == ["pass"] * 7 + ["fail"] * 2 + ["pass"] * 3
    assert {(one["first"], one["last"]) for one in found["checks"] if one["failed"]} == {BLIZZARD}
    assert blizzard.json("status", "sales")["pipelines"][0]["ledger_version"] == version


def test_rows_that_differ_from_the_ledger_are_an_error(blizzard: Shell) -> None:
    uri = Path(Lake(root=str(blizzard.root)).table("sales", "window_outputs"))
    file = min(uri.glob("slice_id=2024-01-02/**/*.parquet"))
    file.unlink()
    assert blizzard("suite", "propose", "sales") == 1
    assert "slice_id=2024-01-02" in blizzard.err
    assert blizzard.out == ""


def test_the_suite_in_force_is_computed_again_for_older_runs(
    blizzard: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suites = tmp_path / "suites"
    suites.mkdir()
    monkeypatch.setenv("HINDCAST_EXPECTATIONS", str(suites))
    strict = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": FAILS - 1}}
    loose = strict | {"kwargs": {"column": "total", "max_value": FAILS}}
    for name, check in (("now", strict), ("new", loose)):
        (suites / f"{name}.json").write_text(
            json.dumps({"window_outputs": {"name": name, "expectations": [check | {"severity": "critical"}]}})
        )
    (blizzard.root / "pipelines" / "sales.yaml").write_text(
        PIPELINE + "quality: {suite: expectations/now.json, fail_on: critical}\n"
    )
    found = blizzard.json("suite", "try", str(suites / "new.json"), "sales")
    assert [one["slice_id"] for one in found["slices"] if one["was"] == "fail"] == [*BLIZZARD]
    assert {one["verdict"] for one in found["slices"]} == {"pass"}
    assert blizzard("suite", "try", str(suites / "new.json"), "sales") == 0
    assert "2 slices would have another verdict; no longer held: 2024-01-08, 2024-01-09." in blizzard.out
    assert blizzard("suite", "try", str(suites / "now.json"), "sales") == 0
    assert "No verdict would change." in blizzard.out


def test_a_plan_tells_that_the_suite_was_edited(shell: Shell) -> None:
    days = ("--from", "2024-01-01", "--to", "2024-01-06")
    (shell.root / "expectations").mkdir()
    check = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": FAILS}}
    suite = {"window_outputs": {"name": "sales", "expectations": [check]}}
    (shell.root / "expectations" / "sales.json").write_text(json.dumps(suite))
    (shell.root / "pipelines" / "sales.yaml").write_text(PIPELINE + "quality: {suite: expectations/sales.json}\n")
    shell.replayer.change = lambda result: replace(result, extras={"checks_fingerprint": "of the suite before"})
    assert shell("run", "sales", *days, "--no-publish") == 0
    steps = shell.json("plan", "sales", *days)["steps"]
    assert {(step["reason"], step["because"]) for step in steps} == {
        ("checks changed", "the suite has changed since the run was checked")
    }


def test_the_help_of_each_command_has_an_example(shell: Shell) -> None:
    for name in ("propose", "try"):
        assert run_cli(hindcast, ["suite", name, "--help"]) == 0
        assert "Example" in shell.capsys.readouterr().out
