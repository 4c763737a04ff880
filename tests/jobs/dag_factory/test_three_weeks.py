"""Three weeks of a daily pipeline, hour by hour: days on time, late, missing, doubled, changed; a worker that dies.

The clock is injected. The operators, the ledger, the log and the messages are the real ones. After each day, a line
says what readers see, what waits, and who was told.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.orchestration.dag_leases import stop
from jobs.orchestration.restatements import restatement_conf
from jobs.planning import changed_slices
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.planning.standing import Standing, standing
from tests.support.daily_log import Cluster, Writer
from tests.support.fake_replay import FAILS, PIPELINE, sales
from tests.support.message_sinks import WebhookSink
from tests.support.simulated_airflow import HOUR_MS, Clock, SimulatedAirflow, WorkerDied, instant_ms

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from tests.jobs.dag_factory.conftest import LoadDags

pytestmark = [pytest.mark.dags, pytest.mark.slow]

DAYS: Final = 21
"""From 2 to 22 November. The log begins with 1 November, whose records arrive on the 2nd."""
SETTINGS: Final = """
alerts:
  to: [hook]
  not_published_by: "08:00"
  data_not_there_by: "07:00"
  held_longer_than: 4h
restate: {mode: propose}
"""
TEXT: Final = PIPELINE + SETTINGS


def day(number: int) -> str:
    """Return the day of November with this number."""
    return f"2026-11-{number:02d}"


def at(number: int, hour: int) -> int:
    return instant_ms(f"{day(number)}T{hour:02d}:00")


@dataclass
class Weeks:
    """The three weeks: what happens at which hour, and what was seen after each day."""

    airflow: SimulatedAirflow
    writer: Writer
    hook: WebhookSink
    at: dict[int, list[Callable[[], object]]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    load: Callable[[], Mapping[str, "DAG"]] = dict

    def when(self, ms: int, what: Callable[[], object]) -> None:
        self.at.setdefault(ms, []).append(what)

    def arrives(self, number: int, *, on: int | None = None, hour: int = 2, **amounts: int) -> None:
        """Let the records of a day arrive, by default at 02:00 of the next day."""
        rows = amounts or {"a": number, "b": 2 * number}
        self.when(at(on if on is not None else number + 1, hour), lambda: self.writer.append(day(number), rows))

    def work(self) -> RequestContext:
        clock = self.airflow.clock
        return open_request_context(sales(TEXT), self.airflow.lake, now_ms=lambda: clock.ms)

    def now(self) -> tuple[LedgerView, Standing]:
        work = self.work()
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
        """Make the DAG runs of this hour: the replay at 06:00, the messages every hour (their cron has each half)."""
        moment = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
        name = f"scheduled__{moment:%m-%dT%H}"
        if moment.hour == 6:
            self.airflow.trigger("replay_sales", name, run_type="scheduled", end_ms=now_ms)
        self.airflow.play()
        self.airflow.trigger("alert_sales", name, run_type="scheduled", end_ms=now_ms)

    def open(self, kind: RequestKind) -> Request:
        """Return the only open request of a kind."""
        [found] = self.work().ledger.view().open_requests(kind)
        return found

    def waive(self) -> None:
        """Let a person accept the held day, by the DAG of decisions."""
        view = self.work().ledger.view()
        request = self.open(RequestKind.SCHEDULED)
        held = [view.run(run_id).result for run_id in request.runs.values() if not view.run(run_id).is_publishable]
        chosen = [{"slice_id": run.slice.slice_id, "run_id": run.run_id, "reason": "a real peak"} for run in held]
        conf = {"action": "waive_and_publish", "request_id": request.request_id, "slices": chosen}
        self.airflow.trigger(
            "decide_sales", f"manual__{view.version}", run_type="manual", user="anna",
            conf=conf | {"ledger_version": view.version},
        )  # fmt: skip

    def restate(self) -> None:
        """Let a person replay and publish the proposal, by the DAG of backfills."""
        conf = restatement_conf(self.work(), self.open(RequestKind.RESTATEMENT), publish=True)
        self.airflow.trigger("backfill_sales", f"manual__{len(self.airflow.runs)}", run_type="manual", conf=conf)

    def cancel(self) -> None:
        """Let a person mark the running DAG run as failed: Airflow kills its task, and the listener hears of it."""
        run = next(one for one in self.airflow.runs if one.dag_id == "replay_sales" and one.state == "running")
        run.state = "failed"
        note = stop(self.work(), (run.dag_id, run.run_id), who="anna")
        self.notes.append(note or "")
        raise WorkerDied

    def restart(self) -> None:
        """Forget all that the processes of Airflow keep in memory."""
        changed_slices._looked.cache.clear()
        self.airflow.dags = dict(self.load())

    def _line(self) -> str:
        """Return what is seen at the end of a day, as one line."""
        view, now = self.now()
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


def _short(slice_ids: Iterable[str]) -> str:
    """Return days as `02-05,07`."""
    days = sorted(int(one[-2:]) for one in slice_ids)
    spans: list[list[int]] = []
    for one in days:
        if spans and spans[-1][1] == one - 1:
            spans[-1][1] = one
        else:
            spans.append([one, one])
    return ",".join(f"{first:02d}" if first == last else f"{first:02d}-{last:02d}" for first, last in spans)


@pytest.fixture
def weeks(load_dags: "LoadDags", tmp_path: Path, hook: WebhookSink, monkeypatch: pytest.MonkeyPatch) -> Weeks:
    lake, clock = Lake(root=str(tmp_path / "lake")), Clock(at(2, 0))
    monkeypatch.setenv("HINDCAST_LAKE", lake.root)
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "sales.yaml").write_text(TEXT, encoding="utf-8")
    cluster = Cluster()
    airflow = SimulatedAirflow(load_dags(pipelines), lake, clock, cluster, monkeypatch)
    made = Weeks(airflow, Writer(Path(lake.root), clock), hook, load=lambda: load_dags(pipelines))
    _story(made, cluster)
    return made


def _story(weeks: Weeks, cluster: Cluster) -> None:
    """Plan what happens."""
    for number in range(1, 21):
        if number not in {1, 4, 7, 11, 16}:
            weeks.arrives(number)
    weeks.arrives(1, hour=0)
    weeks.arrives(4, hour=10)  # late: the run of 06:00 finds nothing
    weeks.arrives(7, on=10, hour=3)  # missing, while the 8th is there
    weeks.arrives(13, on=15, hour=4)  # the records of the 13th once more
    weeks.arrives(14, on=17, hour=4, late=5)  # the 14th gets more records
    weeks.arrives(16, a=FAILS)  # a check fails
    weeks.when(at(17, 15), weeks.waive)
    weeks.when(at(18, 9), weeks.restate)

    def die() -> None:
        raise WorkerDied

    cluster.once[day(18)] = die
    cluster.once[day(19)] = weeks.cancel
    weeks.when(at(21, 5), weeks.restart)


EXPECTED: Final = """
02: sees 01
03: sees 01-02
04: sees 01-03
05: sees 01-04; told 2026-11-04: the data is not there, 2026-11-04 not visible to readers
06: sees 01-05
07: sees 01-06
08: sees 01-06; waits 07; told 2026-11-07: the data is not there, 2026-11-07 not visible to readers
09: sees 01-08; empty 07; told 2026-11-07 published empty
10: sees 01-09; empty 07; changed 07; open restatement 07
11: sees 01-10; empty 07; changed 07; open restatement 07
12: sees 01-10; waits 11; empty 07; changed 07; open restatement 07; \
told 2026-11-11: the data is not there, 2026-11-11 not visible to readers
13: sees 01-12; empty 07,11; changed 07; open restatement 07; told 2026-11-11 published empty
14: sees 01-13; empty 07,11; changed 07; open restatement 07
15: sees 01-14; empty 07,11; changed 07,13; open restatement 07,13
16: sees 01-15; empty 07,11; changed 07,13; open restatement 07,13
17: sees 01-16; empty 07,11; changed 07,13-14; open restatement 07,13-14; \
told 1 slice held, 2026-11-16 not visible to readers, 2026-11-16 held for more than 4 h
18: sees 01-17; empty 11
19: sees 01-18; empty 11
20: sees 01-18; empty 11; open scheduled 19; told 2026-11-19 not visible to readers
21: sees 01-20; empty 11
22: sees 01-20; waits 21; empty 11; told 2026-11-21: the data is not there, 2026-11-21 not visible to readers
"""


def test_after_each_day_readers_see_what_has_arrived_and_people_are_told_of_the_rest(weeks: Weeks) -> None:
    weeks.live()
    assert weeks.seen == EXPECTED.strip().splitlines()
    view, now = weeks.now()
    log = DeltaTable(f"{weeks.airflow.lake.root}/event_logs/sales").to_pyarrow_table(columns=["day"])
    days = Counter(str(one) for one in log["day"].to_pylist())
    read = {name: view.run(run_id).result.counts.read for name, run_id in view.published.items()}
    assert read == {name: days[name] for name in read}, "readers see every record of every published day"
    assert [one.slice_id for one in now.empty] == [day(11)], "only the holiday"
    assert weeks.notes == ["cancelled by anna (marked failed): 0 of 1 slice staged, nothing published"]
    states = {run.run_id: run.state for run in weeks.airflow.runs if run.dag_id == "replay_sales"}
    assert {run_id for run_id, state in states.items() if state == "failed"} == set(), "what settles them clears them"
    [waiting] = [run for run in weeks.airflow.runs if run.state == "running"]
    assert waiting.verdict.startswith(f"waits for {day(21)} since 2026-11-22 00:00:00 UTC"), waiting.verdict
    assert set(weeks.airflow.events) >= set(view.published), "each publication sends the keys of its slices"
