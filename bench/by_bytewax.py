"""Bytewax as a contestant, if it is in the cache of the benches (`make bench-bytewax`): `fold_window` in one worker.

Its watermark also advances with the clock of the machine. So it waits longer than any run takes, and closes the windows
at the end of the input; no record is late.
"""

import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.checksums import COLUMNS, checksum
from bench.contestant import CannotTakePart, Contestant, Job
from bench.samples import Checksum
from bench.workloads import make_events

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
WAIT: Final = timedelta(days=2)
MOST_RECORDS: Final = 200_000
"""Its cost for a record grows with the number of open windows."""

Totals = tuple[int, int, int, int]


class Windows(Contestant):
    """Tumbling windows over records in memory."""

    def prepare(self, job: Job) -> None:
        place = Path(job.options["cache"]) / "bytewax"
        if not place.is_dir():
            raise CannotTakePart("It is not in the cache of the benches; `make bench-bytewax` fetches it.")
        if job.workload.kind != "tumbling" or job.records > MOST_RECORDS:
            raise CannotTakePart(f"It takes part in tumbling windows of at most {MOST_RECORDS:,} records.")
        sys.path.append(str(place))
        self._size_ms = job.workload.size
        events = make_events(job.workload, job.records, seed=job.seed)
        columns = (events.key, events.at_ms, events.value)
        self._records = [
            (str(key), (EPOCH + timedelta(milliseconds=at_ms), value))
            for key, at_ms, value in zip(*(one.tolist() for one in columns), strict=True)
        ]
        self._found: list[Any] = []

    def run(self) -> None:
        op, windowing, testing, dataflow = (
            _bytewax(name) for name in ("operators", "operators.windowing", "testing", "dataflow")
        )
        self._found = []
        flow = dataflow.Dataflow("bench")
        records = op.input("records", flow, testing.TestingSource(self._records, batch_size=1_000))
        clock = windowing.EventClock(lambda record: record[0], wait_for_system_duration=WAIT)
        windower = windowing.TumblingWindower(length=timedelta(milliseconds=self._size_ms), align_to=EPOCH)
        windows = windowing.fold_window("windows", records, clock, windower, _nothing, _with, _merged)
        op.output("rows", windows.down, testing.TestingSink(self._found))
        testing.run_main(flow)

    def check(self) -> Checksum:
        rows = [
            (int(key), number * self._size_ms, (number + 1) * self._size_ms, *totals)
            for key, (number, totals) in self._found
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))
        return checksum([pa.table({name: columns[:, place].copy() for place, name in enumerate(COLUMNS)})])


def _bytewax(name: str) -> Any:  # noqa: ANN401 - it is not installed where types are checked
    return import_module(f"bytewax.{name}")


def _nothing() -> Totals:
    return 0, 0, sys.maxsize, -sys.maxsize


def _with(totals: Totals, record: tuple[datetime, int]) -> Totals:
    records, total, low, high = totals
    value = record[1]
    return records + 1, total + value, min(low, value), max(high, value)


def _merged(one: Totals, other: Totals) -> Totals:
    return one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3])
