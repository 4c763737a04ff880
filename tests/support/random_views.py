"""Random views of a pipeline for tests of comparisons: attempts in one Delta table, and a ledger that has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from jobs.lake.filtered_files import statistics_digest
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.pipeline.files import parse_pipeline, pipeline_to_json
from jobs.reading.stored_rows import STATISTICS_DIGEST, run_attempt
from jobs.runs import Counts, LogCoordinates, RunResult, Slice, Verdict
from tests.support.plain_rows import named_rows
from windowlib.columnar.row_identity import RowIdentity
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

DAY_MS = 86_400_000
NAME = "views"
Row = dict[str, Any]


def spec_text(keys: Sequence[str], outputs: Sequence[str]) -> str:
    """The text of a pipeline file with these key columns and aggregates."""
    aggregates = ", ".join(f"{name}: {{sum: amount}}" for name in outputs)
    return (
        f"pipeline: {NAME}\nlog: {{table: event_logs/x, key: [{', '.join(keys)}], "
        "event_time: {column: at_ms, unit: ms}, slice: {by: day}}\nwatermark: {kind: ascending}\n"
        f"windows: {{tumbling: {{size: 1d}}}}\naggregates: {{{aggregates}}}\n"
    )


@dataclass
class Views:
    """Writes attempts, and builds the ledger's view of them. `outputs` maps a column to its type."""

    root: Path
    outputs: Mapping[str, str]
    requests: dict[str, Request] = field(default_factory=dict)
    runs: dict[str, StagedRun] = field(default_factory=dict)
    rows: dict[str, dict[str, list[Row]]] = field(default_factory=dict)  # table -> run -> its rows
    _pending: dict[str, list[pa.Table]] = field(default_factory=dict)

    def spec(self, keys: Sequence[str], outputs: Sequence[str]) -> str:
        """Add a request with this spec; return its id."""
        request_id = f"{len(self.requests):032x}"
        pipeline = parse_pipeline(spec_text(keys, outputs), source="views.yaml")
        self.requests[request_id] = Request(
            request_id=request_id, kind=RequestKind.RANGE, from_ms=None, to_ms=None, who="me", reason="",
            spec_json=pipeline_to_json(pipeline), spec_fingerprint=f"{'/'.join(keys)} {'/'.join(outputs)}",
            is_fresh=False, opened_at_ms=0, opened_seq=0,
        )  # fmt: skip
        return request_id

    def run(self, day: int, request_id: str, *rows: tuple[Table, Sequence[Row]]) -> str:
        """Add a run of a day with these rows; return its id. Equal content gives equal digests."""
        run_id = attempt_id = f"{len(self.runs):032x}"
        one = Slice(slice_id=f"2024-01-{day + 1:02d}", start_ms=day * DAY_MS, end_ms=(day + 1) * DAY_MS)
        place = {"slice_id": one.slice_id, "attempt_id": attempt_id, "run_id": run_id}
        digests = {}
        for table, given in rows:
            digests[table.name] = self._add(table, given, place)
            self.rows.setdefault(table.name, {})[run_id] = [{**row, "slice_id": one.slice_id} for row in given]
        self.runs[run_id] = StagedRun(
            result=RunResult(
                slice=one, run_id=run_id, attempt_id=attempt_id,
                spec_fingerprint=self.requests[request_id].spec_fingerprint, input_fingerprint="", state_before="",
                state_after="", digests=digests,
                counts=Counts(read=0, assigned=0, late=0, unassigned=0, invalid=0, panes=0), watermark_ms=None,
                log=LogCoordinates(table_id="", version=0, commits=(), files=0, records=0, bytes=0), seconds=0,
                verdict=Verdict.PASS,
            ),
            request_id=request_id, seq=1, at_ms=0, is_chain_start=False, checks_attempt_id=attempt_id,
        )  # fmt: skip
        return run_id

    def commit(self) -> None:
        """Write all attempts, one commit per table."""
        for name, parts in self._pending.items():
            place = self.root / NAME / name
            write_deltalake(
                place, pa.concat_tables(parts, promote_options="default"), mode="append", schema_mode="merge",
                partition_by=["slice_id", "attempt_id"],
            )  # fmt: skip
        self._pending = {}

    def seal_statistics(self) -> None:
        """Store the digest of the statistics of each run, as a replay does. `commit` does not, like an old ledger."""
        place = str(self.root / NAME / tables.WINDOW_OUTPUTS)
        for run_id, run in self.runs.items():
            digest = {STATISTICS_DIGEST: statistics_digest(place, run_attempt(run))}
            self.runs[run_id] = replace(run, result=replace(run.result, extras=digest))

    def view(self, published: Mapping[str, str] | None = None) -> LedgerView:
        """Return the ledger's view; `published` maps slice ids to run ids."""
        slices = {run.result.slice.slice_id: run.result.slice for run in self.runs.values()}
        return LedgerView(
            version=7, requests=self.requests, runs=self.runs, published=dict(sorted((published or {}).items())),
            slices=dict(sorted(slices.items())),
        )  # fmt: skip

    def _add(self, table: Table, rows: Sequence[Row], place: Mapping[str, str]) -> str:
        identity = RowIdentity(table)
        named: dict[str, pa.Array] = named_rows(table, rows)
        ids = identity.ids(named)
        named |= {tables.ROW_ID: pa.array(ids), tables.ROW_CHECK: pa.array(identity.checks(ids, named))}
        named |= {name: pa.array([value] * len(rows), pa.string()) for name, value in place.items()}
        if rows:
            self._pending.setdefault(table.name, []).append(pa.table(named))
        return IdSum.of_array(ids).digest()


def random_windows(rng: Random, outputs: Sequence[str], *, days: int, values: Sequence[object]) -> list[list[Row]]:
    """Return the rows of window_outputs of each day: windows that fire in several slices, are withdrawn and return."""
    found: list[list[Row]] = [[] for _ in range(days)]
    for key in ["a", "b", None][: rng.randint(1, 3)]:
        for number in range(rng.randint(0, 4)):
            start = None if number == 3 else number * DAY_MS * 1000
            for day in sorted(rng.sample(range(days), rng.randint(1, days))):
                found[day] += _firings(rng, {"key": key, "window_start": start}, outputs, values=values)
    return found


def _firings(rng: Random, window: Row, outputs: Sequence[str], *, values: Sequence[object]) -> list[Row]:
    rows: list[Row] = []
    start = window["window_start"]
    for index in range(rng.choice([1, 1, 2, 3])):
        kind = rng.choice(["result"] * 4 + ["superseded", "retraction"])
        mode = rng.choice(["accumulating"] * 3 + ["discarding"])
        for _ in range(rng.choice([1, 1, 1, 2])):
            row = {
                **window, "window_end": None if start is None else start + 1000 * DAY_MS, "pane_index": index,
                "timing": "ON_TIME", "is_first": True, "is_last": False, "mode": mode, "kind": kind,
                "record_count": rng.choice([1, 2]), "watermark_ms": rng.choice([5, 5, 6]), "fired_rank": index,
            }  # fmt: skip
            rows.append(row | {name: rng.choice(values) for name in outputs})
    return rows
