"""A small shop for the tests of the interface: a log of some orders a day, and four pipelines.

`orders` is replayed every minute and waits for a day without records. `checked` has a check. `plain` has neither.
`repaired` is replayed every minute, and its late records are proposed for a repair.
"""

import json
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.pipeline.files import load_pipeline
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.wall_clock import now_ms
from tests.support.delta_logs import commits_of, track_rows

SCHEMA = pa.schema(
    [
        ("order_id", pa.string()),
        ("customer", pa.string()),
        ("ordered_at", pa.timestamp("us", "UTC")),
        ("amount", pa.float64()),
        ("ingest_date", pa.date32()),
    ]
)
LOG = """
log:
  table: event_logs/orders
  key: [customer]
  event_time: ordered_at
  record_id: order_id
  slice: {by: ingest_date}
  order: commits
watermark: {kind: bounded, out_of_orderness: 1h}
"""
ORDERS = f"""
pipeline: orders
{LOG.replace("  order:", "  ready: {min_records: 10}" + chr(10) + "  order:")}
windows: {{tumbling: {{size: 1d}}}}
aggregates: {{orders: {{count: {{}}}}, spent: {{sum: amount}}}}
restate: {{mode: propose}}
schedule: "* * * * *"
"""
CHECKED = f"""
pipeline: checked
{LOG}
windows: {{tumbling: {{size: 1d}}}}
aggregates: {{orders: {{count: {{}}}}}}
quality: {{suite: expectations/checked.json, fail_on: critical}}
"""
PLAIN = f"""
pipeline: plain
{LOG}
windows: {{tumbling: {{size: 1d}}}}
aggregates: {{orders: {{count: {{}}}}}}
"""
REPAIRED = f"""
pipeline: repaired
{LOG}
windows: {{tumbling: {{size: 1d}}}}
aggregates: {{orders: {{count: {{}}}}}}
repair: {{mode: propose, at_most_age: 30d}}
schedule: "* * * * *"
"""
NAMELESS = {
    "type": "expect_column_values_to_be_between",
    "kwargs": {"column": "invalid_share", "max_value": 0.1},
    "severity": "critical",
    "description": "Share of orders without a customer.",
}


def days_ago(days: int) -> str:
    """Return the date of some days before today, in UTC."""
    return str(datetime.fromtimestamp(now_ms() / 1000, tz=UTC).date() - timedelta(days=days))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A directory with the lake, the pipeline files and the suite of the shop."""

    root: Path

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def pipelines(self) -> Path:
        return self.root / "pipelines"

    @property
    def log(self) -> Path:
        return self.lake / "event_logs" / "orders"

    def open(self) -> None:
        """Write the files."""
        self.pipelines.mkdir(parents=True)
        suite = {"run": {"name": "checked.run", "expectations": [NAMELESS]}}
        texts = {"orders": ORDERS, "checked": CHECKED, "plain": PLAIN, "repaired": REPAIRED}
        for name, text in texts.items():
            (self.pipelines / f"{name}.yaml").write_text(text, encoding="utf-8")
        place = self.root / "expectations" / "checked.json"
        place.parent.mkdir()
        place.write_text(json.dumps(suite), encoding="utf-8")

    def request_context(self, name: str) -> RequestContext:
        """Return the context of a pipeline, to read its ledger."""
        return open_request_context(load_pipeline(name, self.pipelines), Lake(root=str(self.lake)), now_ms=now_ms)

    def published(self, name: str) -> dict[str, str]:
        """Return the slices that readers of a pipeline see: slice -> run."""
        return dict(self.request_context(name).ledger.view().published)

    def append(self, day: str, orders: int, *, first: int = 0, nameless: int = 0, ordered: str = "") -> None:
        """Append a commit with one order every ten minutes of a day. The last ones have no customer.

        The orders arrive on `day`. They are ordered on the day `ordered`; an empty text stands for `day`.
        """
        start = datetime.fromisoformat(f"{ordered or day}T08:00:00+00:00")
        rows = [
            {
                "order_id": f"{day}/{number}",
                "customer": None if number >= first + orders - nameless else "abc"[number % 3],
                "ordered_at": start + timedelta(minutes=10 * number),
                "amount": 20.0 + number,
                "ingest_date": date.fromisoformat(day),
            }
            for number in range(first, first + orders)
        ]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        untracked = self.root / "untracked"
        write_deltalake(untracked, table, mode="append", partition_by=["ingest_date"])
        self._track(untracked)

    def _track(self, untracked: Path) -> None:
        """Add the newest commit of a table to the log, with row tracking, which deltalake does not write."""
        with tempfile.TemporaryDirectory() as directory:
            tracked = shutil.copytree(untracked, Path(directory) / "tracked")
            track_rows(tracked)
            for file in tracked.glob("*/*.parquet"):
                (self.log / file.parent.name).mkdir(parents=True, exist_ok=True)
                shutil.copy(file, self.log / file.parent.name)
            (self.log / "_delta_log").mkdir(exist_ok=True)
            commit = commits_of(tracked)[-1]
            shutil.copy(commit, commit_to := self.log / "_delta_log" / f"{commit.name}.new")
            commit_to.rename(commit_to.with_suffix(""))
