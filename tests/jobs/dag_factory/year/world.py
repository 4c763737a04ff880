"""What the parts of a simulated year share: Airflow, its clock and the true time, the log, the file, what was drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from jobs.ledger.view import LedgerView
from jobs.planning.request_context import RequestContext, open_request_context
from tests.jobs.dag_factory.year.calendar import Calendar, last_daily, last_monday
from tests.jobs.dag_factory.year.edited_file import EDITS, EditedFile
from tests.jobs.dag_factory.year.producer import Producer
from tests.support.daily_log import LedgerStoreFaults
from tests.support.message_sinks import WebhookSink
from tests.support.simulated_airflow import HOUR_MS, Clock, Run, SimulatedAirflow

if TYPE_CHECKING:
    from airflow.sdk import DAG

EDIT: Final = 0.03
"""The chance that a person edits the file, in each hour that is played."""
JUMP: Final = 0.012
"""The chance that the clock of Airflow's host jumps, in each hour that is played."""
JUMPS_MS: Final = tuple(hours * HOUR_MS for hours in (-25, -7, -2, 2, 26))
HALF_HOUR_MS: Final = HOUR_MS // 2
REPLAYS: Final = ("replay_sales", "backfill_sales")


@dataclass(kw_only=True)
class World:
    """The state of a simulated year.

    `truth` is the time of the producer. Airflow's clock may differ from it. `armed` is a task before which the file is
    edited, and the kind of the edit. `planned_ms` is the true time of the newest decision of `replay_sales`,
    `cancelled_ms` that at which a person has cancelled a request or the operator has done something, and
    `is_plan_sound` whether Airflow's clock was right then. `asked_specs` maps DAG runs to the specs that the file had
    when they were planned, `asked_ready` to `log.ready` and the time of Airflow's clock then, `limits` attempts to the
    limit of the suite. `made_ms` maps a DAG to the newest time of its cron that has a DAG run. `rules` are the values
    of `restate` that plan tasks have read since the newest check. `is_unread`: Airflow has not read the file since an
    edit. Edits and jumps are `rate` times as frequent.
    """

    airflow: SimulatedAirflow
    calendar: Calendar
    truth: Clock
    file: EditedFile
    producer: Producer
    store: LedgerStoreFaults
    hook: WebhookSink
    chance: Random
    drawn: dict[str, int]
    load: Callable[[], "dict[str, DAG]"]
    is_quiet: bool = False
    offset_ms: int = 0
    steps_left: dict[str, int] = field(default_factory=lambda: {"jump": 0, "broken": 0})
    armed: tuple[str, str] | None = None
    planned_ms: int = 0
    cancelled_ms: int = 0
    is_plan_sound: bool = True
    asked_specs: dict[str, set[str]] = field(default_factory=dict)
    asked_ready: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    rules: set[str] = field(default_factory=set)
    is_unread: bool = False
    made_ms: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    rate: float = 1.0
    backup: tuple[list[Run], int] | None = None

    def happens(self, likelihood: float) -> bool:
        """Draw whether something happens."""
        return self.chance.random() < likelihood

    def work(self) -> RequestContext:
        """Return the context of the pipeline, as its file was when it was valid."""
        clock = self.airflow.clock
        return open_request_context(self.file.content.pipeline, self.airflow.lake, now_ms=lambda: clock.ms)

    def view(self) -> LedgerView:
        """Return the ledger."""
        return self.work().ledger.view()

    def described(self) -> str:
        """Return where the year stands, for the message of a failure."""
        view = self.view()
        requests = [
            f"{request.kind} {request.request_id[:8]} {sorted(request.slice_ids)} complete {request.is_complete}, "
            f"{request.failure}, {[origin.run_id for origin in request.origins]}"
            for request in view.open_requests()
        ]
        by_person = [run for run in self.airflow.runs if run.run_type == "manual"]
        runs = [
            f"{run.dag_id} {run.run_id} {run.state} {run.clear_number} {run.conf} {run.verdict} {run.error}"
            for run in (*by_person, *self.airflow.runs[-10:])
        ]
        return "\n".join((f"published {list(view.published)[-3:]}, hold {view.hold}", *requests, *runs))

    def set_time(self, true_ms: int) -> None:
        """Let the time pass for the producer and for Airflow."""
        self.truth.ms, self.airflow.clock.ms = true_ms, true_ms + self.offset_ms

    def jump(self) -> None:
        """Draw whether Airflow's clock jumps, or jumps back to the right time."""
        self.steps_left["jump"] -= 1
        if self.offset_ms and (self.is_quiet or self.steps_left["jump"] <= 0):
            self.offset_ms = 0
        elif not self.offset_ms and not self.is_quiet and self.happens(self.rate * JUMP):
            self.offset_ms, self.steps_left["jump"] = self.chance.choice(JUMPS_MS), self.chance.randrange(1, 7)
            self.drawn[f"clock {self.offset_ms // HOUR_MS:+d} h"] += 1
        self.set_time(self.truth.ms)

    def edit(self) -> None:
        """Draw whether a person mends the file, edits it now, or will edit it while a DAG run works."""
        self.steps_left["broken"] -= 1
        if self.is_unread:
            self.reload()
        if self.file.is_broken and (self.is_quiet or self.steps_left["broken"] <= 0):
            self.file.write(self.file.content)
            self.reload()
        if self.is_quiet:
            self.armed = None
        elif not self.file.is_broken and self.happens(self.rate * EDIT):
            name = self.chance.choices(tuple(EDITS), tuple(EDITS.values()))[0]
            if self.happens(0.5):
                self.armed = (self.chance.choice(("plan", "replay", "gate", "publish")), name)
            else:
                self._edit(name)
                self.reload()

    def _edit(self, name: str, *, where: str = "") -> None:
        if name == "timezone" and not self.view().published:
            name = "description"  # the first publication takes the time zone of the file, and the year has another one
        self.drawn[f"edited: {name}{where}"] += 1
        self.file.edit(name, self.chance)
        self.is_unread = True
        self.steps_left["broken"] = self.chance.randrange(1, 4)

    def reload(self) -> None:
        """Let Airflow read the file again."""
        self.airflow.dags, self.is_unread = self.load(), False

    def before_task(self, run: Run, task: str) -> None:
        """Edit the file at the drawn moment, and note what the plan tasks could know."""
        if self.armed is not None and run.dag_id in REPLAYS and self.armed[0] == task:
            (_, name), self.armed = self.armed, None
            is_by_hand = run.dag_id == "backfill_sales" and "request" not in run.conf
            self._edit("description" if is_by_hand and name == "timezone" else name, where=f" before {task}")
        if run.dag_id in REPLAYS and task == "plan" and not self.file.is_broken:
            self.asked_specs.setdefault(run.run_id, set()).add(self.file.content.spec)
            asked = (self.file.content.ready, self.airflow.clock.ms)
            self.asked_ready.setdefault(run.run_id, set()).add(asked)
            self.rules.add(self.file.content.restate)
            if run.dag_id == "replay_sales":
                self.planned_ms, self.is_plan_sound = self.truth.ms, not self.offset_ms

    def schedule(self, dag_id: str) -> None:
        """Make the newest DAG run of a cron that is due by Airflow's clock and was not made yet."""
        now_ms, zone = self.airflow.clock.ms, self.calendar.zone
        ticks = {"replay_sales": zone.schedule, "alert_sales": self.file.content.alert}
        tick_ms = last_daily(ticks[dag_id], now_ms) if dag_id in ticks else last_monday(now_ms)
        if dag_id == "alert_sales" and self.airflow.is_broken("replay_sales"):
            tick_ms = now_ms // HALF_HOUR_MS * HALF_HOUR_MS
        made_ms = self.made_ms.setdefault(dag_id, tick_ms)
        if tick_ms > made_ms and not self.airflow.is_broken(dag_id):
            self.made_ms[dag_id] = tick_ms
            self.airflow.trigger(dag_id, f"scheduled__{tick_ms}", run_type="scheduled", end_ms=tick_ms)

    def by_hand(self, dag_id: str, conf: dict[str, object], *, user: str | None = None) -> Run:
        """Start a DAG run as a person does."""
        name = f"manual__{len(self.airflow.runs)}"
        return self.airflow.trigger(dag_id, name, run_type="manual", conf=conf, user=user)
