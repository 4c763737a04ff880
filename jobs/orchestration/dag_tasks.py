"""What the tasks of a DAG do, without Airflow: they ask the ledger, and every answer is plain data for XCom.

The order that `plan` gives, and that goes to the Spark job as its one argument, is a JSON object:

    {"action": "replay" | "wait" | "skip", "why": text, "warnings": [text…],
     "pipeline": path of the pipeline file, "lake": root of the lake,
     "request_id": hex, "lease_id": hex,
     "slices": [slice_id…],                             contiguous, oldest first; current ones included
     "who": text, "publish": true | false}

The last lines are what a replay needs; `wait` and `skip` may have no request_id and no lease_id.
"""

import json
import os
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from jobs.lake.lake import Lake
from jobs.orchestration import scheduling
from jobs.orchestration.requests import Staging
from jobs.pipeline.files import load_file
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound
from jobs.planning.workspace import Asked, Opened
from jobs.wall_clock import now_ms
from windowlib.errors import HindcastError, RequestError

Kind = Literal["replay", "backfill"]
Order = dict[str, Any]

MAX_SLICES_PER_CHUNK = 31
MAX_EVENTS = 50
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "hindcast:dag-run")


class CheckFailed(HindcastError):  # noqa: N818
    """A person has to decide: correct the input and run again, or waive the slices that the message names."""


def plan(kind: Kind, pipeline_file: str, run: Mapping[str, Any]) -> Order:
    """Ask the ledger what one DAG run is to do.

    Args:
        kind: `backfill` for a range by hand; `replay` for the schedule, Airflow's own backfill, a run by hand.
        pipeline_file: path of the file; the chain keeps to its published spec where that differs.
        run: the DAG run as plain data: dag_id, run_id, run_type, clear_number, user, params, and interval_start and
            interval_end (ISO texts or None).

    Raises:
        HindcastError: as for the functions of `jobs.orchestration.scheduling`.
    """
    pipeline, lake = load_file(Path(pipeline_file)), _lake()
    who = f"{run['user'] or run['run_type']} (Airflow)"
    params = run["params"]
    if kind == "backfill":
        decision = scheduling.plan_by_hand(pipeline, lake, asked=_asked(pipeline, run, who), now_ms=now_ms())
    elif run["run_type"] == "backfill":
        start_ms, end_ms = _ms(run["interval_start"]), _ms(run["interval_end"])
        decision = scheduling.plan_backfill_interval(
            pipeline,
            lake,
            start_ms=start_ms,
            end_ms=end_ms,
            now_ms=now_ms(),
            who=who,
            lease_id=request_id(run),
        )
    else:
        # A run by hand has an interval of no width, or none: it looks as far as there is anything.
        until_ms = _ms(run["interval_end"]) if run["run_type"] == "scheduled" else now_ms()
        decision = scheduling.plan_scheduled(
            pipeline, lake, interval_end_ms=until_ms, now_ms=now_ms(), who=who, request_id=request_id(run)
        )
    order = {"pipeline": pipeline_file, "lake": lake.root, "who": who, "publish": bool(params.get("publish", True))}
    return decision | order


def replay(order: Order) -> dict[str, Any]:
    """Replay the slices of an order in a Spark session of this process; the runs, as `hindcast run --json` has them.

    Raises:
        HindcastError: what stops a replay; the same order goes on where it stopped.
    """
    if not order["slices"]:
        return {"runs": []}
    from jobs.replay.replayer import spark_replayer

    with spark_replayer() as replayer:
        return scheduling.replay(
            load_file(Path(order["pipeline"])),
            Lake(root=order["lake"]),
            opened=_opened(order),
            slices=order["slices"],
            replayer=replayer,
            now_ms=now_ms,
            staging=Staging(chunk=MAX_SLICES_PER_CHUNK),
        )


def gate(order: Order) -> str:
    """Let an order pass whose checks passed; a sentence that says so.

    Raises:
        CheckFailed: a check failed or broke; what readers see has not changed.
    """
    pipeline = load_file(Path(order["pipeline"]))
    found = scheduling.gate(pipeline, Lake(root=order["lake"]), opened=_opened(order), now_ms=now_ms())
    if found["passed"]:
        return str(found["why"])
    raise CheckFailed(
        f"{found['why']}. Nothing that readers see has changed. Look at `hindcast report {pipeline.name}`; then "
        f"correct the input and run again, or {found['advice']} and show it with `hindcast publish {pipeline.name}`"
    )


def publish(order: Order) -> dict[str, Any]:
    """Show the request of an order to readers, if it was asked for and may be.

    Returns:
        `{"published", "why", "changed": [slice_id…], "partitions": [key…]}`: the slices whose rows differ from what
        readers saw, and the keys of the asset events for them: one for each, or one for the range if there are many.

    Raises:
        RequestError: publication was refused for a reason that waiting does not mend.
    """
    pipeline = load_file(Path(order["pipeline"]))
    if not order["publish"]:
        scheduling.leave_staged(pipeline, Lake(root=order["lake"]), opened=_opened(order), now_ms=now_ms())
        return {"published": False, "why": "staged, not published, as asked for", "changed": [], "partitions": []}
    found = scheduling.publish_task(
        pipeline, Lake(root=order["lake"]), opened=_opened(order), who=order["who"], now_ms=now_ms()
    )
    if not found["published"] and not found["waits_for"]:
        raise RequestError(
            f"request {order['request_id']} of pipeline {pipeline.name} was not published: {found['why']}"
        )
    changed = found["changed"] if found["published"] else []
    return {
        "published": found["published"],
        "why": found["why"],
        "changed": changed,
        "partitions": changed if len(changed) <= MAX_EVENTS else [f"{changed[0]}..{changed[-1]}"],
    }


def request_id(run: Mapping[str, Any]) -> str:
    """The request of a DAG run: the same for every retry of its tasks, another one when the run is cleared."""
    return uuid.uuid5(_NAMESPACE, f"{run['dag_id']}/{run['run_id']}/{run['clear_number']}").hex


def read_order(text: str) -> Order:
    """The argument of the Spark job.

    Raises:
        RequestError: it is no order.
    """
    try:
        order = json.loads(text)
    except ValueError as error:
        raise RequestError(
            f"the order is not JSON: {error}; the replay task passes what the plan task returned"
        ) from error
    missing = {"pipeline", "lake", "request_id", "lease_id", "slices"} - set(order if isinstance(order, dict) else ())
    if missing:
        raise RequestError(
            f"the order lacks {', '.join(sorted(missing))}: {text[:200]}; it must be what the plan task returned"
        )
    return dict(order)


def _opened(order: Order) -> Opened:
    return Opened(request_id=order["request_id"], lease_id=order["lease_id"])


def _asked(pipeline: Pipeline, run: Mapping[str, Any], who: str) -> Asked:
    params = run["params"]
    return Asked(
        from_ms=parse_bound(pipeline, params["from"]),
        to_ms=parse_bound(pipeline, params["to"]),
        who=who,
        reason=params["reason"],
        is_fresh=bool(params["fresh"]),
        request_id=request_id(run),
    )


def _lake() -> Lake:
    root = os.environ.get("HINDCAST_LAKE")
    if not root:
        raise RequestError(
            "HINDCAST_LAKE is not set for Airflow's tasks; set it to the root of the lake and start Airflow again"
        )
    lake = Lake(root=root)
    lake.check(must_exist=False)
    return lake


def _ms(iso: str | None) -> int:
    if iso is None:
        raise RequestError("this DAG run has no data interval; start it on its schedule, or as a backfill")
    return int(datetime.fromisoformat(iso).timestamp() * 1000)
