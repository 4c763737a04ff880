"""Three weeks of a daily pipeline, hour by hour: days on time, late, missing, doubled, changed, a holiday, a dead worker.

The clock is injected. The operators, the ledger, the log and the messages are the real ones. After each day, a line says
what readers see, what waits, and who was told.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.ledger.view import LedgerView
from jobs.planning.standing import Standing, standing
from jobs.planning.workspace import open_workspace
from tests.support.fake_replay import PIPELINE, append_day, sales
from tests.support.message_sinks import WebhookSink
from tests.support.simulated_airflow import HOUR_MS, Clock, SimulatedAirflow, instant_ms

pytestmark = pytest.mark.dags

FIRST, DAYS = "2026-11-02", 21
SETTINGS: Final = """
alerts:
  to: [hook]
  not_published_by: "08:00"
  data_not_there_by: "07:00"
restate: {mode: propose}
"""


def day(number: int) -> str:
    """Return the day of November with this number."""
    return f"2026-11-{number:02d}"


def at(number: int, hour: int) -> int:
    return instant_ms(f"{day(number)}T{hour:02d}:00")


@dataclass
class Writer:
    """The producer of the log. Its commits have the time of the injected clock."""

    lake: Path
    clock: Clock

    def append(self, number: int, amounts: dict[str, int]) -> None:
        append_day(self.lake, day(number), amounts)
        commits = sorted((self.lake / "event_logs" / "sales" / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for line in commits[-1].read_text(encoding="utf-8").splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = self.clock.ms
        commits[-1].write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        os.utime(commits[-1], ns=(self.clock.ms * 1_000_000,) * 2)


@dataclass
class Weeks:
    """The three weeks: what happens at which hour, and what was seen after each day."""

    airflow: SimulatedAirflow
    writer: Writer
    hook: WebhookSink
    at: dict[int, list[Callable[[], object]]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def when(self, ms: int, what: Callable[[], object]) -> None:
        self.at.setdefault(ms, []).append(what)

    def arrives(self, number: int, *, on: int | None = None, hour: int = 2, **amounts: int) -> None:
        """Let the records of a day arrive, by default at 02:00 of the next day."""
        rows = amounts or {"a": number, "b": 2 * number}
        self.when(at(on if on is not None else number + 1, hour), lambda: self.writer.append(number, rows))

    def work(self) -> tuple[LedgerView, Standing]:
        clock = self.airflow.clock
        work = open_workspace(sales(PIPELINE + SETTINGS), self.airflow.lake, now_ms=lambda: clock.ms)
        view = work.ledger.view()
        return view, standing(work, view)

    def live(self) -> None:
        """Let all hours pass."""
        clock = self.airflow.clock
        for hour in range(DAYS * 24):
            clock.ms = at(2, 0) + hour * HOUR_MS
            for what in self.at.get(clock.ms, ()):
                what()
            self._schedule(clock.ms)
            self.airflow.play()
            if hour % 24 == 23:
                self.seen.append(self._line())

    def _schedule(self, now_ms: int) -> None:
        """Make the DAG runs of this hour: the replay at 06:00, the messages when their cron says."""
        moment = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
        name = moment.strftime("%m-%dT%H")
        if moment.hour == 6:
            self.airflow.trigger("replay_sales", f"scheduled__{name}", run_type="scheduled", end_ms=now_ms)
        if moment.hour in {7, 8}:
            self.airflow.trigger("alert_sales", f"scheduled__{name}", run_type="scheduled", end_ms=now_ms)

    def _line(self) -> str:
        """Return what is seen at the end of a day, as one line."""
        view, now = self.work()
        told = [str(body["subject"]).removeprefix("sales: ") for body in self.hook.bodies]
        self.hook.bodies.clear()
        parts = {
            "sees": _short(view.published),
            "waits": _short([now.waiting.slice.slice_id]) if now.waiting else "",
            "empty": _short([one.slice_id for one in now.empty]),
            "changed": _short([one.slice.slice_id for one in now.changed]),
            "open": ", ".join(
                f"{one.kind.value} {_short(one.slice_ids or one.changes)}" for one in view.open_requests()
            ),
            "told": ", ".join(told),
        }
        day_of = datetime.fromtimestamp(self.airflow.clock.ms / 1000, tz=UTC).strftime("%d")
        return f"{day_of}: " + "; ".join(f"{name} {text}" for name, text in parts.items() if text)


def _short(slice_ids: "Iterator[str] | Any") -> str:
    """Return days as `02-05,07`."""
    days = sorted(int(one[-2:]) for one in slice_ids)
    spans: list[list[int]] = []
    for one in days:
        if spans and spans[-1][1] == one - 1:
            spans[-1][1] = one
        else:
            spans.append([one, one])
    return ",".join(f"{first:02d}" if first == last else f"{first:02d}-{last:02d}" for first, last in spans)
