"""A lake with a small log of days, whose slices are replayed in this process, without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.pipeline.slices import slices_between
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context
from jobs.readers import published_table
from jobs.replay.orders import ReplayOrder
from jobs.replay.replayer import replay_chunk
from jobs.replay.restart import restart_before
from jobs.replay.sizes import Sizes
from jobs.runs import RunResult, Slice
from tests.support.no_spark import threads
from tests.support.repair_model import DAY_MS, FIRST, LogRecord, Spec, day_start_ms, day_text
from tests.support.replays import NOW_MS

SIZES = Sizes(local_records=10**9, full_state_rows=0, checkpoint_parts=3)
"""States are stored in up to three parts."""
SCHEMA = pa.schema([(name, pa.int64()) for name in LogRecord._fields] + [("day", pa.date32())])
SPEC = Spec("tumbling: {size: 30h}", "6h", 0)
WHO = "a test"
_SESSION = threads()


def replay(order: ReplayOrder) -> list[RunResult]:
    """Replay a chunk in this process."""
    return list(replay_chunk(_SESSION, order, sizes=SIZES))


@dataclass
class SmallLake:
    """The lake. `now_ms` is its clock. `spec` and `retention` are the present pipeline file."""

    root: Path
    spec: Spec = SPEC
    retention: RetentionGrammar | None = None
    now_ms: int = NOW_MS
    days: int = 0
    sequence: int = 0

    def work(self) -> RequestContext:
        """Return the context of a new process. All others are dead."""
        pipeline = self.spec.pipeline.model_copy(update={"retention": self.retention})
        work = open_request_context(pipeline, Lake(root=str(self.root)), now_ms=lambda: self.now_ms)
        return replace(work, is_alive=lambda _holder: False)

    def view(self) -> LedgerView:
        return self.work().ledger.view()

    def slices(self, first: int, last: int) -> Sequence[Slice]:
        """Return the slices of days, both included."""
        return slices_between(self.spec.pipeline, day_start_ms(first), day_start_ms(last + 1))

    def append(self, rng: Random, day: int | None = None) -> None:
        """Append some records to a day; to a new one by default."""
        if day is None:
            day, self.days = self.days, self.days + 1
        rows: list[Mapping[str, Any]] = []
        for _ in range(rng.randrange(2, 6)):
            at_ms = day_start_ms(day) + rng.randrange(-DAY_MS // 2, DAY_MS)
            record = LogRecord(rng.randrange(3), at_ms, rng.randrange(1, 10), self.sequence)
            rows.append(record._asdict() | {"day": FIRST.fromisoformat(day_text(day))})
            self.sequence += 1
        table = pa.Table.from_pylist(rows, SCHEMA)
        write_deltalake(str(self.root / "log"), table, mode="append", partition_by=["day"])

    def run(
        self, first: int, last: int, *, publish: bool = True, chunk: int = 2, warms_up: bool = False
    ) -> RequestOutcome:
        """Replay days, both included, as `hindcast run --replace` does."""
        slices = self.slices(first, last)
        asked = Asked(
            from_ms=slices[0].start_ms,
            to_ms=slices[-1].end_ms,
            who=WHO,
            reason="a test",
            if_open=IfOpen.REPLACE,
            warm_up=restart_before(_SESSION, self.work(), slices) if warms_up else None,
        )
        return run_request(self.work(), asked, replay, staging=Staging(chunk=chunk), publish=publish)

    def rows(self, at: int | None = None) -> list[dict[str, Any]]:
        """Return what readers see, without the places of the rows."""
        table = published_table(str(self.root), "late", at=at)
        return [*table.drop_columns(["attempt_id"]).to_pylist()]
