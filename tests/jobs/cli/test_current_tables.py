"""The commands over a pipeline with current tables: publications, rollbacks, kills between the ledger and the table."""

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.lake import plain_table
from jobs.lake.durable_commits import added_paths
from jobs.lake.lake import Lake
from jobs.ledger.history import REMEMBERED
from jobs.orchestration.maintenance import verify_all
from jobs.pipeline.files import load_file
from jobs.planning.request_context import open_request_context
from jobs.publishing import verified_current
from jobs.readers import published_table
from jobs.reading.verify import Span
from tests.jobs.cli.conftest import Shell
from tests.jobs.publishing.test_current_tables import Killed, plain, rows_of
from tests.jobs.reading.test_stored_rows import LATE
from tests.support.fake_replay import PIPELINE, append_day
from tests.support.fuzzing import chances
from windowlib.records.tables import LATE_RECORDS, WINDOW_OUTPUTS

TABLES = (WINDOW_OUTPUTS, LATE_RECORDS)
RANGE = ("--from", "2024-01-01", "--to", "2024-01-06")


@pytest.fixture
def kept(shell: Shell) -> Shell:
    """A shell whose pipeline has current tables of its windows and late records."""
    text = f"{PIPELINE}publish: {{current_tables: [{', '.join(TABLES)}]}}\n"
    (shell.root / "pipelines" / "sales.yaml").write_text(text)
    shell.replayer.beside = {"2024-01-02": {LATE_RECORDS: [{**LATE, "slice_id": "2024-01-02"}]}}
    return shell


def place(shell: Shell, table: str) -> str:
    return str(shell.root / "sales" / f"current_{table}")


def assert_shows_what_readers_see(shell: Shell) -> None:
    for table in TABLES:
        seen = published_table(str(shell.root), "sales", table=table).to_pylist()
        assert rows_of(place(shell, table)) == plain(seen)
    status = shell.json("status", "sales")["pipelines"][0]
    assert [table["behind"] for table in status["current_tables"]] == [False, False]
    assert shell.json("metrics")["sales"]["behind_current_tables"] == 0


def assert_damage_of_the_table_hides_nothing(shell: Shell) -> None:
    """A damaged log of the table itself is told beside the current table, which cannot be compared with it."""
    max((shell.root / "sales" / WINDOW_OUTPUTS / "_delta_log").glob("*.json")).write_bytes(b"{")
    assert shell("status", "sales") == 0
    assert {finding["table"] for finding in shell.json("verify", "sales")["findings"]} == {
        "current_window_outputs",
        WINDOW_OUTPUTS,
    }


def behind(shell: Shell) -> list[bool]:
    return [table["behind"] for table in shell.json("status", "sales")["pipelines"][0]["current_tables"]]


def random_command(shell: Shell, rng: Random) -> None:
    """Publish changed records, at once or later, or roll back."""
    day = f"2024-01-{rng.randrange(1, 6):02d}"
    newest = shell.json("status", "sales")["pipelines"][0]["newest_publication"]
    if newest is not None and rng.random() < 0.3:
        shell("rollback", "sales", "--publication", str(newest["publication"]), "--reason", "a test")
        return
    append_day(shell.root, day, {rng.choice("abc"): rng.randrange(1, 9)})
    if rng.random() < 0.5:
        shell("run", "sales", *RANGE)
    else:
        shell("run", "sales", *RANGE, "--no-publish")
        shell("publish", "sales")


@pytest.mark.slow
def test_the_tables_follow_random_commands_of_which_some_are_killed(
    kept: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = plain_table.replace_slices
    for rng in chances(1):
        kept("run", "sales", *RANGE)
        for _ in range(4):
            kill = rng.choice([None, None, "before", "after"])

            def interrupted(*arguments: Any, kill: str | None = kill) -> bool:  # noqa: ANN401
                if kill == "before":
                    raise Killed
                assert commit(*arguments)
                if kill == "after":
                    raise Killed
                return True

            monkeypatch.setattr(plain_table, "replace_slices", interrupted)
            random_command(kept, rng)  # the shell tells a person of a `Killed`
            monkeypatch.setattr(plain_table, "replace_slices", commit)
            if kill is not None:
                kept("run", "sales", *RANGE)
            assert_shows_what_readers_see(kept)


@pytest.mark.slow
def test_a_table_that_is_behind_is_told_and_caught_up(kept: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    kept("run", "sales", *RANGE)
    history = DeltaTable(place(kept, WINDOW_OUTPUTS)).history(1)[0]
    newest = kept.json("status", "sales")["pipelines"][0]["newest_publication"]["publication"]
    assert history["hindcast.ledger_version"] == str(newest)
    assert kept("verify", "sales") == 0

    def broken(*_arguments: object) -> bool:
        raise Killed

    before = rows_of(place(kept, WINDOW_OUTPUTS))
    append_day(kept.root, "2024-01-03", {"a": 10})
    with monkeypatch.context() as patched:
        patched.setattr(plain_table, "replace_slices", broken)
        assert kept("run", "sales", *RANGE) != 0
    assert behind(kept) == [True, True]
    assert rows_of(place(kept, WINDOW_OUTPUTS)) == before
    kept("status", "sales")
    assert (
        f"current table window_outputs is behind: it shows publication {newest}, and readers of the ledger" in kept.out
    )
    assert kept("verify", "sales") == 1
    assert "table current_window_outputs: current table window_outputs is behind" in kept.out
    assert kept("verify", "sales", "--share", "1/2") == 0, "the nightly scrub reports damage, and this is none"
    assert kept("run", "sales", *RANGE) == 0
    assert_shows_what_readers_see(kept)
    assert kept("verify", "sales") == 0
    assert_damage_of_the_table_hides_nothing(kept)


@pytest.mark.slow
@pytest.mark.parametrize(("opened", "moves"), [(0, True), (1, True), (2, True), (3, True), (2, False), (3, False)])
def test_a_publication_while_the_tables_are_verified_is_no_finding(
    kept: Shell, monkeypatch: pytest.MonkeyPatch, opened: int, *, moves: bool
) -> None:
    """It comes before the table number `opened` is opened, or is then between its commit and the move of the tables."""
    kept("run", "sales", *RANGE)
    append_day(kept.root, "2024-01-03", {"a": 10})
    opens, open_plain = 0, plain_table.open_plain

    def broken(*_arguments: object) -> bool:
        raise Killed

    def publishing(uri: str) -> plain_table.PlainTable | None:
        nonlocal opens
        opens += 1
        if opens == opened + 1:
            patched.undo()
            with monkeypatch.context() as killed:
                if not moves:
                    killed.setattr(plain_table, "replace_slices", broken)
                assert (kept("run", "sales", *RANGE) == 0) is moves
        return open_plain(uri)

    with monkeypatch.context() as patched:
        for module in (plain_table, verified_current):
            patched.setattr(module, "open_plain", publishing)
        assert kept("verify", "sales") == 0, kept.out + kept.err
    assert opens > opened


@pytest.mark.slow
def test_a_publish_and_a_rollback_that_run_again_move_what_a_killed_one_has_left(
    kept: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> bool:
        raise Killed

    kept("run", "sales", *RANGE)
    append_day(kept.root, "2024-01-03", {"a": 10})
    kept("run", "sales", *RANGE, "--no-publish")
    for command in (("publish", "sales"), ("rollback", "sales", "--reason", "a test", "--publication", "NEWEST")):
        newest = str(kept.json("status", "sales")["pipelines"][0]["newest_publication"]["publication"])
        words = [newest if word == "NEWEST" else word for word in command]
        with monkeypatch.context() as patched:
            patched.setattr(plain_table, "replace_slices", broken)
            assert kept(*words) != 0
        assert behind(kept) == [True, True]
        assert kept(*words) == 1
        done = "The newest publication that readers see is" if command[0] == "publish" else "was rolled back already"
        assert done in kept.err
        assert_shows_what_readers_see(kept)


@pytest.mark.slow
def test_recover_moves_the_tables_back_to_what_readers_see(kept: Shell) -> None:
    kept("run", "sales", *RANGE)
    append_day(kept.root, "2024-01-03", {"a": 10})
    kept("run", "sales", *RANGE)
    assert_shows_what_readers_see(kept)
    newest = kept.json("status", "sales")["pipelines"][0]["newest_publication"]["publication"]
    ledger = kept.root / "sales" / "ledger"
    for commit in (ledger / "_delta_log").glob("*.json"):
        if int(commit.stem) >= newest:
            for path in added_paths(commit):
                (ledger / path).unlink()
            commit.unlink()
    REMEMBERED.forget_all()
    assert kept("recover", "sales", "--reason", "the disk failed") == 0, kept.err
    assert_shows_what_readers_see(kept)


def test_verify_finds_a_row_that_readers_do_not_see(kept: Shell) -> None:
    kept("run", "sales", *RANGE)
    DeltaTable(place(kept, WINDOW_OUTPUTS)).delete("slice_id = '2024-01-03'")
    assert kept("verify", "sales") == 1
    assert "current_window_outputs: has other rows (8 rows) than readers see at publication" in kept.out
    next(Path(place(kept, LATE_RECORDS)).rglob("*.parquet")).unlink()
    assert kept("verify", "sales") == 1
    assert "table current_late_records: " in kept.out
    for table in TABLES:
        shutil.rmtree(place(kept, table))
    assert kept("run", "sales", *RANGE) == 0
    assert_shows_what_readers_see(kept)


def test_a_table_that_cannot_be_written_is_told(kept: Shell) -> None:
    Path(place(kept, WINDOW_OUTPUTS)).mkdir(parents=True)
    Path(place(kept, WINDOW_OUTPUTS), "_delta_log").write_text("no directory")
    assert kept("run", "sales", *RANGE) == 1
    assert "a current table was not moved to it" in kept.err
    assert len(published_table(str(kept.root), "sales")) == 10


def test_the_first_share_of_the_slices_has_the_current_tables(kept: Shell) -> None:
    """Defect: the nightly maintenance never compared them, and their readers compare nothing."""
    assert kept("run", "sales", *RANGE) == 0
    work = open_request_context(
        load_file(kept.root / "pipelines" / "sales.yaml"), Lake(root=str(kept.root)), now_ms=lambda: 0
    )

    def found(*chosen: int) -> list[str]:
        span = Span(shares=3, chosen=frozenset(chosen)) if chosen else Span()
        return [finding.table for finding in verify_all(work, span).report.findings]

    assert (found(0), found()) == ([], [])
    table = DeltaTable(place(kept, WINDOW_OUTPUTS))
    table.delete("slice_id = '2024-01-03'")
    told = [found(*chosen) for chosen in ((0,), (1, 2), (2, 0), ())]
    assert told == [["current_window_outputs"], [], ["current_window_outputs"], ["current_window_outputs"]]
    shutil.rmtree(place(kept, WINDOW_OUTPUTS))  # it is behind
    assert (found(0), found()) == ([], ["current_window_outputs"])


@pytest.mark.slow
def test_a_current_table_whose_log_is_damaged_hides_nothing_and_is_written_again(kept: Shell, tmp_path: Path) -> None:
    """Defect: `status` called the pipeline broken, and `verify` told nothing else; both advised to restore a copy."""
    assert kept("run", "sales", *RANGE) == 0
    current = Path(place(kept, WINDOW_OUTPUTS))
    max((current / "_delta_log").glob("*.json")).write_bytes(b"{")
    rows = next((kept.root / "sales" / WINDOW_OUTPUTS).rglob("slice_id=2024-01-03/*/*.parquet"))
    shutil.move(rows, tmp_path / "aside")
    [state] = kept.json("status", "sales")["pipelines"]
    assert (state["published"]["slices"], behind(kept)) == (5, [True, False])
    assert kept.json("metrics")["sales"]["behind_current_tables"] == 1
    told = state["current_tables"][0]["line"]
    assert "cannot be read" in told
    assert told.endswith("Remove its directory; the next run, publication or rollback writes the table again")
    findings = kept.json("verify", "sales")["findings"]
    assert {finding["table"] for finding in findings} == {"current_window_outputs", WINDOW_OUTPUTS}
    assert [finding["what"] for finding in findings if finding["table"] != WINDOW_OUTPUTS] == [told]
    shutil.move(tmp_path / "aside", rows)
    append_day(kept.root, "2024-01-03", {"a": 10})
    assert kept("run", "sales", *RANGE) == 1
    assert "Remove its directory" in kept.err
    assert behind(kept) == [True, False], "the tables after a damaged one stayed behind"
    shutil.rmtree(current)
    assert kept("run", "sales", *RANGE) == 0
    assert_shows_what_readers_see(kept)
    assert kept("verify", "sales") == 0
    assert_damage_of_the_table_hides_nothing(kept)


def test_a_table_that_leaves_the_pipeline_file_is_told(kept: Shell) -> None:
    """Defect: it stayed as it was, its readers went on reading it, and nothing told that."""
    assert kept("run", "sales", *RANGE) == 0
    file = kept.root / "pipelines" / "sales.yaml"
    file.write_text(file.read_text().replace(f", {LATE_RECORDS}", ""))
    [state] = kept.json("status", "sales")["pipelines"]
    assert [(table["table"], table["behind"]) for table in state["current_tables"]] == [
        (WINDOW_OUTPUTS, False),
        (LATE_RECORDS, True),
    ]
    told = state["current_tables"][1]["line"]
    assert "is not in the pipeline file any more" in told
    assert kept.json("metrics")["sales"]["behind_current_tables"] == 1
    assert [finding["what"] for finding in kept.json("verify", "sales")["findings"]] == [told]
    assert kept("verify", "sales", "--share", "1/2") == 0, "the nightly clean-up, which removes it, comes after it"
