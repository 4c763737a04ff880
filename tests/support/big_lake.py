"""A lake with thousands of published slices and many late records, made directly, without a replay."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from jobs.engine.fingerprints import fingerprint, spec_fingerprint
from jobs.lake.lake import Lake
from jobs.lake.store import ensure_table
from jobs.ledger.events import EventKind, LedgerEvent, checked_event, slice_columns, staged_event
from jobs.ledger.ledger import Ledger
from jobs.pipeline.files import pipeline_to_json
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import EMPTY_STATE, VERDICTS, Counts, LogCoordinates, RunResult
from tests.support.report_rows import checks_of, day_slice, ms
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.row_identity import RowIdentity
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

READ = 900
RECORD = tables.late_records({"type": "struct", "fields": [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("id", "string"), ("key", "string"), ("amount", "long"), ("note", "string"))
]})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BigLake:
    """How many slices, how many late records each of them has, and the first day."""

    slices: int
    late: int
    first: date = date(1996, 1, 1)

    def fill(self, lake: Lake, pipeline: Pipeline) -> None:
        """Write the late records and the ledger of a pipeline, in a few commits. The last request stays open."""
        digests = self._write_late(lake, pipeline)
        ledger = Ledger(lake.ledger(pipeline.name), now_ms=lambda: ms(self.first))
        for start in range(0, self.slices, 1_000):
            numbers = range(start, min(start + 1_000, self.slices))
            events = list(self._events(pipeline, numbers, digests, is_published=numbers[-1] + 1 < self.slices))
            ledger.write(lambda _view, found=events: found)  # type: ignore[misc]

    def slice_id(self, number: int) -> str:
        """Return the id of a slice, counted from 0."""
        return (self.first + timedelta(days=number)).isoformat()

    def _events(
        self, pipeline: Pipeline, numbers: range, digests: list[str], *, is_published: bool
    ) -> Iterator[LedgerEvent]:
        request_id, spec = f"{numbers[0]:032x}", spec_fingerprint(pipeline)
        first, last = (day_slice(self.first + timedelta(days=number)) for number in (numbers[0], numbers[-1]))
        yield LedgerEvent(
            kind=EventKind.REQUESTED,
            request_id=request_id,
            who="ines",
            reason="a long history",
            spec_fingerprint=spec,
            details={
                "kind": "range",
                "from_ms": first.start_ms,
                "to_ms": last.end_ms,
                "fresh": False,
                "spec": pipeline_to_json(pipeline),
            },
        )
        results = [self._result(number, spec, digests[number]) for number in numbers]
        for number, result in zip(numbers, results, strict=True):
            yield staged_event(request_id, result, is_chain_start=number == 0)
            yield checked_event(request_id, result)
        yield LedgerEvent(kind=EventKind.COMPLETED, request_id=request_id)
        for result in results if is_published else ():
            yield LedgerEvent(
                kind=EventKind.PUBLISHED,
                request_id=request_id,
                **slice_columns(result.slice),
                run_id=result.run_id,
                attempt_id=result.attempt_id,
                who="ines",
            )

    def _result(self, number: int, spec: str, digest: str) -> RunResult:
        one = day_slice(self.first + timedelta(days=number))
        invalid = 400 if number == self.slices - 1 else number % 7
        counts = Counts(
            read=READ + self.late, assigned=READ - invalid, late=self.late, unassigned=0, invalid=invalid, panes=0
        )
        checks = checks_of(one.slice_id, counts)
        return RunResult(
            slice=one,
            run_id=f"{number:032x}"[::-1],
            attempt_id=f"{number:032x}",
            spec_fingerprint=spec,
            input_fingerprint=fingerprint(number),
            state_before=EMPTY_STATE if number == 0 else fingerprint(["state", number - 1]),
            state_after=fingerprint(["state", number]),
            digests={tables.LATE_RECORDS: digest},
            counts=counts,
            watermark_ms=one.end_ms,
            log=LogCoordinates(table_id="t", version=number, commits=(number,), files=1, records=counts.read, bytes=1),
            seconds=1.5,
            verdict=max((check.verdict for check in checks), key=VERDICTS.index),
            checks=checks,
        )

    def _write_late(self, lake: Lake, pipeline: Pipeline) -> list[str]:
        """Write the late records of all slices; return the digest of each slice."""
        uri = lake.table(pipeline.name, RECORD.name)
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        ensure_table(uri, RECORD)
        rows = self._late_rows()
        identified, _ = RowIdentity(RECORD).identified(rows)
        numbers = np.repeat(np.arange(self.slices), self.late)
        ids = identified[tables.ROW_ID].to_numpy()
        digests = [
            IdSum.of_array(ids[number * self.late : (number + 1) * self.late]).digest() for number in range(self.slices)
        ]
        for start in range(0, self.slices, 2_000):
            part = slice(start * self.late, min(start + 2_000, self.slices) * self.late)
            placed = identified.slice(part.start, part.stop - part.start)
            own = numbers[part].tolist()
            placed = placed.append_column("slice_id", pa.array([self.slice_id(number) for number in own]))
            placed = placed.append_column("attempt_id", pa.array([f"{number:032x}" for number in own]))
            placed = placed.append_column("run_id", pa.array([f"{number:032x}"[::-1] for number in own]))
            write_deltalake(uri, placed, mode="append")
        return digests

    def _late_rows(self) -> pa.Table:
        count = self.slices * self.late
        numbers = np.arange(count)
        starts = ms(self.first) + numbers // self.late * 86_400_000
        text = pa.array([f"record {number}" for number in range(count)])
        record = pa.StructArray.from_arrays(
            [text, pa.array(np.char.mod("k%d", numbers % 50)), pa.array(numbers), pa.array(["<b>"] * count)],
            ["id", "key", "amount", "note"],
        ).cast(arrow_type(RECORD.coordinates["record"]))
        values = {
            "record_hash": pa.array(numbers * 7_919),
            "event_time_ms": pa.array(starts),
            "missed_windows": pa.nulls(count, arrow_type(RECORD.content["missed_windows"])),
            "missed_all": pa.array(np.ones(count, dtype=np.bool_)),
            "watermark_ms": pa.array(starts + 7_200_000),
            "late_by_ms": pa.array(numbers % 5_000_000 + 1),
            "reason": pa.array(["past_cleanup"] * count),
            "record": record,
            "record_id": text,
            "rank": pa.array(numbers % self.late),
        }
        return pa.table({name: values[name] for name in RECORD.columns()})
