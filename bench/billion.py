"""A log of a billion records, as one backfill: `make bench-billion`.

`hindcast run` replays, in new processes: one slice of 20 million records; 50 such slices, which are a log of a billion
records; and one slice of 300 million. The logs are written into the cache. The time of a record and the memory must not
grow with the log: they are compared with those of the one slice, within the given shares.
"""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click
import yaml

from bench.by_hindcast import days
from bench.day_logs import log_of_days
from bench.meter import peaks_of
from bench.suite import SESSIONS
from tests.deploy.ledger_runs import runs
from tests.support.places import ROOT

WORKLOAD: Final = SESSIONS["session30_10k"]
SLOWER: Final = 1.2
"""A record of a large log may take this many times the time of one of the small log."""
LARGER: Final = 1.5
"""The processes may have this many times the memory that they have with the small log.

100 million records in 5 slices have 1.34 times the resident memory of 20 million (2026-11-26). A worker has 1.26 times
its own pages. The rest are the steps of the watermark, 16 bytes each: a file that is mapped into each worker.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One backfill: its slices, records and panes, wall and CPU seconds, and the greatest resident memory in MB.

    `memory_mb` is that of the whole tree (`tree`), and of the largest process of each kind (bench.meter.role_of).
    """

    slices: int
    records: int
    panes: int
    wall_s: float
    cpu_s: float
    memory_mb: dict[str, float]

    @property
    def ns_per_record(self) -> float:
        """The wall time of a record in nanoseconds."""
        return self.wall_s / self.records * 1e9

    def line(self) -> str:
        """Return the figures as a line for a person."""
        return (
            f"{self.slices:>3} slices, {self.records:>13,} records, {self.panes:>12,} panes: {self.wall_s:>8.1f} s, "
            f"{self.ns_per_record:>6.0f} ns a record, {self.cpu_s:>8.1f} CPU-s, {self.memory_mb['tree']:>7,.0f} MB"
        )


@click.command()
@click.option("--records", type=click.IntRange(min=2), default=20_000_000, show_default=True, help="Of one slice.")
@click.option("--slices", type=click.IntRange(min=1), default=50, show_default=True, help="Of the large log.")
@click.option(
    "--one-slice", type=click.IntRange(min=0), default=300_000_000, show_default=True, help="0: leave it out."
)
@click.option("--cache", type=click.Path(path_type=Path), default=ROOT / ".bench", help="For logs.  [default: .bench]")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(*, records: int, slices: int, one_slice: int, cache: Path, as_json: bool) -> None:
    """Replay a large log as one backfill, and compare its time and memory with those of one slice."""
    cache = cache.resolve()
    asked = [(records, 1), (records, slices), *([(one_slice, 1)] if one_slice else [])]
    measured = []
    for size, number in asked:
        log = log_of_days(WORKLOAD, size, days=number, cache=cache)
        measured.append(backfill(log, slices=number, scratch=cache / "billion"))
        click.echo(json.dumps(asdict(measured[-1])) if as_json else measured[-1].line())
    small, *large = measured
    for one in large:
        time_, memory = one.ns_per_record / small.ns_per_record, one.memory_mb["tree"] / small.memory_mb["tree"]
        click.echo(f"{one.records:,} records: {time_:.2f} x the time of a record, {memory:.2f} x the memory", err=True)
        if time_ > SLOWER or memory > LARGER:
            raise click.ClickException(f"more than {SLOWER} x the time or {LARGER} x the memory of {small.records:,}")


def backfill(log: str, *, slices: int, scratch: Path) -> Measured:
    """Replay all slices of a log as one backfill into a new lake, in a process of its own.

    Raises:
        ClickException: the command fails, or a record is not accounted for in a published run.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    lake, file = scratch / "lake", scratch / "bench.yaml"
    file.write_text(yaml.safe_dump(WORKLOAD.document(table=log)), encoding="utf-8")
    first, last = days(0, slices)
    command = ["run", str(file), "--lake", str(lake), "--from", first, "--to", last]
    began = time.perf_counter()
    with (scratch / "run.log").open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "jobs.cli.main", *command],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
        with peaks_of(process.pid) as peaks:
            status = process.wait()
    wall_s = time.perf_counter() - began
    if status != 0:
        raise click.ClickException(f"the backfill failed:\n{(scratch / 'run.log').read_text()[-3000:]}")
    made = runs(str(lake), "bench")
    if len(made) != slices or not all(run["is_published"] for run in made):
        raise click.ClickException(f"{len(made)} of {slices} slices have a published run")
    read, panes = (sum(int(str(run[name])) for run in made) for name in ("read", "panes"))
    shutil.rmtree(lake)
    return Measured(
        slices=slices, records=read, panes=panes, wall_s=wall_s, cpu_s=peaks.cpu_s(), memory_mb=dict(peaks.mb)
    )


if __name__ == "__main__":
    main()
