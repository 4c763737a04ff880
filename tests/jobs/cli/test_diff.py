"""The command `hindcast diff` over a lake of the fake replayer."""

import pytest
from deltalake import DeltaTable

from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import append_day

RANGE = ("--from", "2024-01-01", "--to", "2024-01-06")


@pytest.fixture
def restated(shell: Shell) -> Shell:
    """Five published days, and an open request in which the third day has a record more."""
    shell("run", "sales", *RANGE)
    append_day(shell.root, "2024-01-03", {"a": 10, "c": 1})
    shell("run", "sales", *RANGE, "--no-publish")
    return shell


def test_the_open_request_is_compared_with_what_readers_see(restated: Shell) -> None:
    found = restated.json("diff", "sales")
    outputs = found["tables"][0]
    assert found["before"].startswith("what readers see")
    assert found["equal"] is False
    assert "2024-01-03" in found["slices"]
    assert (outputs["table"], outputs["unit"]) == ("window_outputs", "window")
    assert (outputs["changed"], outputs["only_after"], outputs["only_before"]) == (1, 1, 0)
    total = next(column for column in outputs["columns"] if column["column"] == "total")
    assert (total["mismatch"], total["largest"], total["median"]) == (1, 10, 10)
    changed = next(sample for sample in outputs["samples"] if sample["change"] == "changed")
    assert changed["match"]["key"] == "a"
    assert (changed["before"]["total"], changed["after"]["total"]) == (3, 13)
    assert "total" in changed["differs"]


def test_the_differences_are_printed_in_words(restated: Shell) -> None:
    assert restated("diff", "sales") == 0
    assert "window_outputs (keys key): 1 window changed, 1 only after, 0 only before" in restated.out
    assert "column total: 1 differs; by up to 10, median 10; relative up to 333 %" in restated.out
    assert "changed: key a [2024-01-03T00:00:00Z, 2024-01-04T00:00:00Z): total 3 -> 13" in restated.out


@pytest.mark.slow
def test_versions_and_runs_are_compared(restated: Shell) -> None:
    seen = restated.json("status", "sales")["pipelines"][0]["ledger_version"]
    restated("publish", "sales")
    now = restated.json("diff", "sales", "--at", str(seen))
    assert now["tables"][0]["changed"] == 1
    assert restated.json("diff", "sales", "--at", "0")["tables"][0]["only_after"] == 11
    request = restated.json("diff", "sales", "--request", restated_request(restated))
    assert [table["changed"] for table in request["tables"]] == [1]
    runs = DeltaTable(restated.root / "sales" / "window_outputs").to_pyarrow_table(
        columns=["slice_id", "run_id"]
    ).group_by(["slice_id", "run_id"]).aggregate([]).to_pylist()  # fmt: skip
    third = [one["run_id"] for one in runs if one["slice_id"] == "2024-01-03"]
    found = restated.json("diff", "sales", "--run", third[0], "--run", third[1][:12])
    assert found["tables"][0]["changed"] == 1


def restated_request(shell: Shell) -> str:
    """The id of the newest published request."""
    from jobs.ledger.ledger import Ledger

    view = Ledger(str(shell.root / "sales" / "ledger"), now_ms=lambda: 0).view()
    return str(view.publications[-1].request_id)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--at", "1", "--run", "x"), "exclude each other"),
        (("--at", "1", "--at", "2", "--at", "3"), "given 3 times"),
        (("--at", "999"), "the ledger has no version 999; allowed: 0 to"),
        (("--run", "nothing"), "the ledger has no run 'nothing'"),
        (("--request", ""), "the ledger has no request ''"),
    ],
)
def test_a_wrong_choice_is_refused(restated: Shell, arguments: tuple[str, ...], message: str) -> None:
    assert restated("diff", "sales", *arguments) in {1, 2}
    assert message in restated.err


def test_without_an_open_request_the_command_names_the_other_choices(shell: Shell) -> None:
    shell("run", "sales", *RANGE)
    assert shell("diff", "sales") == 1
    assert "no open request would change what readers see" in shell.err
