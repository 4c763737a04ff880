"""Contestants whose every run is a new process, from the command to its end: `python -m bench.cold NAME JOB`.

A cold run pays what a warm one does not: the start of Python and of a JVM, imports, and compiled loops.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from bench.by_hindcast import Replay, days
from bench.contestant import Contestant, Job, contestant
from bench.samples import Checksum
from tests.support.places import ROOT


def in_a_new_process(*arguments: str) -> None:
    """Run a module of this repository to its end. Its output goes to standard error."""
    command = [sys.executable, "-m", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr, stdin=subprocess.DEVNULL)


class Hindcast(Replay):
    """`hindcast run` of one slice, with a new lake."""

    def prepare(self, job: Job) -> None:
        self._job, self._lake = job, Path(job.scratch) / "lake"
        self._pipeline = self._pipeline_over(job.log)
        self._file = Path(job.scratch) / "bench.yaml"
        self._file.write_text(yaml.safe_dump(job.workload.document(table=job.log)), encoding="utf-8")
        self._empty()

    def run(self) -> None:
        first, last = days(0, 1)
        asked = ["--lake", str(self._lake), "--master", f"local[{self._job.cores}]", "--from", first, "--to", last]
        self._lake.mkdir(parents=True)
        in_a_new_process("jobs.cli.main", "run", str(self._file), *asked)

    def notes(self) -> Mapping[str, Any]:
        return {}


class _Peer(Contestant):
    """A warm contestant of one process, in a new process for each run."""

    NAME: ClassVar[str]

    def prepare(self, job: Job) -> None:
        self._job = json.dumps(job.to_json())
        self._reader: Contestant = contestant(self.NAME)
        self._reader.prepare(job)

    def run(self) -> None:
        in_a_new_process("bench.cold", self.NAME, self._job)

    def check(self) -> Checksum:
        return self._reader.check()


class DuckDB(_Peer):
    """DuckDB from files to a file."""

    NAME = "duckdb_files"


class Polars(_Peer):
    """Polars from files to a file."""

    NAME = "polars_files"


def main() -> None:
    """Run a contestant once."""
    name, job = sys.argv[1:]
    peer = contestant(name)
    peer.prepare(Job.from_json(json.loads(job)))
    peer.run()


if __name__ == "__main__":
    main()
