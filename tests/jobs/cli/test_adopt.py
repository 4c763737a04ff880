"""`hindcast adopt`: the published chain goes on with an edited pipeline file, from a restart point."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from expectations.loader import SUITES_VARIABLE
from jobs.cli import options
from jobs.cli.inspect import cell
from jobs.engine import fingerprints
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.publishing.judging import UNBROKEN
from jobs.replay import replayer
from jobs.replay.orders import Replayer
from jobs.replay.replayer import replay_chunk
from jobs.replay.sizes import Sizes
from jobs.wall_clock import now_ms
from tests.jobs.cli.conftest import Shell
from tests.jobs.replay.test_without_spark import DAYS, FIRST, make_log
from tests.support.no_spark import threads

PIPELINE = """
pipeline: sales
log:
  table: event_logs/sales
  key: [k]
  event_time: {column: at, unit: ms}
  arrival_time: {column: at, unit: ms}
  slice: {by: day}
watermark: {kind: bounded, out_of_orderness: 6h}
windows:
  tumbling: {size: 30h}
  allowed_lateness: LATENESS
aggregates: {n: {count: {}}}
"""


def day(number: int) -> str:
    return str(FIRST + timedelta(days=number))


def write(shell: Shell, lateness: str, **changes: str) -> None:
    text = PIPELINE.replace("LATENESS", lateness)
    for old, new in changes.items():
        text = text.replace(old, new)
    (shell.root / "pipelines" / "sales.yaml").write_text(text)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose replays are real and need no session."""

    @contextmanager
    def local_replayer(_master: str | None = None) -> Iterator[Replayer]:
        yield lambda order: replay_chunk(threads(), order, sizes=Sizes(local_records=10**9))

    monkeypatch.setattr(replayer, "spark_replayer", local_replayer)
    monkeypatch.setenv("HINDCAST_WHO", "ann")
    monkeypatch.setenv("COLUMNS", "200")
    root = tmp_path / "lake"
    (root / "pipelines").mkdir(parents=True)
    make_log(root / "event_logs" / "sales", Random(5), keys=[*range(6)], share=0.8)
    made = Shell(root, capsys)
    write(made, "0s")
    return made


@pytest.fixture
def published(shell: Shell) -> Shell:
    """Three published days of five, with lateness 0."""
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    return shell


def flat(text: str) -> str:
    return " ".join(text.split())


def run_ids(shell: Shell, *command: str) -> dict[str, str]:
    return {run["slice_id"]: run["run_id"] for run in shell.json(*command)["runs"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("allowed_lateness: 0s", "allowed_lateness: 9h", "windows.allowed_lateness: 0s -> 9h"),
        (
            "allowed_lateness: 0s",
            "leftovers: fire\n  trigger: {continuous: {every: 5h, time: processing}}",
            "windows.leftovers",
        ),
    ],
    ids=["lateness", "clock"],
)
def test_the_chain_goes_on_with_the_runs_of_a_chain_that_always_had_the_spec(
    published: Shell, tmp_path: Path, old: str, new: str, difference: str
) -> None:
    """Also where the spec uses the replay's clock and the published one does not, so that their times differ."""
    shell = published
    assert shell("run", "sales", "--from", day(3), "--to", day(4)) == 0, shell.err
    write(shell, "0s", **{old: new})
    assert shell("plan", "sales", "--from", day(4), "--to", day(DAYS)) == 1
    assert difference in shell.json("status", "sales")["pipelines"][0]["edited"][0]
    assert shell("adopt", "sales", "--dry-run") == 0, shell.err
    assert difference in shell.out
    assert "warm-up" in shell.out
    adopted = run_ids(shell, "adopt", "sales", "--from", day(3))
    assert [*adopted] == [day(3)]
    after = run_ids(shell, "run", "sales", "--from", day(4), "--to", day(DAYS))
    assert shell("verify", "sales") == 0, shell.out

    other = tmp_path / "other"
    (other / "pipelines").mkdir(parents=True)
    (other / "event_logs").symlink_to(shell.root / "event_logs")
    (other / "pipelines" / "sales.yaml").write_text((shell.root / "pipelines" / "sales.yaml").read_text())
    whole = run_ids(Shell(other, shell.capsys), "run", "sales", "--from", day(0), "--to", day(DAYS))
    assert adopted | after == {name: run_id for name, run_id in whole.items() if name >= day(3)}


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (
            "allowed_lateness: 0s",
            "allowed_lateness: 0s\n  trigger: {count: 2}\n  accumulation: discarding\n  leftovers: fire",
            "windows.accumulation",
        ),
        ("aggregates: {n:", "aggregates: {m:", None),
    ],
)
def test_an_edit_that_may_change_windows_over_the_border_is_told(
    published: Shell, old: str, new: str, key: str | None
) -> None:
    write(published, "0s", **{old: new})
    assert published("adopt", "sales", "--dry-run") == 0, published.err
    told = " ".join(published.err.split())
    assert ("may see records of windows that are open there twice" in told) == (key is not None)
    assert key is None or (f"warning: {key}" in told and f"--from {day(0)}" in told)
    assert published("adopt", "sales", "--dry-run", "--from", day(0)) == 0, published.err
    assert "twice" not in published.err


def test_a_change_of_code_beside_an_edit_that_fires_the_same_windows_has_the_check_of_the_border(
    published: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the change of the code was only looked for if no key of the file had changed."""
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    write(published, "0s", **{"aggregates: {n:": "aggregates: {m:"})
    assert published("adopt", "sales") in {0, 1}, published.err
    assert "the change of code may change when windows fire" in flat(published.err)
    view = Ledger(Lake(root=str(published.root)).ledger("sales"), now_ms=now_ms).view()
    assert UNBROKEN in {check.check for run in view.runs.values() for check in run.result.checks}


@pytest.mark.slow
def test_an_adoption_that_begins_earlier_tells_the_changes_of_the_slices_before(published: Shell) -> None:
    write(published, "1h")
    assert published("adopt", "sales") == 0, published.err
    assert published("adopt", "sales", "--dry-run", "--from", day(1)) == 0, published.err
    assert "windows.allowed_lateness: 0s -> 1h" in published.out
    assert "may see records of windows that are open there twice" in " ".join(published.err.split())


@pytest.mark.slow
def test_outputs_of_the_earlier_spec_are_shown_beside_those_of_the_new_one(published: Shell) -> None:
    write(published, "0s", **{"aggregates: {n:": "aggregates: {m:"})
    assert published("adopt", "sales") == 0, published.err
    assert published("show", "sales", "--limit", "0") == 0
    assert f"sales: 0 of {(rows := len(shown_rows(published)))} rows" in published.out
    assert published("show", "sales", "--limit", str(rows)) == 0
    assert published.out.splitlines()[1].split() == ["k", "window", "m", "n", "slice"]
    assert cell(date(2024, 1, 2)) == "2024-01-02", "as explain --window takes the value of a key"


def shown_rows(shell: Shell) -> list[str]:
    out = shell.out
    assert shell("show", "sales", "--json") == 0
    rows, shell.out = shell.out.splitlines(), out
    return rows


@pytest.mark.slow
def test_a_repair_is_shown_made_and_gone(published: Shell) -> None:
    shown = published.json("repair", "sales")
    assert shown["records"] == sum(late["records"] for late in shown["late"]) > 0
    assert published("repair", "sales") == 0
    assert "could be in their windows with allowed lateness" in " ".join(published.out.split())
    assert published("repair", "sales", "--run", "--no-publish") == 0, published.err
    assert "windows changed" in published.out
    assert published("publish", "sales") == 0, published.err
    assert published.json("repair", "sales")["records"] == 0
    assert published("repair", "sales", "--run") == 0
    assert "no published slice of the range has a late record" in published.out
    for what in ("--run", "--propose"):
        assert published.json("repair", "sales", what) == published.json("repair", "sales")


APPENDED = {"{by: day}": "{by: day}\n  order: appended"}


def append_again(shell: Shell, number: int) -> None:
    """Append a record that a day has to it once more."""
    log = str(shell.root / "event_logs" / "sales")
    rows = DeltaTable(log).to_pyarrow_table()
    write_deltalake(log, rows.filter(pc.equal(rows["day"].cast("string"), day(number))).slice(0, 1), mode="append")


def publish_appended(shell: Shell, **changes: str) -> None:
    """Publish three days of a log without row tracking, so that it takes appends."""
    log = shell.root / "event_logs" / "sales"
    rows = DeltaTable(str(log)).to_pyarrow_table()
    shutil.rmtree(log)
    write_deltalake(str(log), rows, partition_by=["day"])
    write(shell, "0s", **APPENDED, **changes)
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err


@pytest.fixture
def appended(shell: Shell) -> Shell:
    """Three published days of such a log."""
    publish_appended(shell)
    return shell


@pytest.mark.slow
def test_the_command_for_a_changed_slice_of_the_former_spec_is_accepted(appended: Shell) -> None:
    shell = appended
    write(shell, "9h", **APPENDED)
    assert shell("adopt", "sales", "--from", day(2)) == 0, shell.err
    append_again(shell, 1)
    write(shell, "8h", **APPENDED)
    assert shell("status", "sales") == 0
    assert "`hindcast run` uses the pipeline file, which has another spec: adopt it first" in flat(shell.out)
    assert "To restate it" not in flat(shell.out)
    write(shell, "9h", **APPENDED)
    assert shell("status", "sales") == 0
    command = f"run sales --from {day(1)} --to {day(3)} --warm-up"
    assert f"To restate it: hindcast {command}" in flat(shell.out)
    assert shell(*command.split()) == 0, shell.err
    assert shell("status", "sales") == 0
    assert "To restate it" not in flat(shell.out)


@pytest.mark.slow
def test_a_run_that_ends_a_repair_tells_it_and_its_plan_warns(appended: Shell) -> None:
    shell = appended
    assert shell("repair", "sales", "--run") == 0, shell.err
    one = ("sales", "--from", day(2), "--to", day(3))
    warning = "if the run publishes other runs of these slices, the repair of"
    assert warning not in " ".join(shell.json("plan", *one)["warnings"])
    append_again(shell, 2)
    assert warning in " ".join(shell.json("plan", *one)["warnings"])
    assert shell("run", *one) == 0, shell.err
    both = f"{day(1)}, {day(2)}"
    told = f"; the repair of {both} ends, and `hindcast repair` lists the late records of {both} again"
    assert told in flat(shell.out), "one is outside the range"


@pytest.mark.slow
def test_a_staged_request_is_held_by_a_failed_run_that_the_end_of_a_repair_would_show(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    suites = shell.root / "expectations"
    suites.mkdir()
    monkeypatch.setenv(SUITES_VARIABLE, str(suites))

    def limit(most: int) -> None:
        check = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": most}}
        check["severity"] = "critical"
        (suites / "sales.json").write_text(json.dumps({"window_outputs": {"name": "sales", "expectations": [check]}}))

    def put(*records: tuple[int, float, int]) -> None:
        rows = [
            {"k": 1, "at": int(hour * 3_600_000), "v": v, "day": FIRST + timedelta(days=n)} for n, hour, v in records
        ]
        write_deltalake(str(shell.root / "late"), pa.Table.from_pylist(rows), mode="append", partition_by=["day"])

    limit(1000)
    own = {"event_logs/sales": "late", "arrival_time: {column: at, unit: ms}": "order: appended"}
    text = {"30h": "2h", "out_of_orderness: 6h": "out_of_orderness: 0s", "n: {count: {}}": "total: {sum: v}"}
    quality = "}\nquality: {suite: expectations/sales.json, fail_on: critical}\n"
    write(shell, "0s", **own, **text, **{"sum: v}}\n": f"sum: v}}{quality}"})
    put((0, 1, 50), (0, 5, 1), (0, 3, 1), (0, 23.99, 1), (1, 25, 1), (1, 3.5, 10), (1, 47.99, 1), (2, 49, 1))
    whole = ("run", "sales", "--from", day(0), "--to", day(3))
    assert shell(*whole) == 0, shell.err
    assert shell("repair", "sales", "--from", day(0), "--to", day(3), "--run") == 0, shell.err
    limit(20)
    put((1, 30, 2))
    assert shell(*whole, "--no-publish") == 1
    assert f"held by {day(0)}" in flat(shell.err)
    assert "next: hindcast publish" not in shell.out


@pytest.mark.slow
def test_an_adoption_that_takes_windows_from_readers_waits_for_a_person(shell: Shell) -> None:
    """With a smaller bound, the warm-up fires windows that the published head has fired. Its rows are not published."""
    small = {"tumbling: {size: 30h}": "tumbling: {size: 2h}"}
    write(shell, "0s", **small)
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    assert shell("show", "sales", "--limit", "1000") == 0
    before = shell.out
    write(shell, "0s", **small, **{"out_of_orderness: 6h": "out_of_orderness: 0s"})
    for command in ("adopt", "publish"):
        assert shell(command, "sales") == 1
        assert re.search(r"found [1-9]\d* windows? lost for good, 0 windows with repeated records", flat(shell.err))
    [request] = shell.json("status", "sales")["pipelines"][0]["requests"]
    assert "1 window lost for good" in request["publication"]
    assert shell("show", "sales", "--limit", "1000") == 0
    assert shell.out == before
    run_id = re.findall(r"--run (\w+)", request["publication"])[-1]
    assert shell("waive", "sales", day(2), "--run", run_id, "--reason", "early results") == 0, shell.err
    assert shell("publish", "sales") == 0, shell.err
    write(shell, "0s", **small, **{"out_of_orderness: 6h": "out_of_orderness: 7h"})
    assert shell("adopt", "sales") == 0, "windows that fire later are not lost"


@pytest.mark.slow
def test_windows_that_wait_in_the_former_chain_and_that_the_new_one_has_fired_are_counted(
    shell: Shell, tmp_path: Path
) -> None:
    """They are in no row that readers see now. With a smaller bound, the new chain has fired them before the border."""
    small = {"tumbling: {size: 30h}": "tumbling: {size: 2h}"}
    write(shell, "0s", **small, **{"out_of_orderness: 6h": "out_of_orderness: 5d"})
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    write(shell, "0s", **small, **{"out_of_orderness: 6h": "out_of_orderness: 0s"})
    assert shell("adopt", "sales") == 1
    [told] = re.findall(r"found (\d+) windows? lost for good", flat(shell.err))
    [request] = shell.json("status", "sales")["pipelines"][0]["requests"]
    run_id = re.findall(r"--run (\w+)", request["publication"])[-1]
    assert shell("waive", "sales", day(2), "--run", run_id, "--reason", "early results") == 0, shell.err
    assert shell("publish", "sales") == 0, shell.err
    assert shell("run", "sales", "--from", day(3), "--to", day(DAYS)) == 0, shell.err
    other = tmp_path / "other"
    (other / "pipelines").mkdir(parents=True)
    (other / "event_logs").symlink_to(shell.root / "event_logs")
    (other / "pipelines" / "sales.yaml").write_text((shell.root / "pipelines" / "sales.yaml").read_text())
    whole = Shell(other, shell.capsys)
    assert whole("run", "sales", "--from", day(0), "--to", day(DAYS)) == 0, whole.err
    assert 0 < len(shown_windows(whole) - shown_windows(shell)) <= int(told), (
        "records of others are late in the new spec"
    )


def shown_windows(shell: Shell) -> set[tuple[int, str]]:
    assert shell("show", "sales", "--json") == 0
    return {(row["k"], row["window_start"]) for row in map(json.loads, shell.out.splitlines())}


def test_windows_whose_records_other_windows_have_are_not_lost(shell: Shell) -> None:
    """Also without a watermark. The windows that the warm-up fires end in the slices before the border."""
    shorter = {"tumbling: {size: 30h}\n  allowed_lateness: 0s": "tumbling: {size: 2h}\n  time: processing"}
    text = {**shorter, "watermark: {kind: bounded, out_of_orderness: 6h}\n": ""}
    write(shell, "0s", **text)
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    write(shell, "0s", **text, **{"size: 2h": "size: 1h"})
    assert shell("adopt", "sales") == 0, shell.err


@pytest.mark.parametrize(("first", "is_held"), [(2, True), (0, False)])
def test_a_smaller_size_takes_the_records_that_the_warm_up_has_fired(
    shell: Shell, first: int, *, is_held: bool
) -> None:
    """From the first published slice on, there is no border."""
    write(shell, "0s", **{"size: 30h": "size: 24h"})
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    write(shell, "0s", **{"size: 30h": "size: 3h"})
    assert shell("adopt", "sales", "--from", day(first)) == (1 if is_held else 0), shell.err
    assert bool(re.search(r"[1-9]\d* windows? lost for good", flat(shell.err))) == is_held


@pytest.mark.slow
@pytest.mark.parametrize(
    ("windows", "edited", "is_repeated"),
    [
        ("tumbling: {size: 2h}", "tumbling: {size: 24h}", True),
        ("session: {gap: 2h}", "session: {gap: 9h}", True),
        ("tumbling: {size: 90h}\n  trigger: {count: 1}\n  leftovers: report\n  accumulation: discarding",
         "tumbling: {size: 90h}\n  trigger: {count: 1}\n  leftovers: report", True),
        ("sliding: {size: 24h, slide: 6h}", "sliding: {size: 24h, slide: 6h}\n  allowed_lateness: 9h", False),
    ],
)  # fmt: skip
def test_an_adoption_that_shows_records_twice_waits_for_a_person(
    shell: Shell, windows: str, edited: str, is_repeated: bool,  # noqa: FBT001 - a parameter of the test
) -> None:  # fmt: skip
    """Slices before the border keep the panes of the former spec, and the new windows have the same records."""
    write(shell, "0s", **{"tumbling: {size: 30h}\n  allowed_lateness: 0s": windows})
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    assert shell("show", "sales", "--limit", "1000") == 0
    before = shell.out
    write(shell, "0s", **{"tumbling: {size: 30h}\n  allowed_lateness: 0s": edited})
    assert shell("adopt", "sales") == (1 if is_repeated else 0), shell.err
    assert bool(re.search(r"[1-9]\d* windows? with repeated records", flat(shell.err))) == is_repeated
    assert shell("show", "sales", "--limit", "1000") == 0
    assert (shell.out == before) == is_repeated


@pytest.mark.slow
def test_the_watermark_of_other_event_times_excuses_no_lost_window(shell: Shell) -> None:
    """Defect: windows of the former event time that begin after the watermark of the new one counted as shown later."""
    write(shell, "0s", **{"size: 30h": "size: 24h"})
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    earlier = {
        "size: 30h": "size: 24h",
        "event_time: {column: at,": "event_time: {column: early,",
        "slice: {by: day}": "columns: {early: at - 72000000}\n  slice: {by: day}",
    }
    write(shell, "0s", **earlier)
    assert shell("adopt", "sales", "--from", day(2)) == 1
    assert re.search(r"found [1-9]\d* windows? lost for good", flat(shell.err)), shell.err


def test_the_check_also_holds_a_range_after_the_published_head(shell: Shell) -> None:
    """No published run of the range has another spec. The border is after the published run before the range."""
    write(shell, "0s", **{"size: 30h": "size: 24h"})
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    write(shell, "0s", **{"size: 30h": "size: 3h"})
    assert shell("run", "sales", "--from", day(3), "--to", day(4), "--warm-up") == 1
    assert re.search(r"found [1-9]\d* windows? lost for good", flat(shell.err))
    assert f"the new spec begin ({day(3)})" in flat(shell.err)


@pytest.mark.slow
def test_an_adoption_after_a_removed_state_waits_for_a_person(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the former state, the check cannot know which windows wait there. It does not pass in silence."""
    write(shell, "0s", **{"size: 30h": "size: 24h"})
    file = shell.root / "pipelines" / "sales.yaml"
    retention = "retention: {superseded: 1d, unpublished: 1d, checkpoints: 31d}\n"
    file.write_text(file.read_text() + retention)
    for first in range(3):
        assert shell("run", "sales", "--from", day(first), "--to", day(first + 1)) == 0, shell.err
    later_ms = now_ms() + 60 * 86_400_000
    monkeypatch.setattr(options, "now_ms", lambda: later_ms)
    assert shell("clean", "sales") == 0, shell.err
    assert shell("clean", "sales", "--remove") == 0, shell.err
    write(shell, "0s", **{"size: 30h": "size: 3h"})
    file.write_text(file.read_text() + retention)
    assert shell("adopt", "sales", "--from", day(1)) == 1
    assert f"found no way to know: the state after {day(0)} was removed by" in flat(shell.err)
    [request] = shell.json("status", "sales")["pipelines"][0]["requests"]
    run_id = re.findall(r"--run (\w+)", request["publication"])[-1]
    assert shell("waive", "sales", day(1), "--run", run_id, "--reason", "no use") == 0, shell.err
    assert shell("publish", "sales") == 0, shell.err


@pytest.mark.slow
def test_an_adoption_whose_warm_up_was_removed_waits_for_a_person(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the runs of the warm-up, the windows that wait in their state counted as lost."""
    keep = {"size: 30h": "size: 3h", "aggregates:": "retention: {unpublished: 1d}\naggregates:"}
    publish_appended(shell, **keep)
    write(shell, "1h", **APPENDED, **keep)
    assert shell("adopt", "sales", "--from", day(2)) == 0, shell.err
    adopted = Ledger(Lake(root=str(shell.root)).ledger("sales"), now_ms=now_ms).view().standing[-1]
    assert shell("rollback", "sales", "--publication", str(adopted.seq), "--reason", "too early") == 0, shell.err
    later_ms = now_ms() + 3 * 86_400_000
    monkeypatch.setattr(options, "now_ms", lambda: later_ms)
    assert shell("clean", "sales", "--remove", "--older-than", "1h") == 0, shell.err
    append_again(shell, 0)
    write(shell, "0s", **APPENDED, **keep)
    assert shell("run", "sales", "--from", day(0), "--to", day(1)) == 0, shell.err
    write(shell, "1h", **APPENDED, **keep)
    assert shell("publish", "sales", "--request", str(adopted.request_id)) == 1
    assert f"found no way to know: the runs before {day(2)} were removed" in flat(shell.err)


def test_a_repair_of_discarding_windows_has_no_border(shell: Shell) -> None:
    """A late pane has the bounds of an earlier one, and other records."""
    write(shell, "0s", **{"allowed_lateness: 0s": "allowed_lateness: 0s\n  accumulation: discarding"})
    assert shell("run", "sales", "--from", day(0), "--to", day(3)) == 0, shell.err
    assert shell("repair", "sales", "--run") == 0, shell.err
    assert "published" in shell.out


def test_nothing_to_adopt_and_wrong_bounds_are_told(published: Shell) -> None:
    assert published("adopt", "sales") == 0
    assert "has the spec of" in published.out
    write(published, "1h")
    assert published("adopt", "sales", "--from", day(4)) == 1
    assert "is after the published head" in " ".join(published.err.split())


@pytest.mark.slow
def test_a_spec_without_a_restart_point_is_refused_before_anything_is_written(published: Shell) -> None:
    write(published, "0s", **{"tumbling: {size: 30h}\n  allowed_lateness: 0s": "count: {size: 3}"})
    before = published.json("status", "sales")
    assert published("adopt", "sales") == 1
    assert "cannot begin at" in " ".join(published.err.split())
    assert published.json("status", "sales") == before


def test_a_pipeline_without_published_slices_has_nothing_to_adopt(shell: Shell) -> None:
    assert shell("adopt", "sales") == 1
    assert "no published chain" in shell.err


@pytest.mark.slow
def test_another_length_of_slices_is_adopted_after_the_published_head(shell: Shell) -> None:
    """The state is that of the published chain, so no window is lost or shown twice over the border."""
    hours = [datetime.combine(FIRST, time(), UTC) + timedelta(hours=hour) for hour in range(4 * 24)]
    log = {"k": [1] * len(hours), "arr": hours, "at": [int(at.timestamp() * 1_000) for at in hours]}
    write_deltalake(shell.root / "event_logs" / "hours", pa.table(log))

    def cut(every: str) -> None:
        write(shell, "0s", **{"logs/sales": "logs/hours", "{by: day}": f"{{by: arr, every: {every}}}\n  order: [at]"})

    def shown() -> list[tuple[str, int]]:
        assert shell("show", "sales", "--json") == 0, shell.err
        rows = [json.loads(line) for line in shell.out.splitlines()]
        return sorted((row["window_start"], row["n"]) for row in rows)

    cut("1d")
    assert shell("run", "sales", "--from", day(0), "--to", day(4)) == 0, shell.err
    expected = shown()
    shutil.rmtree(shell.root / "sales")
    cut("6h")
    assert shell("run", "sales", "--from", day(0), "--to", day(2)) == 0, shell.err
    cut("1d")
    assert shell("adopt", "sales", "--dry-run") == 0, shell.err
    assert shell("adopt", "sales", "--from", day(1)) == 1, "readers see its slices, and they stay"
    assert "cuts the log of pipeline sales into other slices" in shell.err
    assert shell("adopt", "sales") == 0, shell.err
    assert shell("run", "sales", "--from", day(3), "--to", day(4)) == 0, shell.err
    assert shown() == expected
    assert shell("adopt", "sales") == 0, shell.err
    assert "has the spec of" in shell.out


def test_a_spec_that_the_log_does_not_fit_is_edited(shell: Shell) -> None:
    """Defect: the schedule named `adopt`, and `adopt` answered that the chain has the spec of the file already."""
    write(shell, "0s")
    log = shell.root / "event_logs" / "sales"
    assert shell("run", "sales", "--from", day(0), "--to", day(1)) == 0
    renamed = DeltaTable(str(log)).to_pyarrow_table().rename_columns({"k": "key"})
    shutil.rmtree(log)
    write_deltalake(str(log), renamed)
    assert shell("adopt", "sales") == 1
    assert "already. The log does not fit that spec any more" in shell.err
    assert "the log has no column 'k'" in shell.err
    assert "Edit the file" in shell.err


@pytest.mark.parametrize(("bound", "start"), [("last", 1), ("first", 5)])
def test_an_adoption_whose_slices_the_file_leaves_out_is_refused(published: Shell, bound: str, start: int) -> None:
    """Defect: it ended with a call stack, or adopted slices before the head, and the chain went on as before."""
    write(published, "9h", **{"slice: {by: day}": f"slice: {{by: day, {bound}: {day(start)}}}"})
    for begin in ((), ("--from", day(0))):
        assert published("adopt", "sales", *begin) == 1
        assert f"`log.slice` has {'first: None, last' if bound == 'last' else 'first'}: {day(start)}" in flat(
            published.err
        ), published.err


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Auckland"])
def test_another_time_zone_is_adopted_from_the_first_published_slice(published: Shell, zone: str) -> None:
    """Defect: it was refused, because a `to` that nobody had given was inside a slice."""
    write(published, "0s", **{"slice: {by: day}": f"slice: {{by: day, timezone: {zone}}}"})
    assert published("adopt", "sales", "--from", day(0), "--dry-run") == 0, published.err
    assert f"[{day(0)}, {day(3)}) half-open: 3 of 3 slices to replay" in published.out
