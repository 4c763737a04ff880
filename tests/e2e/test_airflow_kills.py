"""Parts of a real Airflow are killed in the middle of a backfill, which then has the runs and rows of another lake.

The other lake has the same log, and `hindcast run` has replayed it there without a fault. A part that is missing is
started again, as a service manager does. No test clears a task or starts a DAG run again.
"""

import contextlib
import random
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Literal, get_args

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.orchestration.embedded import postgres as embedded_postgres
from jobs.orchestration.embedded.airflow_api import FINISHED_STATES, AirflowRefused
from jobs.orchestration.embedded.airflow_env import Home
from jobs.readers import published_table
from tests.deploy.ledger_runs import runs
from tests.support.airflow_parts import AirflowParts
from tests.support.fuzzing import seeds
from tests.ui.shop import SCHEMA, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(3600)]

SEEDS = tuple(seeds(2))
Kind = Literal["scheduler", "host", "worker", "database", "api-server", "all"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DAYS = [str(date(2023, 1, 1) + timedelta(days=number)) for number in range(900)]
RANGE = {"from": DAYS[0], "to": str(date.fromisoformat(DAYS[-1]) + timedelta(days=1))}
PIPELINE = """
pipeline: {name}
log:
  table: event_logs/orders
  key: [customer]
  event_time: ordered_at
  record_id: order_id
  slice: {{by: ingest_date}}
  order: [ordered_at, order_id]
watermark: {{kind: bounded, out_of_orderness: 1h}}
windows: {{session: {{gap: 1d}}, allowed_lateness: 1h}}
aggregates: {{orders: {{count: {{}}}}, spent: {{sum: amount}}}}
"""
LONGEST_S: Mapping[str, float] = {"plan": 3, "replay": 40, "gate": 3, "publish": 2}
"""A fault happens at most so long after the start of a task."""
MISSING_S = 300
"""The database and the API server are missing for at most so long."""
BEGUN = time.monotonic()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(root=tmp_path_factory.mktemp("kills"))
    shop.pipelines.mkdir()
    for kind in KINDS:
        for seed in SEEDS:
            name = _pipeline(kind, seed)
            (shop.pipelines / f"{name}.yaml").write_text(PIPELINE.format(name=name), encoding="utf-8")
    chance = random.Random(SEEDS[0])
    rows = [
        {
            "order_id": f"{day}/{number}",
            "customer": chance.choice("abcdefgh"),
            "ordered_at": datetime.fromisoformat(f"{day}T00:00:00+00:00") + timedelta(minutes=chance.randrange(2000)),
            "amount": chance.random(),
            "ingest_date": date.fromisoformat(day),
        }
        for day in DAYS
        for number in range(20)
    ]
    write_deltalake(shop.log, pa.Table.from_pylist(rows, schema=SCHEMA), partition_by=["ingest_date"])
    shutil.copytree(shop.log, shop.root / "undisturbed" / "event_logs" / "orders")
    return shop


@pytest.fixture(scope="module")
def airflow(shop: Shop) -> Iterator[AirflowParts]:
    airflow = AirflowParts(home=Home(root=shop.root / "airflow", lake=str(shop.lake), pipelines=shop.pipelines))
    try:
        airflow.up()
        yield airflow
    finally:
        airflow.down()
        embedded_postgres.remove(airflow.home.cluster)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_is_killed_in_a_backfill_changes_no_row(
    shop: Shop, airflow: AirflowParts, kind: Kind, seed: int
) -> None:
    chance = random.Random(f"{kind} {seed}")
    name = _pipeline(kind, seed)
    task = "replay" if kind == "worker" else chance.choice(["plan", "replay", "replay", "gate", "publish"])
    delay_s = chance.uniform(0, LONGEST_S[task])
    run_id = _start_backfill(airflow, f"backfill_{name}", task)
    time.sleep(delay_s)
    _tell(f"{kind}, seed {seed}: {delay_s:.1f} s after the start of {task}")
    begun = time.monotonic()
    cause(kind, airflow, chance)
    _tell("all parts are started again")
    state = _wait_for_the_end(shop, airflow, name, run_id)
    _tell(f"{kind}, seed {seed}: {state} {time.monotonic() - begun:.0f} s after the fault")
    assert state == "success"
    _compare(shop, airflow, name)


def cause(kind: Kind, airflow: AirflowParts, chance: random.Random) -> None:
    """Kill or stop parts. `host` is the scheduler with all its workers and their tasks."""
    match kind:
        case "scheduler":
            airflow.kill("scheduler")
        case "host":
            workers = airflow.workers()
            airflow.kill("scheduler")
            for worker in workers:
                worker.send(signal.SIGKILL)
        case "worker":
            airflow.busy_worker().send(signal.SIGKILL)
        case "database":
            airflow.stop_database()
            time.sleep(chance.uniform(0, MISSING_S))
            airflow.start_database()
        case "api-server":
            airflow.kill("api-server")
            time.sleep(chance.uniform(0, MISSING_S))
        case "all":
            airflow.kill("scheduler")
            airflow.down()
            airflow.up()


def _pipeline(kind: Kind, seed: int) -> str:
    return f"{kind.replace('-', '_')}_{seed}"


def _tell(text: str) -> None:
    print(f"{time.monotonic() - BEGUN:7.1f} {text}", flush=True)  # noqa: T201 - the figures of docs/explanation/testing.md


def _start_backfill(airflow: AirflowParts, dag_id: str, task: str) -> str:
    """Start a backfill, and return its id when the task has begun."""
    with airflow.api() as api:
        while not api.has_dag(dag_id):
            time.sleep(0.5)
        api.unpause(dag_id)
        run_id = api.trigger(dag_id, {"reason": "test"} | RANGE)
        while not any(
            each.task_id == task and each.state in {"running", *FINISHED_STATES} for each in api.tasks(dag_id, run_id)
        ):
            time.sleep(0.2)
    return run_id


def _wait_for_the_end(shop: Shop, airflow: AirflowParts, name: str, run_id: str) -> str:
    """Start what is missing until the DAG run has ended. Readers see all slices or none at any time."""
    told = ""
    while True:
        for part in airflow.start_missing():
            _tell(f"started {part} again")
        seen = shop.published(name)
        assert len(seen) in {0, len(DAYS)}, f"readers see {len(seen)} slices"
        with contextlib.suppress(AirflowRefused), airflow.api() as api:
            state = api.dag_run(f"backfill_{name}", run_id).state
            tasks = {each.task_id: (each.state, each.try_number) for each in api.tasks(f"backfill_{name}", run_id)}
            if (text := f"{state} {tasks}") != told:
                _tell(text)
                told = text
            if state in FINISHED_STATES:
                return state
        time.sleep(1)


def _compare(shop: Shop, airflow: AirflowParts, name: str) -> None:
    """Compare runs and rows with the undisturbed lake. No request is open, and every stored row is verified."""
    other = replace(airflow.place, home=replace(airflow.home, lake=str(shop.root / "undisturbed")))
    other.hindcast("run", name, "--from", RANGE["from"], "--to", RANGE["to"])
    wanted = runs(other.home.lake, name)
    assert [run["slice"] for run in wanted if run["is_published"]] == DAYS
    assert runs(str(shop.lake), name) == wanted
    assert _rows(str(shop.lake), name) == _rows(other.home.lake, name)
    assert not list(shop.request_context(name).ledger.view().open_requests())
    airflow.place.hindcast("verify", name)


def _rows(lake: str, name: str) -> list[str]:
    return sorted(str(row) for row in published_table(lake, name).drop_columns(["attempt_id"]).to_pylist())
