"""The operator of Airflow in a simulated year: deletes, clears and marks DAG runs, loses or restores the database."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Final

from jobs.orchestration.dag_leases import stop
from tests.jobs.dag_factory.year.world import REPLAYS, World
from tests.support.simulated_airflow import Run

ACTS: Final = 0.04
"""The chance that the operator does something, in each hour that is played."""


def operate(world: World) -> None:
    """Draw whether the operator does something, and what."""
    if not world.is_quiet and world.happens(world.rate * ACTS):
        name = world.chance.choice(tuple(_ACTS))
        is_done = _ACTS[name](world)
        world.drawn[f"operator: {name}"] += is_done
        if is_done:
            world.cancelled_ms = world.truth.ms


def _lose(world: World) -> bool:
    """Lose the DAG runs of a database. The newest time of the schedule gets its DAG run again."""
    world.airflow.runs[:] = _of_other_dags(world)
    world.made_ms["replay_sales"] = 0
    return True


def _back_up(world: World) -> bool:
    runs = [_copied(run) for run in world.airflow.runs if run.dag_id in REPLAYS]
    world.backup = runs, world.made_ms.get("replay_sales", 0)
    return True


def _restore(world: World) -> bool:
    """Go on with the DAG runs of a back-up, in their states of then."""
    if world.backup is None:
        return False
    runs, world.made_ms["replay_sales"] = world.backup
    world.airflow.runs[:] = [*_of_other_dags(world), *map(_copied, runs)]
    return True


def _of_other_dags(world: World) -> list[Run]:
    """Return the DAG runs of alerts, decisions and clean-ups, which the models of these count."""
    return [run for run in world.airflow.runs if run.dag_id not in REPLAYS]


def _delete(world: World) -> bool:
    run = _drawn_run(world)
    if run is not None:
        world.airflow.runs.remove(run)
    return run is not None


def _clear(world: World) -> bool:
    run = _drawn_run(world)
    if run is not None:
        world.airflow.clear(run.dag_id, run.run_id)
    return run is not None


def _fail(world: World) -> bool:
    """Mark a run as failed. The listener of the plugin may not reach the lake."""
    run = _drawn_run(world)
    if run is None:
        return False
    run.state, run.deferred = "failed", None
    if world.happens(0.5):
        world.store.following = None
        stop(world.work(), (run.dag_id, run.run_id), who="olga")
    return True


def _succeed(world: World) -> bool:
    run = _drawn_run(world)
    if run is not None:
        run.state, run.deferred = "success", None
    return run is not None


def _skip_task(world: World) -> bool:
    """Mark the task that waits or has failed as a success, so that the run goes on after it."""
    run = _drawn_run(world)
    if run is None or run.state == "success":
        return False
    run.state, run.deferred, run.task, run.tries = "running", None, run.task + 1, 0
    return True


_ACTS: Final[Mapping[str, Callable[[World], bool]]] = {
    "database lost": _lose, "backed up": _back_up, "restored": _restore, "run deleted": _delete,
    "run cleared": _clear, "run marked failed": _fail, "run marked success": _succeed,
    "task marked success": _skip_task,
}  # fmt: skip


def _drawn_run(world: World) -> Run | None:
    """Return one of the newest replaying runs."""
    runs = [run for run in world.airflow.runs if run.dag_id in REPLAYS][-5:]
    return world.chance.choice(runs) if runs else None


def _copied(run: Run) -> Run:
    twin = copy(run)
    twin.conf, twin.pushed, twin.results = dict(run.conf), dict(run.pushed), dict(run.results)
    return twin
