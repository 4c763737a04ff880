"""The order of a DAG run: the plain data that its plan task passes to all later tasks through XCom.

Only this module turns an order into JSON and back.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from jobs.lake.lake import Lake
from jobs.pipeline.files import load_file
from jobs.plain_text import shortened
from jobs.planning.request_context import Opened, RequestContext, open_request_context
from windowlib.errors import RequestError


class Order(BaseModel):
    """The work of one DAG run, from the plan task to all later tasks.

    As JSON it is the XCom of the plan task, and the file that the Spark job reads.

    Attributes:
        action: always `replay`. The plan task ends without an order if there is nothing to replay.
        why: a sentence that tells which slice the chain continues from.
        warnings: sentences that the plan task has logged.
        pipeline: the path of the pipeline file.
        lake: the root of the lake.
        request_id: the request in the ledger.
        lease_id: the lease of the request, which the tasks of a DAG run share.
        slices: slice ids, contiguous, oldest first. Current ones are included.
        who: recorded in the ledger with the publication.
        publish: whether the publish task publishes the request. If not, the request stays staged.
        records: about how many records the replay reads; None if unknown.
        seconds: how long the replay takes according to past runs; None if there are none.
        outline: lines that tell which slices are replayed, and why.
        changes: sentences that tell which published slices have changed, and what becomes of them.
        proposal: the request that proposes to restate them; empty if there is none.
        given_up: sentences on slices that are published although they have not arrived (`then: publish_empty`).
        waits: a sentence on the slice that is not complete yet; empty if there is none.
        follow_up: the id of the DAG run that waits for this slice; None if there is none.
        stops_on_fail: whether the replay ends at a chunk with a failed check, as that of the schedule. A person who
            continues a request of the schedule wants the slices after it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    action: Literal["replay"] = "replay"
    why: str = ""
    warnings: list[str] = []
    pipeline: str
    lake: str
    request_id: str
    lease_id: str
    slices: list[str]
    who: str
    publish: bool
    records: int | None = None
    seconds: float | None = None
    outline: list[str] = []
    changes: list[str] = []
    proposal: str = ""
    given_up: list[str] = []
    waits: str = ""
    follow_up: str | None = None
    stops_on_fail: bool = False

    @property
    def opened(self) -> Opened:
        return Opened(request_id=self.request_id, lease_id=self.lease_id)

    def context(self, now_ms: Callable[[], int]) -> RequestContext:
        """Return the context of its pipeline file in its lake; raises as `load_file`."""
        return open_request_context(load_file(Path(self.pipeline)), Lake(root=self.lake), now_ms=now_ms)

    def to_json(self) -> dict[str, Any]:
        """Return the order as plain data; `read_order` is the inverse."""
        return self.model_dump(mode="json")


def read_order(given: str | Mapping[str, Any]) -> Order:
    """Read an order: a JSON text (the file of the Spark job) or plain data (the XCom of the plan task).

    Raises RequestError: the input is not an order.
    """
    advice = "it must be what the plan task returned"
    try:
        data = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise RequestError(f"the order is not JSON: {error}; {advice}") from error
    if not isinstance(data, Mapping):
        raise RequestError(f"the order is not a JSON object: {shortened(str(data))}; {advice}")
    try:
        return Order.model_validate(data)
    except ValidationError as error:
        wrong = [
            (".".join(map(str, problem["loc"])), problem["type"], problem["msg"])
            for problem in error.errors(include_url=False)
        ]
        missing = sorted(path for path, kind, _ in wrong if kind == "missing")
        problems = [f"it lacks {', '.join(missing)}"] if missing else []
        problems += [f"{path}: {message}" for path, kind, message in wrong if kind != "missing"]
        raise RequestError(
            f"the order is not valid: {'; '.join(problems)}; {advice}. Found {shortened(str(data))}"
        ) from error
