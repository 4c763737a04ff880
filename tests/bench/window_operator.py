"""How fast the record-at-a-time operator and the timers are, in CPU seconds of one core.

Tumbling minutes, the sum of a double, a watermark every 1,000 records that is 5 s behind; 14 to 1.1 records per window.
Run it with `python -m tests.bench.window_operator`.
"""

import gc
import random
import time
from collections.abc import Sequence

from windowlib.assigners import Tumbling
from windowlib.functions import aggregate
from windowlib.records import Record
from windowlib.spec import WindowSpec
from windowlib.timers import TimerService

RECORDS = 300_000
BATCH = 1_000
LAG_MS = 5_000
MINUTE_MS = 60_000


def records(keys: int, step_ms: int) -> list[Record]:
    """Return records of `keys` keys, `step_ms` apart and up to 3 s out of order."""
    rng = random.Random(1)
    return [
        Record(
            (f"k{rng.randrange(keys)}",),
            rank * step_ms + rng.randrange(-3_000, 1),
            (rng.random() * 100,),
            (0, rank),
            rng.getrandbits(64) - (1 << 63),
        )
        for rank in range(RECORDS)
    ]


def replay_seconds(log: Sequence[Record]) -> tuple[float, int]:
    """Return the CPU seconds of a replay, and its panes."""
    operator = WindowSpec(assigner=Tumbling(size_ms=MINUTE_MS), function=(aggregate("sum", "double"),)).build()
    process = operator.process
    panes, latest_ms = 0, 0
    began = time.process_time()
    for start in range(0, len(log), BATCH):
        for record in log[start : start + BATCH]:
            process(record)
        latest_ms = max(latest_ms, *(record.timestamp_ms or 0 for record in log[start : start + BATCH]))
        operator.advance_watermark(latest_ms - LAG_MS, (0, start))
        panes += len(operator.drain())
    return time.process_time() - began, panes


def plain_seconds(log: Sequence[Record]) -> float:
    """Return the CPU seconds of the least that could do it: one dict, no late records, no audit, inexact sums."""
    windows: dict[tuple[object, int], float] = {}
    began = time.process_time()
    for key, timestamp_ms, value, *_ in log:
        place = (key, (timestamp_ms or 0) // MINUTE_MS)
        windows[place] = windows.get(place, 0.0) + value[0]
    return time.process_time() - began


def timer_seconds(count: int = 1_000_000) -> float:
    """Return the CPU seconds to register `count` timers, delete a tenth, and fire the rest."""
    rng = random.Random(2)
    timers = [(rng.randrange(count // 10), f"k{rng.randrange(10_000)}") for _ in range(count)]
    service = TimerService()
    queue = service.event_timers
    began = time.process_time()
    for at_ms, key in timers:
        queue.register(at_ms, key, ())
    for at_ms, key in timers[::10]:
        queue.delete(at_ms, key, ())
    fired = sum(1 for _ in service.advance_watermark(count))
    took = time.process_time() - began
    assert 0.85 * count < fired < 0.91 * count
    return took


def main() -> None:
    """Print one line per measurement."""
    gc.set_threshold(100_000, 50, 1_000)  # nothing here makes cycles, so collecting them often measures the collector
    for keys, step_ms in ((100, 43), (10_000, 5), (10_000, 30)):
        log = records(keys, step_ms)
        gc.collect()
        gc.freeze()
        took, panes = min(replay_seconds(log) for _ in range(3))
        plain = min(plain_seconds(log) for _ in range(3))
        print(  # noqa: T201
            f"{keys:>6} keys, {RECORDS / panes:5.1f} records a window: {RECORDS / took / 1e6:.2f} M records/s "
            f"(plain dict {RECORDS / plain / 1e6:.2f})"
        )
    print(f"1 M timers, a tenth deleted: {timer_seconds():.2f} s")  # noqa: T201


if __name__ == "__main__":
    main()
