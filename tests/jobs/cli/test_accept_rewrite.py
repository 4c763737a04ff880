"""`hindcast accept-rewrite`: what it shows, asks, refuses and writes; and what `plan`, `run` and `status` say then."""

import re
import sys
from pathlib import Path

import click
import pytest
from deltalake import DeltaTable

from tests.jobs.cli.conftest import Shell

RANGE = ("--from", "2024-01-01", "--to", "2024-01-04")
WHY = ("--reason", "erasure request 88")


@pytest.fixture
def erased(shell: Shell) -> Shell:
    """A shell with three published days. Commit 5 of the log has deleted a record of the second one."""
    assert shell("run", "sales", *RANGE) == 0
    log(shell).delete("id = '2024-01-02/a/2'")
    return shell


def log(shell: Shell) -> DeltaTable:
    return DeltaTable(str(Path(shell.root) / "event_logs" / "sales"))


def test_the_refusal_names_the_command_and_the_command_is_the_way_out(erased: Shell) -> None:
    assert erased("run", "sales", *RANGE) == 1
    assert "`hindcast accept-rewrite PIPELINE --reason …`" in erased.err
    assert erased("status", "sales") == 0
    assert "`hindcast accept-rewrite sales --reason …`" in erased.out
    assert erased("accept-rewrite", "sales", *WHY, "--yes") == 0
    assert "accepted: commit 5 (DELETE) for sales, by ann: erasure request 88" in erased.out
    assert "next: hindcast plan sales --from 2024-01-02 --to …" in erased.out
    assert erased("status", "sales") == 0
    told = "1 record was removed by the accepted commit 5 (erasure request 88)"
    assert f"1 published day changed: 2024-01-02, 2 records then, 1 now; {told}" in erased.out
    plan = erased.json("plan", "sales", *RANGE)
    assert [step["reason"] for step in plan["steps"]] == ["current", "input changed", "state before changed"]
    assert plan["steps"][1]["because"].startswith(told)
    assert erased("run", "sales", *RANGE) == 0
    assert erased.json("status", "sales")["pipelines"][0]["changed"]["sentences"] == []


def test_a_dry_run_shows_commit_slices_and_records_and_writes_nothing(erased: Shell) -> None:
    before = erased.json("status", "sales")["pipelines"][0]["ledger_version"]
    assert erased("accept-rewrite", "sales", "--dry-run") == 0
    for text in ("DELETE WHERE id = '2024-01-02/a/2'", "2024-01-02", "If accepted, 1 slice is `input changed`"):
        assert text in erased.out
    found = erased.json("accept-rewrite", "sales", "--dry-run")
    [commit] = found["commits"]
    assert (commit["version"], commit["operation"], commit["accepted"]) == (5, "DELETE", False)
    assert commit["published"] == ["2024-01-02"]
    done = commit["slices"]["2024-01-02"]
    assert (done["before"], done["after"], len(done["removed_files"]), len(done["added_files"])) == (2, 1, 1, 1)
    assert erased.json("status", "sales")["pipelines"][0]["ledger_version"] == before


def test_a_dry_run_warns_of_a_commit_that_would_not_be_accepted(erased: Shell) -> None:
    file = erased.root / "pipelines" / "sales.yaml"
    file.write_text(re.sub("order: .*", "order: appended", file.read_text()))
    assert erased("accept-rewrite", "sales", "--dry-run") == 0
    assert "warning: commit 5 (DELETE) of pipeline sales cannot be accepted, because" in erased.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (WHY, "--version 5 --reason … --yes"),
        (("--json", *WHY), "nobody can be asked here"),
        (("--yes",), "an acceptance needs a reason (--reason TEXT)"),
        (("--yes", "--reason", " "), "needs a reason that is not empty"),
        (("--yes", *WHY, "--version", "3"), "commit 3 of event log"),
        (("--yes", *WHY, "--version", "77"), "has no commit 77 yet; its newest is 5"),
    ],
)
def test_what_is_refused_writes_nothing(erased: Shell, options: tuple[str, ...], message: str) -> None:
    assert erased("accept-rewrite", "sales", *options) == 1
    assert message in erased.err
    assert erased("plan", "sales", *RANGE) == 1


def test_a_person_on_a_terminal_is_asked(erased: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    answers = [False, True]
    monkeypatch.setattr(click, "confirm", lambda _text, default: answers.pop(0) or default)
    assert erased("accept-rewrite", "sales", *WHY) == 1
    assert "nothing was accepted" in erased.err
    assert erased("accept-rewrite", "sales", *WHY) == 0
    assert "accepted: commit 5" in erased.out


def test_nothing_to_accept_is_no_error(erased: Shell) -> None:
    assert erased("accept-rewrite", "sales", *WHY, "--yes") == 0
    assert erased("accept-rewrite", "sales", *WHY, "--yes") == 0
    assert "nothing to accept. Up to version 5" in erased.out
    for options in ((), ("--version", "5")):
        assert erased("accept-rewrite", "sales", *WHY, "--yes", *options) == 0
        assert erased.out.count("commit 5 (DELETE) was accepted by ann at") == 1


def test_a_stretch_of_changed_slices_tells_what_the_commit_removed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-06") == 0
    log(shell).delete("key = 'a'")
    assert shell("accept-rewrite", "sales", *WHY, "--yes") == 0
    assert shell("plan", "sales", "--from", "2024-01-01", "--to", "2024-01-06") == 0
    words = "5 records were removed by the accepted commit 5 (erasure request 88); 10 records then, 5 now"
    assert words in shell.out, shell.out
