"""A lake with one log of any format, whose pipeline is replayed without Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from jobs.lake.log_match import Match
from jobs.orchestration.outcomes import RequestOutcome
from jobs.planning.changed_slices import look_at_log
from jobs.planning.request_context import IfOpen, RequestContext
from jobs.replay.sizes import Sizes
from tests.support.replays import context_in, pipeline_of, run_range

YAML = """
pipeline: clicks
log:
  table: log{form}
  key: [k]
  event_time: {{column: at, unit: ms}}
  slice: {{by: {by}}}
watermark: {{kind: bounded, out_of_orderness: 1h}}
windows: {{tumbling: {{size: 3h}}, allowed_lateness: 30m}}
aggregates: {{n: {{count: {{}}}}, total: {{sum: v}}, texts: {{collect_list: text}}}}
"""
"""A pipeline over three days from 2026-03-01 on. `form` has further lines of `log`, and `by` is the slice column."""
Row = dict[str, Any]
"""A record of its log, with the columns of `SCHEMA`."""
FIRST_MS = 1_772_323_200_000
DAY_MS = 86_400_000
SCHEMA = pa.schema(
    [
        ("k", pa.string()), ("at", pa.int64()), ("v", pa.int32()), ("text", pa.string()), ("seq", pa.int64()),
        ("day", pa.date32()),
    ]
)  # fmt: skip
"""The columns of the records. The first day begins at FIRST_MS."""


DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")


def records(chance: Random, first: int, count: int, day: int | None = None) -> list[Row]:
    """Return records of a day, or of random days, with numbers from `first` on."""
    found = []
    for seq in range(first, first + count):
        own = chance.randrange(3) if day is None else day
        found.append(
            {
                "k": chance.choice(("ann", "bob", None)),
                "at": FIRST_MS + own * DAY_MS + chance.randrange(DAY_MS),
                "v": chance.choice((None, chance.randrange(100))),
                "text": chance.choice((None, "", "é%3A", f"t{chance.randrange(9)}")),
                "seq": seq,
                "day": date.fromisoformat(DAYS[own]),
            }
        )
    return found


@dataclass
class LogShop:
    """A lake, and the further lines of `log` of its pipeline."""

    root: Path
    form: str = ""
    by: str = "day"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def text(self) -> str:
        lines = self.form.splitlines() if "order:" in self.form else [*self.form.splitlines(), "order: [seq]"]
        return YAML.format(form="".join(f"\n  {line}" for line in lines), by=self.by)

    @property
    def work(self) -> RequestContext:
        return context_in(self.root, pipeline_of(self.text))

    def put(self, rows: Sequence[Row], schema: pa.Schema = SCHEMA, *, by: str | None = "day", **options: Any) -> None:  # noqa: ANN401
        """Append records to the log, a Delta table, in one commit."""
        table = pa.Table.from_pylist(list(rows), schema)
        write_deltalake(str(self.log), table, mode="append", partition_by=by and [by], **options)

    def run(self, first: int = 0, end: int = 3) -> RequestOutcome:
        """Replay and publish days, by their numbers from 0; `end` is not included."""
        bounds = f"2026-03-0{1 + first}", f"2026-03-0{1 + end}"
        sizes, is_fresh = Sizes(local_records=10**9), first > 0
        return run_range(
            None, self.root, pipeline_of(self.text), bounds, sizes=sizes, if_open=IfOpen.REPLACE, is_fresh=is_fresh
        )

    def published(self) -> dict[str, str]:
        """Slice -> the published run."""
        return dict(self.work.ledger.view().published)

    def changed(self) -> dict[str, Match]:
        """Published slice -> how the log differs from what its run has read."""
        return {one.slice.slice_id: one.match for one in look_at_log(self.work, self.work.ledger.view()).changed}
