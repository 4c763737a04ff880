"""The commands `hindcast export` and `hindcast changes` over a lake of the fake replayer."""

from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import append_day

RANGE = ("--from", "2024-01-01", "--to", "2024-01-06")


def windows(shell: Shell, version: int) -> dict[tuple[str, str], dict[str, Any]]:
    """Export the windows of a ledger version; return window -> its values."""
    target = shell.root / f"{version}.parquet"
    written = shell.json("export", "sales", "--format", "parquet", "--to", str(target), "--at", str(version))
    rows = pq.read_table(target, columns=["key", "window_start", "total", "record_count"]).to_pylist()
    assert (written["rows"], written["ledger_version"]) == (len(rows), version)
    return {(row["key"], f"{row['window_start']:%Y-%m-%d}"): row for row in rows}


@pytest.mark.slow
def test_a_sink_follows_publications_and_a_rollback_by_their_changes(shell: Shell) -> None:
    versions = [0]
    for amounts in ({}, {"a": 10, "c": 1}, {"b": 5}):
        if amounts:
            append_day(shell.root, "2024-01-03", amounts)
        shell("run", "sales", *RANGE)
        versions.append(shell.json("status", "sales")["pipelines"][0]["ledger_version"])
    shell("rollback", "sales", "--publication", str(versions[-1]), "--reason", "wrong")
    versions.append(shell.json("status", "sales")["pipelines"][0]["ledger_version"])
    sink: dict[tuple[str, str], dict[str, Any]] = {}
    operations = []
    for since, until in pairwise(versions):
        feed = shell.json("changes", "sales", "--since", str(since), "--until", str(until))
        operations.append(feed["counts"])
        assert len(feed["changes"]) == sum(feed["counts"].values())
        for change in feed["changes"]:
            window = change["window"]["key"], change["window"]["window_start"][:10]
            assert (change["before"] is None) == (change["operation"] == "insert") == (window not in sink)
            assert change["before"] in (None, sink.get(window))
            if change["operation"] == "delete":
                del sink[window]
            else:
                sink[window] = change["after"]
        expected = windows(shell, until)
        assert sink == {
            window: {name: row[name] for name in ("total", "record_count")} for window, row in expected.items()
        }
    assert [counts["delete"] for counts in operations] == [0, 0, 0, 1]
    back = shell.json("changes", "sales", "--since", str(versions[1]))
    assert back["counts"] == {"insert": 1, "update": 1, "delete": 0}
    assert shell.json("changes", "sales", "--since", str(versions[2]))["counts"] == dict.fromkeys(back["counts"], 0)


def test_changes_are_told_in_words_and_written_to_a_file(shell: Shell) -> None:
    shell("run", "sales", *RANGE)
    version = shell.json("status", "sales")["pipelines"][0]["ledger_version"]
    append_day(shell.root, "2024-01-03", {"a": 10, "c": 1})
    shell("run", "sales", *RANGE)
    assert shell("changes", "sales", "--since", str(version)) == 0
    assert "1 insert, 1 update, 0 deletes" in shell.out
    assert "update key a, window_start 2024-01-03T00:00:00Z" in shell.out
    assert "total 3 → 13" in shell.out
    target = str(shell.root / "changes.parquet")
    assert shell("changes", "sales", "--since", str(version), "--format", "parquet", "--to", target) == 0
    rows = pq.read_table(target).to_pylist()
    assert [(row["operation"], row["key"], row["before_total"], row["after_total"]) for row in rows] == [
        ("update", "a", 3, 13),
        ("insert", "c", None, 1),
    ]
    assert shell("changes", "sales", "--since", str(version), "--format", "parquet", "--to", target) == 1
    assert shell("changes", "sales", "--since", str(version), "--format", "parquet") == 2
    assert shell("changes", "sales", "--since", "999") == 1
    assert "the ledger has no version 999" in shell.err


def test_an_export_of_nothing_and_of_an_unknown_table_is_refused(shell: Shell) -> None:
    target = str(shell.root / "rows.csv")
    assert shell("export", "sales", "--format", "csv", "--to", target) == 1
    assert "has published nothing at ledger version" in shell.err
    shell("run", "sales", *RANGE)
    assert shell("export", "sales", "--format", "csv", "--to", target, "--table", "timers") == 1
    assert "no published table 'timers'; it has window_outputs" in shell.err
    assert shell("export", "sales", "--format", "csv", "--to", target, "--windows", "2024-01-02..2024-01-03") == 0
    assert "2 rows of window_outputs" in shell.out
