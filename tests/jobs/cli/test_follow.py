"""`hindcast follow`: pipelines that read a pipeline replay what follows from its publications, and nothing else."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from jobs.engine import fingerprints
from jobs.lake.lake import Lake
from jobs.ledger.events import EventKind, LedgerEvent, slice_columns
from jobs.ledger.ledger import Ledger
from jobs.ledger.removals import Why, removed_event
from jobs.replay import replayer
from jobs.replay.orders import Replayer
from jobs.replay.replayer import replay_chunk
from jobs.replay.sizes import Sizes
from jobs.runs import RunResult
from tests.jobs.cli.conftest import Shell
from tests.jobs.replay.test_without_spark import DAY_MS, DAYS, FIRST
from tests.support.no_spark import threads
from tests.support.places import ROOT
from tests.support.replays import NOW_MS

HOURS = """
pipeline: hours
log:
  table: event_logs/hours
  key: [k]
  event_time: {column: at, unit: ms}
  slice: {by: day}
  order: appended
watermark: {kind: ascending}
windows: {tumbling: {size: 3h}}
aggregates: {n: {count: {}}}
"""
READER = """
pipeline: NAME
log: {pipeline: READS, key: [k], event_time: {column: window_time}}
watermark: {kind: ascending}
windows: {tumbling: {size: SIZE}}
aggregates: {n: {sum: n}}
"""
FLIGHTS = """
pipeline: flights
log:
  table: event_logs/flights
  key: [origin]
  event_time: {column: departed_at, unit: ms}
  slice: {by: day}
  order: appended
watermark: {kind: ascending}
windows: {tumbling: {size: 1h}}
aggregates: {flights: {count: {}}}
"""
DAILY, BURSTS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "how-to" / "chain.md").read_text(), re.DOTALL)
"""The pipeline files in the documentation."""


def append(root: Path, day: int, hours: list[int]) -> None:
    start_ms = (FIRST - date(1970, 1, 1)).days * DAY_MS + day * DAY_MS
    rows = [{"k": hour % 2, "at": start_ms + hour * 3_600_000, "day": FIRST + timedelta(days=day)} for hour in hours]
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("day", pa.date32())])
    place = str(root / "event_logs" / "hours")
    write_deltalake(place, pa.Table.from_pylist(rows, schema), mode="append", partition_by=["day"])


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose replays are real. Days read hours, and pairs of days read days."""

    @contextmanager
    def local_replayer(_master: str | None = None) -> Iterator[Replayer]:
        session = threads()
        yield lambda order: replay_chunk(session, order, sizes=Sizes(local_records=10**9))

    monkeypatch.setattr(replayer, "spark_replayer", local_replayer)
    monkeypatch.setenv("HINDCAST_WHO", "ann")
    monkeypatch.setenv("COLUMNS", "200")
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "hours.yaml").write_text(HOURS)
    for name, reads, size in (("days", "hours", "1d"), ("pairs", "days", "2d")):
        text = READER.replace("NAME", name).replace("READS", reads).replace("SIZE", size)
        (pipelines / f"{name}.yaml").write_text(text)
    random = Random(7)
    for day in range(DAYS):
        append(tmp_path, day, sorted(random.sample(range(24), 12)))
    return Shell(tmp_path, capsys)


@pytest.mark.slow
def test_a_late_repair_of_the_newest_slice_is_told_to_those_who_follow(shell: Shell) -> None:
    """Defect: its last windows were not final any more, and went from the reader of the reader without a word."""
    append(shell.root, 1, [0])
    assert shell("run", "hours", "--from", str(FIRST), "--to", str(FIRST + timedelta(days=2))) == 0, shell.err
    (shell.root / "pipelines" / "pairs.yaml").unlink()
    assert shell("follow", "hours") == 0, shell.err
    assert "by a late repair" not in shell.err
    assert shell("repair", "hours", "--run") == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert "warning: readers see 1970-01-06, the newest slice of pipeline hours" in " ".join(shell.err.split())


@pytest.mark.slow
def test_windows_of_a_spec_that_waits_longer_and_slices_that_are_rolled_back_are_told(shell: Shell) -> None:
    """Defects: readers of the reader lost windows, or saw those of slices that nobody publishes, without a word."""
    (shell.root / "pipelines" / "pairs.yaml").unlink()
    ends = [str(FIRST + timedelta(days=day)) for day in range(4)]
    assert shell("run", "hours", "--from", ends[0], "--to", ends[1]) == 0, shell.err
    assert shell("run", "hours", "--from", ends[1], "--to", ends[2]) == 0, shell.err
    (shell.root / "pipelines" / "hours.yaml").write_text(HOURS.replace("3h}}", "3h}, allowed_lateness: 9h}"))
    assert shell("adopt", "hours") == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert f"readers see {ends[1]}, the newest slice of pipeline hours, by a spec with" in " ".join(shell.err.split())
    assert "does not publish" not in shell.err
    assert shell("run", "hours", "--from", ends[2], "--to", ends[3]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert "readers see" not in shell.err, "two slices of the spec"
    seq = Ledger(Lake(root=str(shell.root)).ledger("hours"), now_ms=lambda: NOW_MS).view().standing[-1].seq
    assert shell("rollback", "hours", "--publication", str(seq), "--reason", "wrong numbers") == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert f"pipeline hours does not publish {ends[2]} now. Readers of pipeline days see" in " ".join(shell.err.split())


@pytest.mark.slow
def test_what_follows_is_replayed_and_nothing_else(shell: Shell) -> None:
    assert shell("follow", "hours") == 1
    assert "has published nothing" in shell.err or "no slice" in shell.err
    assert shell("follow", "hours", "--dry-run") == 0
    assert "pairs: pipeline days has published nothing" in shell.out
    first, last = str(FIRST), str(FIRST + timedelta(days=DAYS))
    assert shell("run", "hours", "--from", first, "--to", str(FIRST + timedelta(days=3))) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert "days" in shell.out
    assert "pairs" in shell.out
    assert "3 slices replayed" in shell.out
    assert shell("run", "hours", "--from", first, "--to", last) == 0, shell.err
    assert shell("follow", "hours", "--dry-run") == 0
    assert "2 of 5 slices to replay" in shell.out
    asked = ("plan", "hours", "--from", first, "--to", last, "--with-downstream")
    told, whole = shell.out, shell.json(*asked)
    assert [(plan["pipeline"], plan["certain"]) for plan in whole["downstream"]] == [("days", 2), ("pairs", 0)]
    assert shell(*asked) == 0
    assert shell.out.endswith(told)
    assert shell("follow", "hours") == 0, shell.err
    append(shell.root, 1, [23])
    assert shell("run", "hours", "--from", first, "--to", last) == 0, shell.err
    plan = shell.json("plan", "days", "--from", first, "--to", last)
    assert [step["slice_id"] for step in plan["steps"] if step["reason"] == "input changed"] == ["1970-01-07"]
    assert (plan["certain"], plan["at_most"]) == (1, 2), "the change ends before the last slice"
    assert shell("follow", "hours") == 0, shell.err
    assert shell("follow", "hours", "--dry-run") == 0
    assert shell.out.count("0 of 5 slices to replay") == 2
    for name in ("hours", "days", "pairs"):
        assert shell("verify", name) == 0, shell.out


@pytest.mark.slow
def test_an_edit_of_a_reader_waits_for_its_adoption(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slices are replayed with the spec that readers see, as by its schedule, and a warning tells it."""
    files, days = shell.root / "pipelines", [str(FIRST + timedelta(days=day)) for day in range(DAYS)]
    (files / "pairs.yaml").unlink()
    assert shell("run", "hours", "--from", days[0], "--to", days[2]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    (files / "days.yaml").write_text(READER.replace("NAME", "days").replace("READS", "hours").replace("SIZE", "12h"))
    assert shell("run", "hours", "--from", days[2], "--to", days[3]) == 0, shell.err
    [planned] = shell.json("plan", "hours", "--from", days[0], "--to", days[3], "--with-downstream")["downstream"]
    assert ([step["reason"] for step in planned["steps"]]) == ["current", "current", "missing"]
    assert "hindcast adopt days" in planned["warnings"][0]
    assert shell("follow", "hours") == 0, shell.err
    assert "hindcast adopt days" in " ".join(shell.err.split())
    assert "1 slice replayed, 3 in the range" in shell.out
    assert shell("run", "hours", "--from", days[3], "--to", days[4]) == 0, shell.err
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    assert shell("follow", "hours", "--dry-run") == 0
    assert "cannot be computed any more" in " ".join(shell.out.split())
    assert shell("follow", "hours") == 1
    assert "cannot be computed any more" in " ".join(shell.err.split())


@pytest.mark.slow
def test_slices_of_a_former_spec_stay_as_they_are(shell: Shell) -> None:
    """Defect: `follow` replayed all slices before an adoption with the new spec, or was refused because of them."""
    (shell.root / "pipelines" / "pairs.yaml").unlink()
    days = [str(FIRST + timedelta(days=day)) for day in range(DAYS)]
    assert shell("run", "hours", "--from", days[0], "--to", days[3]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    text = READER.replace("NAME", "days").replace("READS", "hours").replace("SIZE", "1d")
    (shell.root / "pipelines" / "days.yaml").write_text(text.replace("{sum: n}}", "{sum: n}, c: {count: {}}}"))
    assert shell("adopt", "days", "--from", days[2]) == 0, shell.err
    ledger = Ledger(Lake(root=str(shell.root)).ledger("days"), now_ms=lambda: NOW_MS)
    before = ledger.view().published
    assert shell("run", "hours", "--from", days[3], "--to", days[4]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert "1 slice replayed, 2 in the range" in shell.out
    assert [ledger.view().published[day] for day in days[:3]] == [*before.values()]
    append(shell.root, 0, [20])
    assert shell("run", "hours", "--from", days[0], "--to", days[4]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    told = " ".join(shell.err.split())
    assert f"published day changed: {days[1]}" in told
    assert "are not followed: `hindcast status days` tells" in told
    assert [ledger.view().published[day] for day in days[:2]] == [*before.values()][:2]


@pytest.mark.slow
def test_a_reader_that_cannot_follow_does_not_stop_the_others(shell: Shell) -> None:
    """The published chain of pairs reads days, and its edited file, with other windows, reads hours.

    Another reader has other slices, and one names a column that hours does not have.
    """
    first = str(FIRST)
    assert shell("run", "hours", "--from", first, "--to", str(FIRST + timedelta(days=1))) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    for name in ("pairs", "zeros"):
        text = READER.replace("NAME", name).replace("READS", "hours").replace("SIZE", "3d")
        (shell.root / "pipelines" / f"{name}.yaml").write_text(text)
    for name, old, new in (("cut", "key: [k]", "slice: {every: 1h}, key: [k]"), ("column", "sum: n", "sum: nosuch")):
        text = READER.replace("NAME", name).replace("READS", "hours").replace("SIZE", "3d").replace(old, new)
        (shell.root / "pipelines" / f"{name}.yaml").write_text(text)
    (shell.root / "pipelines" / "typo.yaml").write_text(READER.replace("watermark", "watermrak"))
    plans = shell.json("plan", "hours", "--from", first, "--to", str(FIRST + timedelta(days=1)), "--with-downstream")
    assert [plan["pipeline"] for plan in plans["downstream"]] == ["column", "cut", "days", "pairs", "zeros"]
    assert shell("follow", "hours") == 1
    assert "has no column 'nosuch'" in shell.err
    assert "warning: typo is not followed if it reads hours" in shell.err
    assert "a hole" not in shell.err, "the slices of cut are other ones, and not missing"
    assert "the slices must be those of pipeline hours" in " ".join(shell.err.split())
    assert "pairs: the published chain of pipeline pairs does not read hours" in " ".join(shell.err.split())
    assert shell.json("status", "zeros")["pipelines"][0]["published"]["slices"] == 1


@pytest.mark.slow
def test_a_hole_in_what_the_other_pipeline_publishes_is_told_and_the_newest_part_is_followed(shell: Shell) -> None:
    """What the reader lacked after the hole was never named, and a change there was never followed."""
    (shell.root / "pipelines" / "pairs.yaml").unlink()
    days = [str(FIRST + timedelta(days=day)) for day in range(DAYS + 1)]
    assert shell("run", "hours", "--from", days[0], "--to", days[2]) == 0, shell.err
    assert shell("run", "hours", "--from", days[3], "--to", days[5], "--fresh") == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    left_out = f"Pipeline days follows {days[0]} … {days[1]}, and not {days[3]} … {days[4]}"
    assert left_out in " ".join(shell.err.split())
    assert shell("follow", "hours", "--dry-run") == 0
    assert left_out in " ".join(shell.out.split())
    assert shell("run", "days", "--from", days[3], "--to", days[5], "--fresh") == 0, shell.err
    append(shell.root, 3, [23])
    assert shell("run", "hours", "--from", days[3], "--to", days[5]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert "1 slice replayed, 2 in the range" in shell.out
    assert f"follows {days[3]} … {days[4]}, and not {days[0]} … {days[1]}" in " ".join(shell.err.split())


@pytest.mark.slow
def test_slices_that_the_other_pipeline_publishes_before_the_chain_are_told(shell: Shell) -> None:
    """Defect: the first windows lacked records, and `follow` and `status` told that nothing is to do."""
    (shell.root / "pipelines" / "pairs.yaml").unlink()
    (shell.root / "pipelines" / "days.yaml").write_text(
        READER.replace("NAME", "days").replace("READS", "hours").replace("SIZE", "2d")
    )
    days = [str(FIRST + timedelta(days=day)) for day in range(DAYS + 1)]
    assert shell("run", "hours", "--from", days[2], "--to", days[-1], "--warm-up") == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert "with which the chain" not in shell.err
    assert shell("run", "hours", "--from", days[0], "--to", days[-1]) == 0, shell.err
    command = f"hindcast run days --from {days[0]} --to {days[-1]}"
    told = (
        f"pipeline hours publishes {days[0]} … {days[1]} now, before {days[2]}, with which the chain of pipeline days"
    )
    assert shell("follow", "hours") == 0, shell.err
    assert told in " ".join(shell.err.split())
    assert told in (sentence := shell.json("status", "days")["pipelines"][0]["changed"]["sentences"][0])
    assert sentence.endswith(command)
    assert shell(*command.split()[1:]) == 0, shell.err
    assert shell.json("status", "days")["pipelines"][0]["changed"]["sentences"] == []


@pytest.mark.slow
def test_a_reader_that_is_held_is_not_followed(shell: Shell) -> None:
    """Defect: `follow` of another person published again what a person had rolled back, and the hold was gone."""
    assert shell("run", "hours", "--from", str(FIRST), "--to", str(FIRST + timedelta(days=1))) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    seq = Ledger(Lake(root=str(shell.root)).ledger("days"), now_ms=lambda: NOW_MS).view().standing[-1].seq
    assert shell("rollback", "days", "--publication", str(seq), "--reason", "wrong numbers") == 0, shell.err
    for command in (
        ("follow", "hours"),
        ("plan", "hours", "--from", str(FIRST), "--to", str(FIRST + timedelta(days=1))),
    ):
        assert shell(*command, *(["--with-downstream"] if command[0] == "plan" else [])) == (command[0] == "follow")
        assert "days: held: ann rolled back publication" in " ".join(f"{shell.out} {shell.err}".split())
    assert shell.json("status", "days")["pipelines"][0]["published"]["slices"] == 0
    assert shell("resume", "days", "--reason", "they are right") == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err


@pytest.mark.slow
def test_a_request_that_could_not_be_published_does_not_stop_the_next_one(shell: Shell) -> None:
    """Defect: `follow` was refused by its own request of the day before, until a person cancelled that."""
    (shell.root / "pipelines" / "pairs.yaml").unlink()
    days = [str(FIRST + timedelta(days=day)) for day in range(3)]
    for before, after in pairwise(days):
        assert shell("run", "hours", "--from", before, "--to", after) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    seq = Ledger(Lake(root=str(shell.root)).ledger("hours"), now_ms=lambda: NOW_MS).view().standing[-1].seq
    assert shell("rollback", "hours", "--publication", str(seq), "--reason", "wrong numbers") == 0, shell.err
    append(shell.root, 0, [22])
    assert shell("run", "hours", "--from", days[0], "--to", days[1]) == 0, shell.err
    [sentence] = shell.json("status", "days")["pipelines"][0]["changed"]["sentences"][1:2]
    assert f"if the state after {days[0]} changes, pipeline hours has to publish {days[1]} first" in sentence
    assert shell("follow", "hours") == 1
    assert f"Pipeline hours does not publish {days[1]} now: publish there first" in " ".join(shell.err.split())
    ledger = Ledger(Lake(root=str(shell.root)).ledger("days"), now_ms=lambda: NOW_MS)
    [left] = ledger.view().open_requests()
    results = [ledger.view().run(run_id).result for run_id in left.runs.values()]
    ledger.write(lambda _view: [condemned(result) for result in results])
    assert shell("run", "hours", "--from", days[0], "--to", days[2]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert shell.json("status", "days")["pipelines"][0]["requests"] == []


def test_what_a_person_has_staged_is_not_replaced(shell: Shell) -> None:
    """Defects: `follow` published what was staged with --no-publish, also with a reason, or by `run`."""
    (shell.root / "pipelines" / "pairs.yaml").unlink()
    days = [str(FIRST + timedelta(days=day)) for day in range(3)]
    assert shell("run", "hours", "--from", days[0], "--to", days[1]) == 0, shell.err
    assert shell("follow", "hours", "--no-publish", "--reason", "look first") == 0, shell.err
    assert shell("follow", "hours") == 1
    assert "staged with --no-publish: look first) has the same slices, so a person decides" in flat(shell.err)
    assert shell("run", "hours", "--from", days[1], "--to", days[2]) == 0, shell.err
    assert shell("follow", "hours") == 1
    assert "staged with --no-publish: look first) is open for" in flat(shell.err)
    assert shell("publish", "days") == 0, shell.err
    assert shell("run", "days", "--from", days[0], "--to", days[2], "--no-publish") == 0, shell.err
    assert shell("follow", "hours", "--reason", "each hour") == 1
    assert "has the same slices, so a person decides on it: `hindcast publish days" in flat(shell.err)
    assert shell("publish", "days") == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert shell.json("status", "days")["pipelines"][0]["published"]["slices"] == 2


@pytest.mark.slow
def test_new_slices_are_followed_although_an_old_change_lacks_the_state_before_it(shell: Shell) -> None:
    """Defect: after `retention.checkpoints` has removed that state, `follow` was refused until somebody replayed it."""
    (shell.root / "pipelines" / "pairs.yaml").unlink()
    days = [str(FIRST + timedelta(days=day)) for day in range(5)]
    assert shell("run", "hours", "--from", days[0], "--to", days[3]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    ledger = Ledger(Lake(root=str(shell.root)).ledger("days"), now_ms=lambda: NOW_MS)
    results = [ledger.view().run(ledger.view().published[day]).result for day in days[:2]]
    removed = {(result.slice.slice_id, result.attempt_id): Why.CHECKPOINTS for result in results}
    ledger.write(lambda _view: [removed_event(removed, who="ann", reason="")])
    append(shell.root, 1, [23])
    assert shell("run", "hours", "--from", days[1], "--to", days[3]) == 0, shell.err
    assert shell("follow", "hours") == 1, "it has no new slice"
    assert "a clean-up has removed the state before them" in " ".join(shell.err.split())
    assert shell("run", "hours", "--from", days[1], "--to", days[4]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert "a clean-up has removed the state before them" in " ".join(shell.err.split())
    state = shell.json("status", "days")["pipelines"][0]
    assert (state["published"]["slices"], state["changed"]["slices"]) == (4, [days[2]])
    append(shell.root, 0, [23])
    assert shell("run", "hours", "--from", days[0], "--to", days[4]) == 0, shell.err
    assert shell("follow", "hours") == 0, shell.err
    assert shell.json("status", "days")["pipelines"][0]["changed"]["slices"] == []


def condemned(result: RunResult) -> LedgerEvent:
    return LedgerEvent(
        kind=EventKind.CONDEMNED, run_id=result.run_id, attempt_id=result.attempt_id, **slice_columns(result.slice)
    )


def test_a_pipeline_that_nobody_reads_and_a_cycle(shell: Shell) -> None:
    assert shell("follow", "pairs") == 0
    assert "no pipeline reads pairs" in shell.out
    text = READER.replace("NAME", "hours").replace("READS", "pairs").replace("SIZE", "1d")
    (shell.root / "pipelines" / "hours.yaml").write_text(text)
    assert shell("follow", "days") == 2
    assert "which reads it" in flat(shell.err)
    (shell.root / "pipelines" / "hours.yaml").unlink()
    [sentence] = shell.json("status", "days")["pipelines"][0]["edited"]
    assert "a table of pipeline hours, which has no file in" in sentence


def test_the_shipped_chain_is_the_documented_chain_with_more_keys() -> None:
    documented, shipped = (
        yaml.safe_load(DAILY),
        yaml.safe_load((ROOT / "pipelines" / "airports_daily.yaml").read_text()),
    )
    for key in ("log", "aggregates"):
        assert shipped[key].items() >= documented.pop(key).items()
    assert shipped.items() >= documented.items()


@pytest.mark.slow
def test_late_records_become_the_sessions_of_the_documented_pipeline(shell: Shell) -> None:
    (shell.root / "pipelines" / "flights.yaml").write_text(FLIGHTS)
    (shell.root / "pipelines" / "late_bursts.yaml").write_text(BURSTS)
    start_ms = (FIRST - date(1970, 1, 1)).days * DAY_MS
    # Flights of 03:00 and 06:00 of the first day are reported on the second. The flight of hour 72 ends their session.
    hours = ([5, 20], [44, 3, 6], [68], [140], [72])
    for day, departures in enumerate(hours):
        rows = [
            {
                "origin": "JFK",
                "departed_at": start_ms + hour * 3_600_000,
                "flight_id": str(hour),
                "day": FIRST + timedelta(days=day),
            }
            for hour in departures
        ]
        place = str(shell.root / "event_logs" / "flights")
        write_deltalake(place, pa.Table.from_pylist(rows), mode="append", partition_by=["day"])
    ends = ("--from", str(FIRST), "--to", str(FIRST + timedelta(days=len(hours))))
    assert shell("run", "flights", *ends) == 0, shell.err
    assert shell("follow", "flights") == 0, shell.err
    window = shell.json("show", "late_bursts")
    assert (window["late_flights"], window["window_start"]) == (2, "1970-01-05T03:00:00Z")
