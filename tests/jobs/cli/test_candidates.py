"""`hindcast run --as-candidate`: an edited pipeline file is tried beside what is published, and then promoted."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.readers import published_table
from tests.jobs.cli.conftest import Shell
from tests.jobs.cli.test_adopt import day, run_ids, shell, write
from tests.jobs.replay.test_without_spark import DAYS
from windowlib.errors import RequestError

__all__ = ["shell"]
RANGE = ("--from", day(0), "--to", day(3))


@pytest.fixture
def edited(shell: Shell) -> Shell:
    """Three published days of five with lateness 0. The pipeline file has lateness 9h now."""
    assert shell("run", "sales", *RANGE) == 0, shell.err
    assert shell("run", "sales", "--as-candidate", *RANGE) == 0, shell.err
    assert "Nothing to compare: readers see these runs already." in flat(shell.out)
    write(shell, "9h")
    return shell


def candidate(shell: Shell, *more: str) -> str:
    """Run a candidate, and return the first digits of its id."""
    assert shell("run", "sales", "--as-candidate", *(more or RANGE)) == 0, shell.err
    return shell.out.split("--request ")[-1].strip()


def published(shell: Shell) -> tuple[object, ...]:
    """Return what the status tells of readers and of the chain."""
    state = shell.json("status", "sales")["pipelines"][0]
    return tuple(state[name] for name in ("published", "published_verdicts", "newest_publication", "edited"))


def roll_back(shell: Shell) -> None:
    """Roll back the newest publication."""
    newest = shell.json("status", "sales")["pipelines"][0]["newest_publication"]["publication"]
    assert shell("rollback", "sales", "--publication", str(newest), "--reason", "a try") == 0, shell.err


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
def test_edit_candidate_diff_promote_rollback(edited: Shell) -> None:
    before = published(edited)
    name = candidate(edited)
    assert "window" in edited.out
    assert published(edited) == before
    [request] = edited.json("status", "sales")["pipelines"][0]["requests"]
    assert request["request_id"].startswith(name)
    assert request["kind"] == "candidate"
    assert edited("diff", "sales") == 0
    assert f"candidate {name}" in flat(edited.out)
    assert edited("publish", "sales") == 1
    assert f"name a candidate with --request: {request['request_id']}" in flat(edited.err)

    assert candidate(edited) == name, "the same command continues the candidate"
    assert edited("publish", "sales", "--request", name) == 0, edited.err
    assert edited.json("status", "sales")["pipelines"][0]["edited"] == []
    following = edited.json("run", "sales", "--from", day(3), "--to", day(4))
    assert [run["slice_id"] for run in following["runs"]] == [day(3)]
    roll_back(edited)
    roll_back(edited)
    assert published(edited)[3] == before[3], "the chain goes on with the old spec"
    assert edited("publish", "sales", "--request", name) == 0, edited.err
    assert edited("verify", "sales") == 0, edited.out


@pytest.mark.slow
def test_the_published_chain_and_its_states_outlive_edits_of_the_outputs(shell: Shell) -> None:
    """The outputs and their functions change in a candidate and in an adopted file. Then the former file goes on."""
    retracting = "\n  trigger: {count: 2}\n  accumulation: retracting\n  leftovers: report"
    windows = {"tumbling: {size: 30h}": f"tumbling: {{size: 30h}}{retracting}"}
    aggregates = "aggregates: {n: {count: {}}}"
    former = {**windows, aggregates: "aggregates: {n: {count: {}}, a: {sum: v}, b: {first: v}}"}
    edit = {**windows, aggregates: "aggregates: {b: {max: v}, m: {min: v}, a: {last: v}, n: {sum: v}}"}
    write(shell, "9h", **former)
    assert shell("run", "sales", "--from", day(0), "--to", day(2)) == 0, shell.err
    write(shell, "9h", **edit)
    name = candidate(shell, "--from", day(0), "--to", day(2))
    write(shell, "9h", **former)
    assert shell("run", "sales", "--from", day(2), "--to", day(3)) == 0, shell.err
    write(shell, "9h", **edit)
    assert name in shell.json("status", "sales")["pipelines"][0]["requests"][0]["request_id"]
    assert shell("adopt", "sales") == 0, shell.err
    roll_back(shell)
    assert shell("resume", "sales", "--reason", "a try") == 0, shell.err
    write(shell, "9h", **former)
    assert shell("run", "sales", "--from", day(3), "--to", day(4)) == 0, shell.err

    state = next((shell.root / "sales" / "window_state" / f"slice_id={day(1)}").rglob("*.parquet"))
    state.unlink()
    assert shell("verify", "sales") == 1
    assert shell("mend", "sales", day(1)) == 0, shell.err
    assert shell("verify", "sales") == 0, shell.out


@pytest.mark.slow
def test_readers_get_no_column_of_a_spec_that_was_never_published(shell: Shell) -> None:
    assert shell("run", "sales", *RANGE) == 0, shell.err
    before, schema = published_table(shell.root, "sales"), published_schema_of(shell)
    write(shell, "0s", **{"aggregates: {n: {count: {}}": "aggregates: {n: {count: {}}, total: {sum: v}"})
    name = candidate(shell)
    assert published_table(shell.root, "sales") == before
    assert published_schema_of(shell) == schema
    with pytest.raises(RequestError, match="has no column 'total'"):
        published_table(shell.root, "sales", columns=["total"])
    assert shell("publish", "sales", "--request", name) == 0, shell.err
    assert "total" in published_table(shell.root, "sales").column_names
    roll_back(shell)
    assert "total" in published_table(shell.root, "sales").column_names, "it was published once"


def published_schema_of(shell: Shell) -> pa.Schema:
    """Return the columns of an export."""
    target = shell.root / f"{len(list(shell.root.glob('*.parquet')))}.parquet"
    assert shell("export", "sales", "--format", "parquet", "--to", str(target)) == 0, shell.err
    return pq.read_schema(target).remove_metadata()


@pytest.mark.slow
def test_a_candidate_is_in_the_way_of_no_other_request(edited: Shell) -> None:
    candidate(edited)
    write(edited, "0s")
    assert edited("run", "sales", "--from", day(3), "--to", day(4)) == 0, edited.err
    assert edited("run", "sales", "--from", day(0), "--to", day(5), "--no-publish") == 0, edited.err
    write(edited, "9h")
    candidate(edited, "--from", day(0), "--to", day(4))
    assert edited("publish", "sales") == 0, edited.err
    assert published(edited)[0]["slices"] == DAYS  # type: ignore[index]


@pytest.mark.slow
def test_another_edited_file_is_another_candidate_and_two_are_compared(edited: Shell) -> None:
    first = candidate(edited)
    write(edited, "4h")
    second = candidate(edited)
    assert first != second
    assert edited("diff", "sales", "--request", first, "--request", second) == 0, edited.err
    assert first in edited.out
    assert second in edited.out
    assert edited("diff", "sales", "--request", first, "--request", second, "--request", first) == 2


@pytest.mark.slow
def test_promotion_is_refused_if_readers_see_something_else_since(edited: Shell) -> None:
    name = candidate(edited)
    roll_back(edited)
    assert edited("publish", "sales", "--request", name) == 1
    assert f"readers see other runs of {day(0)}, {day(1)}, {day(2)} than when candidate {name}" in flat(edited.err)
    assert f"hindcast run sales --as-candidate --from {day(0)} --to {day(3)}" in flat(edited.err)
    assert candidate(edited) == name
    assert edited("publish", "sales", "--request", name) == 0, edited.err


@pytest.mark.slow
def test_promotion_is_refused_if_published_slices_follow(edited: Shell) -> None:
    name = candidate(edited, "--from", day(0), "--to", day(2))
    assert edited("publish", "sales", "--request", name) == 1
    assert f"readers see {day(2)} after the last slice of candidate {name}" in flat(edited.err)
    assert f"hindcast run sales --as-candidate --from {day(0)} --to {day(3)}" in flat(edited.err)
    assert edited("run", "sales", "--as-candidate", *RANGE) == 0
    assert "1 slice replayed, 3 in the range" in flat(edited.out)
    longer = edited.out.split("--request ")[-1].strip()
    assert edited("publish", "sales", "--request", longer) == 0, edited.err


@pytest.mark.slow
def test_a_candidate_from_a_restart_point_takes_the_runs_of_a_longer_one(edited: Shell) -> None:
    """Its chain begins with a run that the other candidate has staged inside of its chain."""
    candidate(edited)
    longer = run_ids(edited, "run", "sales", "--as-candidate", *RANGE)
    name = candidate(edited, "--from", day(2), "--to", day(3), "--warm-up")
    assert "0 slices replayed, 1 in the range" in flat(edited.out)
    assert edited("publish", "sales", "--request", name) == 0, edited.err
    assert run_ids(edited, "run", "sales", "--from", day(2), "--to", day(3), "--warm-up") == {day(2): longer[day(2)]}
    assert edited.json("status", "sales")["pipelines"][0]["edited"] == []


@pytest.mark.parametrize("other", [("--request", "1"), ("--replace",), ("--wait",)], ids=" ".join)
def test_options_of_other_requests_are_refused(edited: Shell, other: tuple[str, ...]) -> None:
    assert edited("run", "sales", "--as-candidate", *other) == 2
    assert "in the way of no request" in flat(edited.err)
