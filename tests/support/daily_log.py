"""The producer of a daily log, and a stand-in for Spark in which faults happen, for tests with an injected clock."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.ledger.chain import Row
from jobs.ledger.table import ConflictError, LedgerTable
from jobs.replay.orders import ReplayOrder
from jobs.runs import RunResult
from tests.support.fake_replay import FakeReplayer, append_day
from tests.support.simulated_airflow import Clock


@dataclass
class Writer:
    """The producer of the log. Its commits have the time of the injected clock."""

    lake: Path
    clock: Clock

    def append(self, day: str, amounts: dict[str, int]) -> None:
        """Append one record per key to a day, as one commit."""
        append_day(self.lake, day, amounts)
        self._date_newest_commit()

    def erase(self, day: str, key: str) -> None:
        """Erase the records of a key from a day, as one commit (DELETE)."""
        DeltaTable(self.lake / "event_logs" / "sales").delete(f"day = '{day}' AND key = '{key}'")
        self._date_newest_commit()

    def _date_newest_commit(self) -> None:
        commit = max((self.lake / "event_logs" / "sales" / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = self.clock.ms
        commit.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        os.utime(commit, ns=(self.clock.ms * 1_000_000,) * 2)


@dataclass
class LedgerStoreFaults:
    """Faults of the store at commits of any ledger. `following` is what happens at the next commit.

    `refused`: nothing is written, and the writer gets an error. `unknown`: the commit is written, and the answer lost.
    """

    following: str | None = None
    happened: int = 0

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Let commits of ledgers in Delta tables have the faults."""
        append = LedgerTable.append

        def faulty(table: LedgerTable, rows: Sequence[Row]) -> None:
            fault, self.following = self.following, None
            self.happened += fault is not None
            if fault == "refused":
                raise ConflictError("the store does not answer")
            append(table, rows)
            if fault == "unknown":
                raise ConflictError("the answer of the store was lost")

        patch.setattr(LedgerTable, "append", faulty)


@dataclass
class Cluster:
    """Stands for Spark. `once` maps slices to what happens when they are replayed for the first time.

    `afterwards` maps slices to what happens when their rows are written, and no run is staged yet.
    """

    replayer: FakeReplayer = field(default_factory=FakeReplayer)
    once: dict[str, Callable[[], None]] = field(default_factory=dict)
    afterwards: dict[str, Callable[[], None]] = field(default_factory=dict)

    def __call__(self, order: ReplayOrder) -> list[RunResult]:
        for ordered in order.slices:
            self.once.pop(ordered.slice_id, lambda: None)()
        results = self.replayer(order)
        for ordered in order.slices:
            self.afterwards.pop(ordered.slice_id, lambda: None)()
        return results
