"""What a run costs besides its records: how often it opens tables, pins the log, plans slices and reads the ledger.

A day in the middle of many gets a further commit, and the whole range is run again. The process keeps tables and the
ledger between the runs. The costs are the same for any number of days, and the results are those of a process that
keeps nothing.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.durability import SETTING
from jobs.lake import delta_tables, durable_commits
from jobs.lake.durable_commits import newest_in_log
from jobs.ledger.history import REMEMBERED, EventHistory
from jobs.orchestration.outcomes import RequestOutcome
from jobs.planning import log_pin
from jobs.planning.steps import StepJudge
from jobs.replay.sizes import Sizes
from tests.jobs.replay.test_without_spark import DAY_MS, FIRST
from tests.support.delta_logs import commits_of, track_rows
from tests.support.fuzzing import seeds
from tests.support.replays import pipeline_of, run_range, what_was_run

SIZES: Final = Sizes(local_records=10**9)
RERUNS: Final = 3
EPOCH: Final = date(1970, 1, 1).toordinal()
HOUR_MS: Final = DAY_MS // 24
PIPELINE: Final = pipeline_of(
    "pipeline: costs\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
    "watermark: {kind: bounded, out_of_orderness: 6h}\nwindows:\n  tumbling: {size: 1h}\n"
    "aggregates: {n: {count: {}}, total: {sum: v}}\n"
)


class GrowingLog:
    """A log with some days, of which the last commits are added one at a time. Each adds a file to a middle day."""

    def __init__(self, place: Path, days: int, random: Random) -> None:
        middle = [random.randrange(1, days - 1) for _ in range(RERUNS)]
        for number, day in enumerate((*range(days), *middle)):
            first_ms = (FIRST.toordinal() - EPOCH + day) * DAY_MS
            # The records that a day gets later are late, so the state after the day is the same again.
            times = [HOUR_MS * random.randrange(24) for _ in range(20)] + [23 * HOUR_MS] if number < days else [HOUR_MS]
            rows = [{"k": random.randrange(5), "at": first_ms + at, "v": 1} for at in times]
            table = pa.Table.from_pylist(rows, pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64())]))
            dates = pa.array([FIRST + timedelta(days=day)] * len(rows), pa.date32())
            write_deltalake(str(place), table.append_column("day", dates), mode="append", partition_by=["day"])
        track_rows(place)
        self._later = commits_of(place)[days:]
        for commit in self._later:
            commit.rename(commit.with_suffix(".later"))

    def grow(self) -> None:
        commit = self._later.pop(0)
        commit.with_suffix(".later").rename(commit)


def run(lake: Path, days: int) -> RequestOutcome:
    bounds = str(FIRST), str(FIRST + timedelta(days=days))
    return run_range(None, lake, PIPELINE, bounds, sizes=SIZES)


def forget() -> None:
    """Drop what the process keeps between two runs."""
    REMEMBERED.forget_all()
    delta_tables._KEPT.tables.clear()


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch, *counted: tuple[Any, str]) -> Iterator[Counter[str]]:
    found: Counter[str] = Counter()

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on unchanged
            found[name] += len(args[1]) if name == "take_in" else 1
            return function(*args, **named)

        return counts

    with monkeypatch.context() as patched:
        for owner, name in counted:
            patched.setattr(owner, name, wrapped(name, getattr(owner, name)))
        yield found


def costs_of_an_old_day(place: Path, days: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the counts of the last of some runs that replay one of `days` days again."""
    log = GrowingLog(place / "log", days, Random(days))
    run(place, days)
    for _ in range(RERUNS - 1):
        log.grow()
        assert run(place, days).replayed == 1
    log.grow()
    counted = (
        (DeltaTable, "__init__"), (DeltaTable, "update_incremental"), (EventHistory, "take_in"),
        (log_pin, "pin_log"), (StepJudge, "step"),
    )  # fmt: skip
    with counting(monkeypatch, *counted) as found:
        assert run(place, days).is_published
    found["step"] //= days  # how often all slices were planned
    return found


def test_a_first_day_waits_for_the_disk_a_few_times_and_before_the_ledger_names_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: it waited for each table twice, and for the directories above each table again each time."""
    GrowingLog(tmp_path / "log", 3, Random(1))
    ledger, versions = tmp_path / "costs" / "ledger", dict[Path, int]()

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.suffix == ".parquet" and path.parent != ledger:
            versions[path] = newest_in_log(str(ledger))

    monkeypatch.setenv(SETTING, "on")
    monkeypatch.setattr(os, "fsync", fsync)
    with counting(monkeypatch, (os, "fsync"), (durable_commits, "sync_files")) as found:
        outcome = run(tmp_path, 1)
    assert found["sync_files"] <= 4 + 5, "for the tables, their rows and the results of checks, and for each event"
    assert found["fsync"] < 150
    assert {*versions} == {path for path in (tmp_path / "costs").rglob("part-*.parquet") if path.parent != ledger}
    assert max(versions.values()) < outcome.runs[0].seq


@pytest.mark.slow
def test_an_old_day_costs_the_same_for_any_number_of_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = costs_of_an_old_day(tmp_path / "few", 5, monkeypatch)
    many = costs_of_an_old_day(tmp_path / "many", 20, monkeypatch)
    assert few == many
    assert many["__init__"] == 1, "only the table of the ledger is opened again: its handle belongs to one Ledger"
    assert many["pin_log"] == 2, "for the plan, and with row ids for the chunk"
    assert many["step"] == 2, "before the replay and after it"
    assert many["take_in"] <= 12, "the events of this run"
    assert many["update_incremental"] <= 14


@pytest.mark.slow
def test_what_a_process_keeps_between_runs_changes_no_result(tmp_path: Path) -> None:
    for seed in seeds(2):
        lakes = [tmp_path / f"{seed}-{name}" for name in ("kept", "forgotten")]
        logs = [GrowingLog(lake / "log", 6, Random(seed)) for lake in lakes]
        for number in range(RERUNS + 1):
            found = []
            for lake, log in zip(lakes, logs, strict=True):
                if number:
                    log.grow()
                if lake is lakes[1]:
                    forget()
                found.append(what_was_run(run(lake, 6)))
            assert found[0] == found[1], f"seed {seed}, run {number}"
