"""What a waiting DAG run watches: the signs that its decision may be another one now. Watching reads no file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from jobs.lake.delta_tables import is_newest
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.log import LogFormat
from jobs.planning.readiness import Waiting, marker_exists
from jobs.planning.request_context import RequestContext
from jobs.reading.log_places import place_at
from jobs.storage import is_remote
from windowlib.errors import RequestError

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


class Watch(BaseModel):
    """The signs. As JSON it is stored by Airflow for the process that watches.

    Attributes:
        wake_ms: the decision is made again at this time in any case: when a condition of the clock or a timeout may
            change it, and at least every hour, because the pipeline file may have changed. The trigger waits no longer
            than an hour, whatever the clock shows.
        log: the place and the version of the event log that the decision was made with; None: not watched.
        log_format: the format of the event log.
        log_from_ms: changes of the log count from this time on. The ledger of another pipeline is a log with leases.
        ledger: the same of the ledger.
        ledger_from_ms: changes of the ledger count from this time on. Requests of others renew their leases in it, and
            while data is awaited a decision each minute is enough.
        markers: the places of the marker files that do not exist yet.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    wake_ms: int
    log: tuple[str, int] | None = None
    log_format: LogFormat = "delta"
    log_from_ms: int = 0
    ledger: tuple[str, int] | None = None
    ledger_from_ms: int = 0
    markers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the signs as plain data; `read_watch` is the inverse."""
        return self.model_dump(mode="json")


Sign = Literal["clock", "log", "marker", "ledger"]


def watch_log(work: RequestContext, view: LedgerView, waiting: Waiting, *, version: int) -> Watch:
    """Return the signs that a slice may be complete now. `version` is that of the log in the decision to wait.

    Nothing here can see the events of an asset, so with `ready.producer` the decision is made again every minute.
    """
    now_ms = work.ledger.now_ms()
    again_ms = now_ms + (MINUTE_MS if waiting.producers else HOUR_MS)
    upstream = work.pipeline.log.pipeline
    log = work.lake.event_log(work.pipeline) if upstream is None else work.lake.ledger(upstream)
    return Watch(
        wake_ms=again_ms if waiting.next_ms is None else min(again_ms, waiting.next_ms),
        log=(_anywhere(log), version),
        log_format=work.pipeline.log.format,
        log_from_ms=0 if upstream is None else now_ms + MINUTE_MS,
        ledger=_ledger(work, view),
        ledger_from_ms=now_ms + MINUTE_MS,
        markers=tuple(_anywhere(work.lake.below(marker)) for marker in waiting.markers),
    )


def watch_ledger(work: RequestContext, view: LedgerView) -> Watch:
    """Return the signs that another request has ended: a change of the ledger after half a minute, or a whole minute.

    A lease that ends because its process has died is no event of the ledger. A process that works renews its lease
    every 20 s, and each decision is a start of the task.
    """
    now_ms = work.ledger.now_ms()
    return Watch(wake_ms=now_ms + MINUTE_MS, ledger=_ledger(work, view), ledger_from_ms=now_ms + MINUTE_MS // 2)


def sign_of(watch: Watch, *, now_ms: int) -> Sign | None:
    """Return a sign that a decision may be another one now; None if there is none yet."""
    if now_ms >= watch.wake_ms:
        return "clock"
    log = watch.log if now_ms >= watch.log_from_ms else None
    if log is not None and not place_at(log[0], watch.log_format).is_newest(log[1]):
        return "log"
    if any(map(marker_exists, watch.markers)):
        return "marker"
    if watch.ledger is not None and now_ms >= watch.ledger_from_ms and not is_newest(*watch.ledger):
        return "ledger"
    return None


def read_watch(data: Mapping[str, Any]) -> Watch:
    """Read the plain data of a watch.

    Raises RequestError: the data is of another version of Hindcast, or is no watch.
    """
    try:
        return Watch.model_validate_json(json.dumps(data))
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors(include_url=False))
        raise RequestError(
            f"the signs that a DAG run waits for cannot be read ({wrong}); clear its plan task, which decides again"
        ) from error


def _ledger(work: RequestContext, view: LedgerView) -> tuple[str, int] | None:
    """Return the place and the version of the ledger; None if it has no event, because its table may not exist."""
    return (_anywhere(work.ledger.uri), view.version) if view.version else None


def _anywhere(place: str) -> str:
    """Return a place as a process with another working directory can name it."""
    return place if is_remote(place) else str(Path(place).resolve())
