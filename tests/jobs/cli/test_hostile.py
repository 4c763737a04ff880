"""Commands with hostile texts and bad input: no text acts on the terminal, and every error is one paragraph."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest
import rich.console

from jobs.cli import inspect as cli_look, status as cli_status
from jobs.cli.main import COMMANDS as ALL_COMMANDS, hindcast
from jobs.cli.options import run_cli
from jobs.console import print_table, say
from jobs.planning.request_context import RequestContext
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import FAILS, PIPELINE, append_day
from tests.support.latin_texts import write_latin_texts

RANGE = ("--from", "2024-01-01", "--to", "2024-01-05")
CONTROLS = "".join(map(chr, (*range(1, 32), *range(127, 160)))) + "\u2028\u2029\u202e\u2066\u200f"
HOSTILE = f"x\x1b[2J\x1b]0;y\x07\r\nFORGED: published{CONTROLS}\nFORGED [bold]z"
ARGUMENT = HOSTILE.replace("\0", "")
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200f\ud800-\udfff]")
DATES = ("0001-01-01", "9999-12-31", "0001-01-03", "9999-12-30", "0000-00-00", "10000-01-01", ARGUMENT)


def _check(shell: Shell) -> None:
    """The output has no control characters, no forged lines, no traceback and no report of a bug."""
    for text in (shell.out, shell.err):
        found = UNSAFE.search(text)
        assert found is None, (found, text)
        assert not [line for line in text.splitlines() if line.lstrip().startswith("FORGED")], text
        assert "Traceback" not in text
        assert "RUST_BACKTRACE" not in text
        assert "a bug in Hindcast" not in text, text


@pytest.fixture
def hostile(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A lake whose names, keys, reasons and ids are hostile. One request is not published because a check failed."""
    monkeypatch.setenv("HINDCAST_WHO", HOSTILE)
    for day in ("2024-01-01", "2024-01-02"):
        append_day(shell.root, day, {HOSTILE: 1})
    shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-03", "--reason", HOSTILE)
    _check(shell)
    append_day(shell.root, "2024-01-03", {HOSTILE: FAILS})
    shell("run", "sales", "--from", "2024-01-03", "--to", "2024-01-05", "--reason", HOSTILE)
    _check(shell)
    return shell


COMMANDS = (
    *[("status",), ("status", "sales"), ("show", "sales"), ("show", "sales", "--all-panes"), ("report", "sales")],
    ("plan", "sales", *RANGE), ("run", "sales", *RANGE, "--reason", ARGUMENT),
    ("run", "sales", *RANGE, "--as-candidate", "--reason", ARGUMENT),
    ("run", "sales", *RANGE, "--replace", "--reason", ARGUMENT), ("publish", "sales"),
    ("publish", "sales", "--request", ARGUMENT), ("explain", "sales", f"2024-01-01/{HOSTILE}/1"),
    ("explain", "sales", ARGUMENT), ("waive", "sales", "2024-01-03", "--run", ARGUMENT, "--reason", ARGUMENT),
    ("waive", "sales", "2024-01-03", "--reason", ARGUMENT), ("waive", "sales", ARGUMENT, "--reason", ARGUMENT),
    ("show", "sales", "--slice", ARGUMENT), ("show", ARGUMENT),
    ("adopt", "sales"), ("adopt", "sales", "--from", ARGUMENT), ("adopt", "sales", "--reason", ARGUMENT, "--dry-run"),
    ("repair", "sales"), ("repair", "sales", "--from", ARGUMENT), ("repair", "sales", "--at-most", ARGUMENT),
    ("verify", "sales"), ("verify", "sales", "--from", ARGUMENT), ("diff", "sales"), ("diff", "sales", "--json"),
    ("diff", "sales", "--request", ARGUMENT), ("diff", "sales", "--run", ARGUMENT), ("diff", "sales", "--at", ARGUMENT),
    ("diff", "sales", "--at", "0", "--all-panes"), ("diff", "sales", "--at", "9" * 30), ("diff", ARGUMENT),
    ("changes", "sales", "--since", "0"), ("changes", "sales", "--since", ARGUMENT), ("current", "sales"),
    ("changes", "sales", "--since", "0", "--format", "csv", "--to", ARGUMENT), ("current", "sales", "--rebuild"),
    ("export", "sales", "--format", "csv", "--to", "rows.csv"), ("export", "sales", "--format", ARGUMENT),
    ("export", "sales", "--format", "csv", "--to", "rows2.csv", "--table", ARGUMENT), ("current", ARGUMENT),
    ("export", "sales", "--format", "delta", "--to", "rows", "--windows", ARGUMENT),
    ("cancel", "sales", "--request", ARGUMENT, "--reason", "x"),
    ("cancel", "sales", "--request", "", "--reason", ARGUMENT),
    ("comment", "sales", "--request", ARGUMENT, "--text", "x"),
    ("comment", "sales", "--request", "", "--text", ARGUMENT),
    ("comment", "sales", "--request", "", "--assign", ARGUMENT), ("comment", "sales", "--request", "x"),
    ("schema", ARGUMENT), ("follow", ARGUMENT), ("follow", "sales", "--reason", ARGUMENT), ("mend", "sales", ARGUMENT),
    ("mend", "sales", "2024-01-01", "--reason", ARGUMENT, "--dry-run"),
    ("rollback", "sales", "--publication", "2", "--reason", ARGUMENT), ("resume", "sales", "--reason", ARGUMENT),
    ("accept-rewrite", "sales"), ("accept-rewrite", "sales", "--version", "1", "--reason", ARGUMENT, "--yes"),
    ("accept-rewrite", "sales", "--version", ARGUMENT), ("accept-rewrite", "sales", "--reason", ARGUMENT, "--dry-run"),
    ("verify", "sales"), ("verify", "sales", "--from", ARGUMENT), ("verify", "sales", "--to", ARGUMENT),
    ("rollback", "sales", "--publication", ARGUMENT, "--reason", "x"), (ARGUMENT,), ("show", "sales", f"--{ARGUMENT}"),
    ("show", "sales", "--limit", ARGUMENT), ("report", "sales", "--output", ARGUMENT), ("show", "sales", ARGUMENT),
    ("load-flights", "--from", ARGUMENT), ("plan", "sales", "--from", ARGUMENT, "--to", "2024-01-02"),
    ("metrics",), ("metrics", ARGUMENT), ("setup", ARGUMENT),
    ("recover", "sales", "--reason", ARGUMENT), ("clean", "sales"), ("clean", "sales", "--older-than", ARGUMENT),
    ("clean", "sales", "--older-than", "0s", "--remove"), ("mend", "sales", ARGUMENT),
    ("verify", "sales", "--share", ARGUMENT),
    ("suite", "propose", "sales"), ("suite", "propose", "sales", "--output", "proposed.json"),
    ("suite", "try", "proposed.json", "sales"), ("suite", "try", ARGUMENT, "sales"), ("suite", ARGUMENT),
    ("suite", "propose", "sales", "--from", ARGUMENT), ("suite", "propose", "sales", "--output", ARGUMENT),
    ("doctor", "event_logs/sales"), ("doctor", ARGUMENT), ("doctor", "event_logs/sales", "--key", ARGUMENT),
    ("doctor", "event_logs/sales", "--event-time", ARGUMENT), ("doctor", "event_logs/sales", "--slice-by", ARGUMENT),
    ("doctor", "event_logs/sales", "--order", ARGUMENT), ("doctor", "event_logs/sales", "--window", ARGUMENT),
    ("doctor", "event_logs/sales", "--horizon", ARGUMENT),
    ("init", "event_logs/sales", "--yes"), ("init", "event_logs/sales", "--yes", "--force", "--name", "sales2"),
    ("init", ARGUMENT, "--yes"), ("init", "event_logs/sales", "--yes", "--name", ARGUMENT),
)  # fmt: skip


@pytest.mark.slow
def test_no_command_prints_control_characters(hostile: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile.root)
    for command in COMMANDS:
        assert hostile(*command) in {0, 1, 2}
        _check(hostile)
        if hostile(*command, "--json") == 0:
            _check(hostile)
            for line in hostile.out.splitlines():
                json.loads(line)
    assert {request["who"] for request in hostile.json("status", "sales")["pipelines"][0]["requests"]} == {HOSTILE}


@pytest.mark.slow
def test_texts_that_are_not_utf_8_in_rows_of_an_older_version_are_shown_with_escapes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_day(shell.root, "2024-01-06", {"LATIN": 7})
    write_latin_texts(monkeypatch, b"LATIN")
    days = ("--from", "2024-01-01", "--to", "2024-01-07")
    assert shell("run", "sales", *days) == 0, shell.err
    assert shell("show", "sales") == 0
    assert "caf\\xe9" in shell.out
    assert shell.json("show", "sales", "--slice", "2024-01-06")["key"] == "caf\\xe9"
    for command in (("explain", "sales", "2024-01-06/LATIN/7"), ("verify", "sales"), ("report", "sales")):
        assert shell(*command) == 0, shell.err
    append_day(shell.root, "2024-01-06", {"b": 1})
    assert shell("run", "sales", *days, "--no-publish") == 0
    assert shell("diff", "sales") == 0, shell.err


def test_the_lists_of_this_module_have_every_command() -> None:
    assert set(ALL_COMMANDS) <= {command[0] for command in COMMANDS}, "add the new command"
    assert set(ALL_COMMANDS) - {"setup", "schema"} <= {command[0] for command in ON_A_LAKE}, "add the new command"


def test_json_output_is_the_stored_value(hostile: Shell) -> None:
    assert hostile("show", "sales", "--slice", "2024-01-01", "--json") == 0
    assert HOSTILE in {json.loads(line)["key"] for line in hostile.out.splitlines()}


def test_a_text_of_a_pipeline_file_cannot_act_on_the_terminal(shell: Shell) -> None:
    bad = {"owner": HOSTILE, "log": HOSTILE, HOSTILE: 1, "schedule": HOSTILE, "semantics": HOSTILE, "description": 5}
    for key, value in bad.items():
        (shell.root / "pipelines" / "bad.yaml").write_text(PIPELINE + json.dumps(key) + ": " + json.dumps(value))
        for command in (("status",), ("show", "bad"), ("plan", "bad", *RANGE)):
            shell(*command)
            _check(shell)
            assert "bad.yaml" in shell.out + shell.err


def test_status_with_a_damaged_ledger_prints_the_other_pipelines(shell: Shell) -> None:
    shell("run", "sales", *RANGE)
    (shell.root / "pipelines" / "other.yaml").write_text(PIPELINE.replace("pipeline: sales", "pipeline: other"))
    newest = max((shell.root / "sales" / "ledger" / "_delta_log").glob("*.json"))
    newest.write_bytes(b"")
    assert shell("status") == 1
    _check(shell)
    assert "other: readers see nothing" in shell.out
    assert "sales: broken: ledger " in shell.out
    assert [one["pipeline"] for one in shell.json("status")["broken"]] == ["sales"]
    assert shell("status", "sales") == 1
    assert shell.err.startswith("error: ledger ")


@pytest.mark.slow
def test_every_command_accepts_or_refuses_every_date(shell: Shell) -> None:
    shell("run", "sales", *RANGE)
    for date in DATES:
        for command in (
            *[
                (name, "sales", "--from", date, "--to", "2024-01-03", *more)
                for name in ("plan", "run")
                for more in _MORE
            ],
            *[
                (name, "sales", "--from", "2024-01-01", "--to", date, *more)
                for name in ("plan", "run")
                for more in _MORE
            ],
            *[("plan", "sales", "--from", date, "--to", date), ("run", "sales", "--from", date, "--to", date)],
            *[
                ("show", "sales", "--slice", date),
                ("waive", "sales", date, "--reason", "x"),
                ("explain", "sales", date),
            ],
            *[
                ("load-flights", "--from", date),
                ("load-flights", "--to", date),
                ("verify", "sales", "--from", date),
                ("verify", "sales", "--to", date),
                ("publish", "sales", "--request", date),
                ("cancel", "sales", "--request", date, "--reason", "x"),
                ("suite", "propose", "sales", "--from", date),
                ("suite", "propose", "sales", "--to", date),
            ],
        ):
            status = shell(*command)
            assert status in {1, 2} or (status == 0 and command[0] in {"show", "suite", "verify"}), (command, shell.out)
            assert len(shell.err.strip().splitlines()) <= 4, "one paragraph, and at most the usage before it"
            _check(shell)


_MORE = ((), ("--fresh",))


BAD_LAKES = {
    "{tmp}/none": "does not exist",
    "{tmp}/file": "is not a directory",
    "/etc/passwd": "is not a directory",
    "ftp://host/lake": "found 'ftp://host/lake'; allowed are paths",
    "{tmp}/[a]": "may not have [ in its name",
    "{tmp}/a%20b": "may not have %20 in its name",
    "s3:/x": "a URI names a bucket",
    "{tmp}/\udcff": "control characters",
    "": "must be a directory",
    "x" * 300: "one of its names has 300 bytes",
}
ON_A_LAKE = (
    ("status",), ("show", "sales"), ("report", "sales"), ("publish", "sales"), ("explain", "sales", "x"),
    ("waive", "sales", "2024-01-01", "--reason", "x"), ("rollback", "sales", "--publication", "1", "--reason", "x"),
    ("resume", "sales", "--reason", "x"), ("verify", "sales"), ("cancel", "sales", "--request", "x", "--reason", "x"),
    ("plan", "sales", *RANGE), ("run", "sales", *RANGE), ("load-flights",), ("metrics", "sales"), ("clean", "sales"),
    ("comment", "sales", "--request", "x", "--text", "x"), ("accept-rewrite", "sales"), ("repair", "sales"),
    ("adopt", "sales"), ("mend", "sales", "2024-01-01"), ("suite", "propose", "sales"), ("diff", "sales"),
    ("recover", "sales", "--reason", "x"), ("export", "sales", "--format", "csv", "--to", "rows"),
    ("changes", "sales", "--since", "1"), ("follow", "sales"),
    ("doctor", "event_logs/sales"), ("init", "event_logs/sales", "--yes", "--name", "sales2"),
)  # fmt: skip


@pytest.mark.parametrize("lake", BAD_LAKES)
def test_a_bad_lake_is_an_error_and_not_an_empty_lake(shell: Shell, lake: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    root, message = lake.format(tmp=tmp_path), BAD_LAKES[lake]
    for command in ON_A_LAKE:
        if command[0] == "load-flights" and message == "does not exist":
            continue  # it would create the lake
        status = run_cli(hindcast, [*command, "--lake", root, "--pipelines", str(shell.root / "pipelines")])
        shell.out, shell.err = shell.capsys.readouterr()
        _check(shell)
        assert status in {1, 2}
        assert message in shell.err
    assert not (tmp_path / "none").exists()


def test_report_in_a_read_only_lake_is_one_paragraph(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The functions that write are patched, because root can write into a read-only directory."""
    shell("run", "sales", *RANGE)

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise OSError(30, "Read-only file system")

    def only_read(path: str, flags: int, *more: Any, **named: Any) -> int:  # noqa: ANN401 - those of `os.open`
        return opened(path, flags, *more, **named) if flags & os.O_ACCMODE == os.O_RDONLY else refuse()

    opened = os.open
    monkeypatch.setattr("os.open", only_read)
    for function in ("os.mkdir", "tempfile.mkstemp"):
        monkeypatch.setattr(function, refuse)
    assert shell("report", "sales") == 1
    assert f"cannot be written to {shell.root / 'reports'}: Read-only file system" in shell.err
    assert "--output" in shell.err
    _check(shell)
    monkeypatch.undo()
    for output in ("/proc/x.html", "/dev/null/x.html", f"{tmp_path}/{'x' * 300}.html"):
        assert shell("report", "sales", "--output", output) in {1, 2}
        _check(shell)


def test_a_report_does_not_follow_links(shell: Shell, tmp_path: Path) -> None:
    """A user who may write into reports/ must not choose which file `hindcast report` overwrites."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    reports = shell.root / "reports"
    reports.mkdir()
    for name in (".sales.html.half", "sales.html"):
        (reports / name).symlink_to(victim)
    assert shell("report", "sales") == 0
    assert victim.read_text() == "mine"
    assert not (reports / "sales.html").is_symlink()
    assert "sales" in (reports / "sales.html").read_text()
    assert sorted(path.name for path in reports.iterdir()) == [".sales.html.half", "sales.html"], (
        "no other file is left"
    )


def test_an_unexpected_error_is_one_paragraph_and_a_file_with_the_traceback(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Panic(BaseException):
        """As pyo3 raises it when Rust panics."""

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for error in (KeyError("a\x1b[2Jb"), Panic("first line\nsecond"), RecursionError("deep"), SystemExit(0)):

        def fail(*_args: object, error: BaseException = error, **_kwargs: object) -> NoReturn:
            raise error

        monkeypatch.setattr(cli_status, "slice_grid", fail)
        monkeypatch.setattr(cli_look, "on_published_spec", fail)
        assert shell("show", "sales") == 1
        assert shell.out == ""
        assert len(shell.err.strip().splitlines()) == 1
        assert type(error).__name__ in shell.err
        assert UNSAFE.search(shell.err) is None
        found = re.search(r"The traceback is in (\S+);", shell.err)
        assert found is not None
        kept = Path(found[1])
        assert "Traceback (most recent call last)" in kept.read_text()
        assert kept.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert shell("show", "sales") == 1
    assert "The traceback could not be written to a file: No such file or directory" in shell.err


def test_memory_that_runs_out_is_not_reported_as_a_bug(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: it was, and "published results have not changed" stood there, also after a publication."""

    def fail(*_args: object, **_kwargs: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(RequestContext, "plan", fail)
    assert shell("plan", "sales", *RANGE) == 1
    assert shell.err.startswith("error: Cannot allocate memory. Give the process more memory")


def test_ctrl_c_is_not_reported_as_a_bug(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(RequestContext, "plan", interrupt)
    assert shell("plan", "sales", *RANGE) == 130
    assert shell.err.strip().startswith("interrupted; run the same command again")


@pytest.mark.parametrize(("module", "is_bug"), [("obstore.store", False), ("jobs.no_module", True)])
def test_a_package_that_an_update_needs_is_not_reported_as_a_bug(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, module: str, *, is_bug: bool
) -> None:
    """Defect: after `git pull` without `make setup`, the first command that needs a new package told of a bug."""

    def fail(*_args: object, **_kwargs: object) -> NoReturn:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(RequestContext, "plan", fail)
    assert shell("plan", "sales", *RANGE) == 1
    assert ("bug in Hindcast" in shell.err) == is_bug
    assert shell.err.startswith(f"error: the Python environment has no package {module}. After an update") == (
        not is_bug
    )


@pytest.mark.slow
def test_a_closed_pipe_is_not_reported_as_a_bug(shell: Shell) -> None:
    shell("run", "sales", *RANGE)
    command = (
        f"{sys.executable} -m jobs.cli.main show sales --json --lake {shell.root} --pipelines {shell.root}/pipelines"
    )
    found = subprocess.run(
        ["bash", "-c", f"{command} | true"], capture_output=True, text=True, check=False, env=os.environ
    )
    assert "bug" not in found.stderr


def test_documents_are_json_and_cut_to_the_width_of_the_screen(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    documents: list[object] = [["it's", 'a "b"', None, True], {"k": "v'" * 500}, [HOSTILE] * 9]
    for value in documents:
        text = cli_look.cell(value)
        assert json.loads(text) == value
        print_table("t", ["key", "found"], [("a", text), ("b", 5)], cut=["found"])
        out = shell.capsys.readouterr().out
        assert UNSAFE.search(out) is None
        assert all(len(line) <= 80 for line in out.splitlines())
        assert len(out.splitlines()) == 4, "one line each"
        assert text[:20] in out or len(text) < 60


def test_only_our_own_colours_reach_a_terminal(shell: Shell) -> None:
    console = rich.console.Console(force_terminal=True, color_system="standard", highlight=False, width=500)
    with console.capture() as captured:
        say(HOSTILE, style="red", console=console)
    assert UNSAFE.search(captured.get().removeprefix("\x1b[31m").replace("\x1b[0m", "")) is None
    assert captured.get().count("\n") == 1
    assert shell.root.is_dir()
