"""Plays schedules from the command line: `python -m tests.simulation [--seed N] [--schedules N]` (`make simulate`).

Prints a failing schedule with its last steps and goes on. Exits with 1 if a schedule failed. The seeds of the schedules
are consecutive numbers, so `--seed N` alone repeats one schedule.
"""

import argparse
import gc
import logging
import sys
import time
from collections import Counter

from rich.console import Console

from tests.simulation.schedules import FailedSchedule, play

SHOWN_FAILURES = 10
"""So many failing schedules are printed in full."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first schedule")
    parser.add_argument("--schedules", type=int, default=1, help="the number of schedules")
    parser.add_argument("--steps", action="store_true", help="print the last steps of the last schedule")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    gc.freeze()  # else each full collection examines the objects of all modules
    gc.set_threshold(100_000, 50, 100)
    out = Console(highlight=False, soft_wrap=True)
    steps, faults, written, failed = 0, Counter[str](), Counter[str](), Counter[str]()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for seed in range(asked.seed, asked.seed + asked.schedules):
        try:
            played = play(seed)
        except FailedSchedule as failure:
            failed[failure.checker] += 1
            if failed.total() <= SHOWN_FAILURES:
                out.print(str(failure), markup=False)
            continue
        steps += played.steps
        faults += played.faults
        written += played.written
        if asked.steps:
            out.print("\n".join(f"{actor}: {step}" for actor, step in played.trace), markup=False)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    out.print(f"{asked.schedules:,} schedules from seed {asked.seed}, {steps:,} steps, {failed.total()} violations")
    out.print(f"{asked.schedules / seconds:.1f} schedules/s ({seconds:,.0f} s, {cpu:,.0f} s of CPU)")
    for title, counts in (("faults", faults), ("commits by event", written), ("violations", failed)):
        out.print(f"{title}: {', '.join(f'{name} {count:,}' for name, count in counts.most_common()) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
