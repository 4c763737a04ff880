"""The commands as a user types them, with a real ledger and log. A fake replayer replaces Spark."""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.cli import inspect, plan as cli_plan
from jobs.cli.main import COMMANDS, hindcast
from jobs.cli.options import run_cli
from jobs.lake.durable_commits import added_paths
from jobs.lake.lake import Lake
from jobs.ledger.chain import Row
from jobs.ledger.history import REMEMBERED
from jobs.ledger.ledger import Ledger
from jobs.ledger.table import LedgerTable
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.plain_text import counted
from jobs.reading.published import read_published
from jobs.reading.stored_tables import spec_of
from jobs.review.verify_input import Verification
from tests.jobs.cli.conftest import Shell
from tests.jobs.comparing.test_compare import sides_of
from tests.support.fake_replay import PIPELINE, append_day
from tests.support.places import ROOT
from tests.support.random_views import Views

RANGE = ("--from", "2024-01-01", "--to", "2024-01-05")


def test_a_command_that_is_interrupted_while_it_imports_prints_no_traceback() -> None:
    """Defect: ctrl-C in the first half second of a command printed Python's traceback."""
    code = "import jobs.cli; raise KeyboardInterrupt"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    assert ended.returncode == -2, "the signal has ended it, as the shell expects"


def test_run_with_json_prints_the_documented_object(shell: Shell) -> None:
    found = shell.json("run", "sales", *RANGE)
    assert set(found) == {"pipeline", "runs", "published"}
    assert (found["pipeline"], found["published"]) == ("sales", True)
    assert [run["slice_id"] for run in found["runs"]] == ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
    assert set(found["runs"][0]) == {
        "slice_id",
        "run_id",
        "verdict",
        "digests",
        "state",
        "counts",
        "watermark_ms",
        "spec_fingerprint",
        "input_fingerprint",
        "state_before",
        "checks",
        "clamped",
        "warnings",
    }
    fates = {"assigned", "late", "unassigned", "invalid", "filtered", "duplicate"}
    assert set(found["runs"][0]["counts"]) == fates | {"read", "panes"}


@pytest.mark.parametrize("limit", [("--chunk", "1"), ("--chunk-records", "1")])
def test_spark_is_started_once_and_only_if_a_slice_is_replayed(shell: Shell, limit: tuple[str, str]) -> None:
    assert shell("run", "sales", *RANGE, *limit) == 0
    assert shell.sessions == 1
    assert len(shell.replayer.orders) == 4
    assert shell("run", "sales", *RANGE) == 0
    assert shell.sessions == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.004, "0.004"), (-0.0012345678, "-0.00123457"), (52.52437, "52.5244"), (0.1 + 0.2, "0.30"), (5.0, "5.00"),
        (1234.5678, "1,234.57"), (123.4, "123.40"), (12345.678, "12,345.68"), (1e300, "1e+300"), (0.0, "0.00"),
        (float("nan"), "nan"), (float("-inf"), "-inf"),
    ],
)  # fmt: skip
def test_a_small_number_is_not_shown_as_zero(value: float, text: str) -> None:
    """Defect: rates of 0.001 to 0.01 were all 0.00 in `hindcast show`."""
    assert inspect.cell(value) == text


def test_show_tells_why_it_prints_no_window(shell: Shell) -> None:
    assert shell("run", "sales", *RANGE) == 0
    version = shell.json("status", "sales")["pipelines"][0]["ledger_version"]
    assert shell("show", "sales", "--limit", "0") == 0
    assert "sales: 0 of " in shell.out
    assert shell("show", "sales", "--slice", "2024-01-05") == 0
    assert "sales has no published run of 2024-01-05; `hindcast status sales` shows why" in shell.out
    assert shell("show", "sales", "--at", "1") == 0
    assert "sales has no published windows at ledger version 1;" in shell.out
    assert version > 1


def test_show_tells_that_the_published_slices_have_fired_no_window(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("run", "sales", *RANGE) == 0
    monkeypatch.setattr(inspect, "read_published", lambda *place, **options: read_published(*place, **options)[:0])
    assert shell("show", "sales") == 0
    assert "the published slices have fired no window. A window fires when the watermark has passed" in shell.out
    assert shell("show", "sales", "--slice", "2024-01-02") == 0
    assert "sales: the published run of 2024-01-02 fired no window" in shell.out


def test_show_tells_that_all_windows_were_withdrawn(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: it told that no window had fired, and that later slices fire the windows that are open."""
    assert shell("run", "sales", *RANGE) == 0

    def without_a_final_pane(lake: Lake, pipeline: str, view: LedgerView, *, all_panes: bool = False) -> pa.Table:
        rows = read_published(lake, pipeline, view, all_panes=all_panes)
        return rows if all_panes else rows[:0]

    monkeypatch.setattr(inspect, "read_published", without_a_final_pane)
    for options, runs in (((), "slices"), (("--slice", "2024-01-02"), "runs of 2024-01-02")):
        assert shell("show", "sales", *options) == 0
        told = f"sales: all panes that the published {runs} have fired were withdrawn or replaced by later ones; --all"
        assert told in " ".join(shell.out.split())
        assert "fired no window" not in shell.out


def test_show_has_the_keys_and_outputs_of_rows_of_an_earlier_spec(tmp_path: Path) -> None:
    """Defect: rows of before an edit of the key, or of the name of an output, were shown without their values."""
    views = Views(tmp_path, {"total": "bigint", "mean": "double"})
    specs = views.spec(["key"], ["total"]), views.spec(["city"], ["mean"])
    published = {f"2024-01-{day + 1:02d}": views.run(day, spec) for day, spec in enumerate(specs)}
    view = replace(sides_of(views, {}, {}).view, published=published)
    newest = spec_of(view, view.runs[published["2024-01-02"]])
    rows = pa.table(
        {"slice_id": [*published], "key": ["a", None], "city": [None, "b"], "total": [1, None], "mean": [None, 0.5]}
    )
    assert inspect._columns(newest, view, rows) == (["city", "key"], ["mean", "total"])
    assert inspect._columns(newest, view, rows[1:]) == (["city"], ["mean"])


@pytest.mark.parametrize("to", ["2024-01-01", "2024-01-03"])
def test_verify_of_a_reversed_or_empty_range_is_refused(shell: Shell, to: str) -> None:
    """Defect: it exited with 0 and compared nothing, so a nightly job with swapped dates was never red."""
    assert shell("run", "sales", *RANGE) == 0
    assert shell("verify", "sales", "--from", "2024-01-03", "--to", to) == 2
    assert f"--to {to} is not after --from 2024-01-03" in shell.err
    assert shell("verify", "sales", "--from", "2024-01-03", "--to", "2024-01-04") == 0


def test_a_failed_check_is_waived_published_and_rolled_back(shell: Shell) -> None:
    append_day(shell.root, "2024-01-03", {"c": 5_000})
    assert shell("run", "sales", *RANGE) == 1
    assert "held by 2024-01-03: window_outputs: total: failed" in shell.err
    assert shell("show", "sales") == 0
    assert "sales has no published windows at ledger version" in shell.out
    assert shell("publish", "sales") == 1
    assert shell("waive", "sales", "2024-01-03", "--run", shell.failed_run("2024-01-03"), "--reason", " ") == 1
    assert shell("waive", "sales", "2024-01-02", "--run", "0", "--reason", "x") == 1
    assert (
        shell("waive", "sales", "2024-01-03", "--run", shell.failed_run("2024-01-03"), "--reason", "a real sale") == 0
    )
    assert "by ann: a real sale" in shell.out
    assert "failed: window_outputs: total: failed" in shell.out
    assert shell("publish", "sales") == 0
    rows = [json.loads(line) for line in (shell("show", "sales", "--json"), shell.out)[1].splitlines()]
    assert len(rows) == 9
    assert rows[0]["window_start"] == "2024-01-01T00:00:00Z"
    assert {row["key"] for row in rows} == {"a", "[b]", "c"}
    assert "row_id" not in rows[0]
    status = shell.json("status", "sales")
    assert status["pipelines"][0]["published"] == {
        "slices": 4, "first": "2024-01-01", "last": "2024-01-04", "empty": [],
    }  # fmt: skip
    newest = str(status["pipelines"][0]["newest_publication"]["publication"])
    assert shell("rollback", "sales", "--publication", newest, "--reason", "no") == 0
    assert shell("show", "sales", "--json") == 0
    assert shell.out == ""


def test_show_makes_plain_values_only_of_the_rows_that_it_prints(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("run", "sales", *RANGE) == 0
    whole = [json.loads(line) for line in (shell("show", "sales", "--json"), shell.out)[1].splitlines()]
    chosen = ("--slice", "2024-01-02", "--slice", "2024-01-04")
    assert shell("show", "sales", "--json", *chosen, "--limit", "3") == 0
    wanted = [row for row in whole if row["slice_id"] in chosen]
    assert [json.loads(line) for line in shell.out.splitlines()] == wanted[:3] != whole[:3]

    def doubled(*arguments: Any, **named: Any) -> pa.Table:  # noqa: ANN401
        return pa.concat_tables([read_published(*arguments, **named)] * 2_000)

    monkeypatch.setattr(inspect, "read_published", doubled)
    for options in ((), ("--json", "--limit", "3"), chosen):
        tracemalloc.start()
        assert shell("show", "sales", *options) == 0
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2_000_000, f"{options}: {peak} bytes; the values of all rows take ten times that"


def test_staging_without_publishing(shell: Shell) -> None:
    assert shell("run", "sales", *RANGE, "--no-publish") == 0
    assert "staged, not published" in shell.out
    assert shell.json("status", "sales")["pipelines"][0]["requests"][0]["staged"] == 4
    assert shell.json("publish", "sales")["published"]


def test_plan_lists_the_slices_and_the_reasons(shell: Shell) -> None:
    steps = shell.json("plan", "sales", *RANGE)["steps"]
    assert {step["reason"] for step in steps} == {"missing"}
    shell("run", "sales", *RANGE)
    append_day(shell.root, "2024-01-02", {"c": 5})
    planned = shell.json("plan", "sales", *RANGE)
    assert planned["half_open"] is True
    assert [(step["reason"], step["certain"]) for step in planned["steps"]] == [
        ("current", True), ("input changed", True), ("state before changed", False), ("state before changed", False),
    ]  # fmt: skip
    assert planned["steps"][1]["because"].startswith("2 records then, 3 now")
    assert planned["steps"][1]["expected_seconds"] > 0
    assert shell("plan", "sales", *RANGE) == 0
    assert "half-open" in shell.out
    assert "perhaps: state before changed" in shell.out


@pytest.mark.parametrize(("different", "status"), [((), 0), (("2024-01-02",), 1)])
def test_plan_verify_lists_the_slices_that_differ(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, different: tuple[str, ...], status: int
) -> None:
    found = Verification(equal=("2024-01-01",), different=different, damaged=different, skipped=("2024-01-03",))
    monkeypatch.setattr(cli_plan, "_verify", lambda _work, _planned, *, master: found)  # noqa: ARG005 - the name counts
    assert shell("plan", "sales", *RANGE, "--verify") == status
    assert f"{counted(1 + len(different), 'slice')} read again, {len(different)} differ" in shell.out
    assert ("In 2024-01-02 the log holds other records" in shell.out) == bool(different)
    assert shell.json("plan", "sales", *RANGE, "--verify")["verified"]["different"] == list(different)
    assert "verified" not in shell.json("plan", "sales", *RANGE)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("run", "sales", "--from", "2024-01-03", "--to", "2024-01-03"), 2, "is empty"),
        (("run", "sales", "--from", "2024-01-03", "--to", "2024-01-01"), 2, "is reversed"),
        (("plan", "sales", "--from", "2024-01-03T05:00", "--to", "2024-01-04"), 2, "is inside the slice"),
        (("run", "sales", "--from", "yesterday", "--to", "2024-01-01"), 2, "'yesterday' is not a date"),
        (("run", "sales", "--from", "2024-01-01", "--to", "2999-01-01"), 1, "is not over yet"),
        (("run", "sales", "--from", "2024-01-03", "--to", "2024-01-04"), 1, "2024-01-02 has no published run"),
        (("run", "sale", *RANGE), 2, "did you mean 'sales'?"),
        (("run", "sales"), 2, "Missing option"),
        (("bogus",), 2, "No such command"),
        (("publish", "sales"), 1, "no open request"),
        (("explain", "sales", "nobody"), 1, "no record whose id is 'nobody'"),
        (("show", "sales", "--at", "99"), 1, "no version 99"),
    ],
    ids=lambda value: None if isinstance(value, int) else " ".join(value) if isinstance(value, tuple) else value,
)
def test_bad_requests_are_one_paragraph_and_write_nothing(
    shell: Shell, arguments: tuple[str, ...], status: int, message: str
) -> None:
    assert shell(*arguments) == status
    assert message in shell.err
    assert "Traceback" not in shell.err
    assert shell.sessions == 0
    assert not (shell.root / "sales").exists()


def test_a_missing_log_is_refused_before_spark_starts(shell: Shell) -> None:
    (shell.root / "pipelines" / "sales.yaml").write_text(PIPELINE.replace("event_logs/sales", "event_logs/other"))
    assert shell("run", "sales", *RANGE) == 1
    assert "event_logs/other does not exist" in shell.err
    (shell.root / "event_logs" / "other").mkdir()
    assert shell("run", "sales", *RANGE) == 1
    assert "is not a Delta table" in shell.err
    assert shell.sessions == 0


def test_an_unknown_column_is_refused_with_a_suggestion(shell: Shell) -> None:
    (shell.root / "pipelines" / "sales.yaml").write_text(PIPELINE.replace("sum: amount", "sum: amuont"))
    assert shell("run", "sales", *RANGE) == 2
    assert "the log has no column 'amuont'" in shell.err
    assert "did you mean 'amount'?" in shell.err
    assert did_you_mean("userid", ["ClickID", "UserID"]) == "; did you mean 'UserID'?"


def test_explain_tells_in_which_zone_it_reads_the_start_of_a_window(shell: Shell) -> None:
    text = PIPELINE.replace("slice: {by: day}", "slice: {by: day, timezone: America/New_York}")
    (shell.root / "pipelines" / "sales.yaml").write_text(text, encoding="utf-8")
    shell("explain", "sales", "--window", "a", "2024-01-01 12:00")
    assert "2024-01-01 12:00 in America/New_York is 2024-01-01 17:00:00 UTC." in shell.err
    shell("explain", "sales", "--window", "a", "2024-01-01 12:00Z")
    assert "America/New_York" not in shell.err


def test_explain_prints_the_windows_of_an_assigned_record(shell: Shell) -> None:
    assert shell("explain", "sales", "2024-01-02/a/2") == 0
    assert "has not been replayed yet" in shell.out
    shell("run", "sales", *RANGE)
    found = shell.json("explain", "sales", "2024-01-02/a/2")
    assert (found["fate"], found["slice_id"], found["published"]) == ("assigned", "2024-01-02", True)
    assert found["details"]["fired"] == ["[2024-01-02 00:00, 2024-01-03 00:00)"]


@pytest.mark.parametrize("before", [(), ("--json",)])
def test_explain_takes_an_id_that_begins_with_a_minus(shell: Shell, before: tuple[str, ...]) -> None:
    for arguments in (("sales", "-4x", *before), (*before, "sales", "-4x"), (*before, "sales", "--", "-4x")):
        if "--" in arguments:
            places = ("--lake", str(shell.root), "--pipelines", str(shell.root / "pipelines"))
            status = run_cli(hindcast, ["explain", *places, *arguments])
            shell.out, shell.err = shell.capsys.readouterr()
        else:
            status = shell("explain", *arguments)
        assert (status, shell.out) == (1, "")
        assert "has no record whose id is '-4x'" in shell.err
    assert shell("explain", "sales", "--jsn") == 2
    assert "No such option" in shell.err


def test_the_help_of_every_command_has_an_example(shell: Shell) -> None:
    for name in COMMANDS:
        assert run_cli(hindcast, [name, "--help"]) == 0
    out = shell.capsys.readouterr().out
    assert out.count("Example") == len(COMMANDS)
    assert run_cli(hindcast, ["--help"]) == 0
    assert "..." not in shell.capsys.readouterr().out.partition("Commands:")[2], "click cut no short help"
    for command in ("plan", "run"):
        run_cli(hindcast, [command, "--help"])
        assert "half-" in shell.capsys.readouterr().out


@pytest.mark.parametrize("command", [(), ("suite",)], ids=["hindcast", "suite"])
def test_a_group_without_a_command_prints_its_help(shell: Shell, command: tuple[str, ...]) -> None:
    assert run_cli(hindcast, command) == 2
    out, err = shell.capsys.readouterr()
    assert "Commands:" in err.splitlines()
    assert (out, "error" in err) == ("", False)


def test_a_missing_choice_is_told_in_one_line(shell: Shell) -> None:
    assert shell("export", "sales", "--to", "x") == 2
    assert "error: Missing option '--format'. Choose from: parquet, csv, delta" in shell.err.splitlines()


def test_a_failed_set_up_is_no_bug(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.spark.fetch_jars.fetch_jars", lambda _jars: 1)
    assert run_cli(hindcast, ["setup"]) == 1
    assert shell.capsys.readouterr().err == ""


def test_status_prints_what_the_schedule_waits_for(shell: Shell) -> None:
    """The log has records up to 5 January 2024."""
    shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-05")
    assert shell.json("status", "sales")["pipelines"][0]["waits"] is None, "the next day has records"
    shell("run", "sales", "--from", "2024-01-05", "--to", "2024-01-06")
    line = "waits for 2024-01-06 since 2024-01-07 00:00:00 UTC: slice 2024-01-06 is complete when it or a later slice "
    assert shell.json("status", "sales")["pipelines"][0]["waits"].startswith(line)
    assert shell("status", "sales") == 0
    assert f"the schedule {line}" in " ".join(shell.out.split())
    path = shell.root / "pipelines" / "sales.yaml"
    path.write_text(PIPELINE.replace('schedule: "0 6 * * *"', ""))
    assert shell.json("status", "sales")["pipelines"][0]["waits"] is None, "no schedule waits"


def test_status_names_a_pipeline_whose_file_is_gone(shell: Shell) -> None:
    """Defect: if the file of one of several pipelines was lost, its schedule ended, and no command told it."""
    other = shell.root / "pipelines" / "other.yaml"
    other.write_text(PIPELINE.replace("pipeline: sales", "pipeline: other"), encoding="utf-8")
    assert shell("run", "other", *RANGE) == 0
    assert shell.json("status")["without_file"] == []
    other.unlink()
    assert shell("status") == 0
    assert f"other: has a ledger in the lake, and no file in {shell.root / 'pipelines'}, so nothing" in shell.out
    assert shell.json("status", "sales")["without_file"] == []


def test_status_prints_the_error_of_a_pipeline_file(shell: Shell) -> None:
    (shell.root / "pipelines" / "broken.yaml").write_text("pipeline: broken\nslide: 0\n")
    assert shell("status") == 0
    assert "broken: broken:" in shell.out
    assert "unknown key 'slide'" in shell.out


def test_a_command_that_looks_reads_the_ledger_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("run", "sales", *RANGE) == 0
    calls: list[int] = []
    read = LedgerTable.read

    def counted(self: LedgerTable, *, after: int) -> Sequence[Row]:
        calls.append(after)
        return read(self, after=after)

    monkeypatch.setattr(LedgerTable, "read", counted)
    for arguments in (("status",), ("status", "sales"), ("plan", "sales", *RANGE), ("show", "sales")):
        calls.clear()
        REMEMBERED.forget_all()  # each command is a process of its own
        assert shell(*arguments) == 0
        assert calls == [0], arguments


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (("status", "sales"), set()),
        (("show", "sales", "--limit", "3"), {"duckdb"}),
        (("explain", "sales", "2024-01-02/a/2"), set()),
        (("plan", "sales", "--from", "2024-01-01", "--to", "2024-01-03", "--explain"), set()),
    ],
)
def test_a_command_that_looks_imports_no_heavy_library(
    shell: Shell, command: tuple[str, ...], allowed: set[str]
) -> None:
    """They answer in less than 0.7 s. The import of pandas takes 0.4 s, that of pyspark 0.2 s."""
    shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-03")
    arguments = [*command, "--lake", str(shell.root), "--pipelines", str(shell.root / "pipelines")]
    code = (
        f"import atexit, sys; sys.argv[1:] = {arguments!r}\n"
        "from jobs.cli.main import main\n"
        "atexit.register(lambda: print('\\nmodules:', *{name.partition('.')[0] for name in sys.modules}))\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    heavy = {"pandas", "pyspark", "delta", "great_expectations", "duckdb", "airflow"} - allowed
    assert done.returncode == 0, done.stderr
    assert "modules:" in done.stdout
    assert not heavy & {*done.stdout.partition("modules:")[2].split()}


def test_a_ledger_that_lost_its_last_commit_is_refused_until_a_person_accepts_the_loss(shell: Shell) -> None:
    """Defect: after a rollback whose commit file was lost, `status`, `plan` and `verify` had exit status 0."""
    shell("run", "sales", *RANGE)
    publication = Ledger(str(shell.root / "sales" / "ledger"), now_ms=lambda: 0).view().standing[-1].seq
    assert shell("rollback", "sales", "--publication", str(publication), "--reason", "wrong") == 0, shell.err
    ledger = shell.root / "sales" / "ledger"
    max(ledger.glob("_delta_log/*.json")).unlink()
    REMEMBERED.forget_all()
    assert shell("recover", "sales", "--reason", "a bad copy") == 0, shell.err
    assert "written again from their data files, whose hashes prove them. Nothing is lost" in shell.out
    assert shell("status", "sales") == 0
    assert "readers see nothing" in shell.out, "they would see what was rolled back"
    newest = max(ledger.glob("_delta_log/*.json"))
    [data] = added_paths(newest)
    for file in (newest, ledger / data):
        file.unlink()
    for command in (("status", "sales"), ("plan", "sales", *RANGE), ("verify", "sales"), ("show", "sales")):
        REMEMBERED.forget_all()  # each command is a new process
        assert shell(*command) == 1, command
        assert "has lost its last commits" in shell.err
        assert "hindcast recover PIPELINE" in shell.err
    REMEMBERED.forget_all()
    assert shell("recover", "sales", "--reason", "the disk failed") == 0, shell.err
    assert "the ledger goes on at version" in shell.out
    REMEMBERED.forget_all()
    assert shell("status", "sales") == 0
    assert shell("recover", "sales", "--reason", "again") == 1
    assert "there is nothing to recover" in shell.err
