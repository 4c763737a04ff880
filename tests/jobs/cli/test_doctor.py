"""`hindcast doctor` and `hindcast init`, with a fake replayer: output, files, and what is refused."""

import json
import re
from pathlib import Path
from random import Random

import click
import pytest

from jobs.pipeline.files import load_file
from tests.jobs.cli.conftest import Shell
from tests.jobs.doctor import tables
from tests.support.places import ROOT

SALES = "event_logs/sales"


def test_doctor_prints_findings_and_a_histogram_that_fit_80_columns(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.tracked(shell.root / "clicks")
    monkeypatch.setenv("COLUMNS", "80")
    assert shell("doctor", "clicks") == 0, shell.err
    lines = shell.out.splitlines()
    assert [line for line in lines[1:] if len(line) > 80 and "→" not in line] == []
    assert "fit for replay; `hindcast init` writes its first pipeline file." in lines
    assert any("█" in line and line.split()[0] == "0s" for line in lines)
    assert not (shell.root / "pipelines" / "clicks.yaml").exists(), "doctor writes nothing"


def test_the_output_in_the_documents_is_real(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for rows in tables.clicks(Random(7), per_day=400):
        tables.append(shell.root / "event_logs" / "clicks", rows, ["dt"])
    assert shell("doctor", "event_logs/clicks") == 0
    printed = re.sub(r"[\d,]+ bytes", "BYTES", shell.out.replace(str(shell.root), "lake"))
    document = (ROOT / "docs" / "how-to" / "doctor.md").read_text(encoding="utf-8")
    assert printed in re.sub(r"[\d,]+ bytes", "BYTES", document)
    assert shell("init", "event_logs/clicks", "--yes") == 0
    assert (shell.root / "pipelines" / "clicks.yaml").read_text() in document


def test_doctor_gives_json(shell: Shell) -> None:
    found = shell.json("doctor", SALES, "--sample", "3")
    assert (found["fit"], found["records"], found["sampled"]) == (True, 10, 3)
    assert found["columns"]["event_time"] == {"column": "at_ms", "unit": "ms"}
    assert {one["severity"] for one in found["findings"]} <= {"ok", "note", "warning", "error"}
    assert found["delays"]["histogram"][0]["bound_ms"] == 0
    assert found["pipeline"].startswith("# Proposed by")


def test_doctor_of_an_unfit_table_exits_with_1_and_init_writes_nothing(shell: Shell) -> None:
    tables.no_event_time(shell.root / "clicks")
    assert shell("doctor", "clicks") == 1
    assert "`hindcast init` writes a pipeline file when the errors are mended" in shell.out
    assert shell("init", "clicks", "--yes") == 1
    assert "nothing was written" in shell.err
    assert [path.name for path in (shell.root / "pipelines").iterdir()] == ["sales.yaml"]


def test_init_writes_nothing_if_all_records_are_invalid(shell: Shell) -> None:
    tables.tracked(shell.root / "logs" / "clicks")
    wrong = ("logs/clicks", "--event-time", "user_id")
    assert shell("doctor", *wrong) == 1
    assert "`hindcast init` writes a pipeline file when the errors are mended" in shell.out
    assert shell("init", *wrong, "--yes") == 1
    assert "error    invalid records: 120 records (100 %) would be invalid" in shell.out
    assert [path.name for path in (shell.root / "pipelines").iterdir()] == ["sales.yaml"]


def test_init_tells_that_the_place_of_pipeline_files_is_a_file(shell: Shell) -> None:
    tables.tracked(shell.root / "logs" / "clicks")
    place = shell.root / "pipelines"
    place.rename(shell.root / "elsewhere")
    place.write_text("a file")
    assert shell("init", "logs/clicks", "--yes") == 1
    assert f"--pipelines: {place} is not a directory: " in shell.err


def test_a_table_is_found_in_the_working_directory_and_in_the_lake(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    tables.tracked(elsewhere / "clicks")
    monkeypatch.chdir(elsewhere)
    for place in ("clicks", str(elsewhere / "clicks"), f"file://{elsewhere}/clicks"):
        assert shell("init", place, "--yes", "--force") == 0, shell.err
        table = load_file(shell.root / "pipelines" / "clicks.yaml").log.table
        assert table == "elsewhere/clicks", "below the lake, so relative to it"
    assert shell("doctor", SALES) == 0


@pytest.mark.parametrize("kind", tables.ALL)
def test_init_writes_a_file_that_loads_and_prints_its_plan(shell: Shell, kind: str) -> None:
    tables.ALL[kind](shell.root / "logs" / "clicks")
    assert shell("init", "logs/clicks", "--yes") == 0, shell.err
    path = shell.root / "pipelines" / "clicks.yaml"
    load_file(path)
    assert path.read_text() in shell.out
    assert f"wrote {path}" in shell.out
    assert "to replay" in shell.out
    [line] = [line for line in shell.out.splitlines() if line.startswith("Next: hindcast ")]
    arguments = line.removeprefix("Next: hindcast ").split()
    arguments[0] = "plan"
    planned = shell.json(*arguments)
    assert sum(step["records"] for step in planned["steps"]) == 120, "the range has all records"


def test_init_never_overwrites_without_force(shell: Shell) -> None:
    path = shell.root / "pipelines" / "clicks_windows.yaml"
    tables.tracked(shell.root / "clicks")
    path.write_text("mine")
    assert shell("init", "clicks", "--yes") == 1
    assert "exists and is not overwritten; use --force or another --name" in shell.err
    assert path.read_text() == "mine"
    assert shell("init", "clicks", "--yes", "--name", "other") == 0
    assert load_file(shell.root / "pipelines" / "other.yaml").name == "other"
    assert shell("init", "clicks", "--yes", "--force") == 0
    assert load_file(path).name == "clicks_windows"
    assert sorted(one.name for one in path.parent.iterdir()) == ["clicks_windows.yaml", "other.yaml", "sales.yaml"]
    path.rename(path.with_suffix(".yml"))
    assert shell("init", "clicks", "--yes", "--force") == 1
    assert "is the same pipeline" in shell.err


def test_init_writes_no_file_whose_tables_would_be_in_the_log(shell: Shell) -> None:
    tables.tracked(shell.root / "clicks")
    assert shell("init", "clicks", "--yes", "--name", "clicks") == 1
    assert "error    refused" in shell.out
    assert "the pipeline clicks writes its tables below" in shell.out
    assert not (shell.root / "pipelines" / "clicks.yaml").exists()


@pytest.mark.parametrize("name", ["../up", "Big", "", "a" * 64, "event_logs", "a/b", "x\x1b[2J"])
def test_init_refuses_a_name_that_is_no_name_of_a_pipeline(shell: Shell, name: str) -> None:
    tables.tracked(shell.root / "clicks")
    before = sorted(shell.root.rglob("*.y*ml"))
    assert shell("init", "clicks", "--yes", "--name", name) in {1, 2}
    assert sorted(shell.root.rglob("*.y*ml")) == before


def test_init_asks_on_a_terminal_and_shows_what_was_found_as_the_default(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.tracked(shell.root / "clicks")
    asked: dict[str, str] = {}

    def answer(question: str, *, default: str, show_default: bool) -> str:
        assert show_default
        asked[question.split()[0]] = default
        return {"Name": "mine", "Key": "click_id, user_id", "Size": "2h"}.get(question.split()[0], default)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", answer)
    assert shell("init", "clicks") == 0, shell.err
    assert asked == {
        "Name": "clicks_windows", "Key": "user_id", "Event": "clicked_at",
        "Slice": "dt", "Order": "commits", "Size": "1h",
    }  # fmt: skip
    pipeline = load_file(shell.root / "pipelines" / "mine.yaml")
    assert pipeline.log.key == ("click_id", "user_id")
    assert "tumbling: {size: 2h}" in (shell.root / "pipelines" / "mine.yaml").read_text()


@pytest.mark.parametrize(
    ("question", "answer", "line"),
    [
        ("Key", "all", "  over: all "),
        ("Order", "appended", "  order: appended "),
        ("Order", "received_at, click_id", "  order: [received_at, click_id] "),
    ],
)
def test_words_and_columns_can_be_typed_and_given_as_options(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, question: str, answer: str, line: str
) -> None:
    """A line of nothing is the default for click, so each answer is a word or columns."""
    tables.tracked(shell.root / "logs" / "clicks")
    options = [part for name in answer.split(", ") for part in (f"--{question.lower()}", name)]
    assert shell("init", "logs/clicks", "--yes", "--name", "given", *options) == 0, shell.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", lambda text, default, **_: answer if text.split()[0] == question else default)
    assert shell("init", "logs/clicks", "--name", "typed") == 0, shell.err
    for name in ("given", "typed"):
        assert line in (shell.root / "pipelines" / f"{name}.yaml").read_text()


def test_the_order_of_commits_can_be_named(shell: Shell) -> None:
    tables.tracked(shell.root / "logs" / "clicks")
    assert shell("init", "logs/clicks", "--yes", "--order", "commits") == 0, shell.err
    assert "  order: " not in (shell.root / "pipelines" / "clicks.yaml").read_text()


def test_wrong_options_are_errors_of_one_paragraph(shell: Shell) -> None:
    tables.tracked(shell.root / "clicks")
    for options, message in (
        (("--key", "x"), "has no column 'x'"),
        (("--event-time", "amount"), "write amount:ms"),
        (("--window", "1"), "is not a duration"),
        (("--window", "0s"), "must be longer than 0"),
        (("--sample", "0"), "0 is not in the range"),
        (("--slice-by", "nothing"), "nothing"),
        (("--order", "amount"), "does not order all records"),
    ):
        status = shell("doctor", "clicks", *options)
        assert status in {1, 2}, options
        assert message in shell.out + shell.err, (options, shell.out, shell.err)
    assert shell("doctor", "") == 1
    assert "TABLE is empty" in shell.err


def test_an_empty_table_gets_a_file_and_no_plan(shell: Shell) -> None:
    tables.empty_with_columns(shell.root / "clicks")
    assert shell("init", "clicks", "--yes", "--order", "id") == 0, shell.err
    assert "there is nothing to plan" in shell.out
    found = shell.json("doctor", "clicks")
    assert found["delays"] is None
    assert json.dumps(found["sampled"]) == "0"


def test_a_table_of_a_pipeline_is_no_log_but_what_it_has_published(shell: Shell) -> None:
    assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-02") == 0, shell.err
    for table in ("window_outputs", "late_records", "window_state", "ledger"):
        assert shell("doctor", f"sales/{table}") == 2
        assert f"sales/{table} is a table of the pipeline sales" in shell.err
        assert "write `log: {pipeline: sales}`" in shell.err
    text = (shell.root / "pipelines" / "sales.yaml").read_text().replace("pipeline: sales", "pipeline: again")
    (shell.root / "pipelines" / "again.yaml").write_text(text.replace(SALES, "sales/window_outputs"))
    assert shell("plan", "again", "--from", "2024-01-01", "--to", "2024-01-02") == 2
    assert "again.yaml: log.table: " in shell.err
    assert "is a table of the pipeline sales" in shell.err
    tables.by_date(shell.root / "mine" / "ledger")
    tables.by_date(shell.root / "mine" / "clicks")
    tables.by_date(shell.root / "mine" / "watermarks")
    for name in ("clicks", "ledger", "watermarks"):
        assert shell("doctor", f"mine/{name}") == 0, "a table of the user that is called ledger, or beside it"
