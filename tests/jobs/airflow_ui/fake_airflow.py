"""Stands in for Airflow's API, which the pages call as the user."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

RUN = "manual__2024-02-01T00:00:00+00:00"


@dataclass(slots=True, kw_only=True)
class FakeAirflow:
    """Airflow's API for any user. It records the calls that change something, and `conf` of the newest DAG run.

    `refuses` maps a call to the HTTP status with which it is refused. `on_trigger` is what a DAG run does, `run_state`
    the state of the DAG runs of the pages, and `xcoms` has their values by task and key.
    """

    calls: list[tuple[str, ...]] = field(default_factory=list)
    conf: Mapping[str, Any] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    under_way: set[str] = field(default_factory=set)
    refuses: dict[str, int] = field(default_factory=dict)
    run_state: str = "running"
    xcoms: dict[tuple[str, str], Any] = field(default_factory=dict)
    on_trigger: Callable[[str, Mapping[str, Any]], None] = field(default=lambda _dag_id, _conf: None)

    def __call__(self, token: str) -> Self:
        assert isinstance(token, str)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None: ...

    def _refuse(self, name: str) -> None:
        from jobs.airflow_ui.decide.airflow import Refused

        if name in self.refuses:
            raise Refused(self.refuses[name], "no <b>")

    async def is_paused(self, dag_id: str) -> bool:
        return dag_id in self.paused

    async def unpause(self, dag_id: str) -> None:
        self.calls.append(("unpause", dag_id))
        self.paused.discard(dag_id)

    async def is_under_way(self, dag_id: str, run_id: str) -> bool:
        assert dag_id
        return run_id in self.under_way

    async def trigger(self, dag_id: str, conf: Mapping[str, Any], *, run_id: str | None = None) -> str:
        assert run_id is None or run_id.startswith("manual__")
        self._refuse("trigger")
        self.calls.append(("trigger", dag_id))
        self.conf = dict(conf)
        self.on_trigger(dag_id, conf)
        return RUN

    async def state(self, dag_id: str, run_id: str) -> str | None:
        assert run_id
        return "failed" if dag_id.startswith("backfill") else self.run_state

    async def clear_gate(self, dag_id: str, run_id: str) -> None:
        self._refuse("clear_gate")
        self.calls.append(("clear_gate", dag_id, run_id))

    async def run(self, dag_id: str, run_id: str) -> Mapping[str, Any]:
        assert (dag_id.partition("_")[2], run_id) == ("sales", RUN)
        self._refuse("run")
        return {"state": self.run_state, "conf": dict(self.conf), "triggering_user_name": "ines", "start_date": None}

    async def tasks(self, dag_id: str, run_id: str) -> Mapping[str, str | None]:
        assert dag_id + run_id
        ended = self.run_state if self.run_state in {"success", "failed"} else None
        return {"plan": None, "decide": ended, "clear_gate": "skipped" if ended == "success" else None}

    async def xcom(self, dag_id: str, run_id: str, *, task_id: str, key: str = "return_value") -> Any:  # noqa: ANN401
        assert dag_id + run_id
        return self.xcoms.get((task_id, key))
