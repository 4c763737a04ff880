"""The other side of a seat: starts a contestant's process, asks it, and measures it from outside."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bench.contestant import Job
from bench.machine import machine_cpu_s
from bench.meter import peaks_of, spent, tree_cpu_s
from bench.samples import Checksum, Sample
from jobs.processes import end_session
from tests.support.places import ROOT


class SeatFailed(RuntimeError):  # noqa: N818 - it says what happened
    """A contestant raised an error, its process ended, or it took too long."""


class Missing(RuntimeError):  # noqa: N818 - it says what happened
    """A contestant cannot take part here; the message is a sentence for the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One measured run: the sample, the checksum of its result, the contestant's notes and the JVM's threads."""

    sample: Sample
    checksum: Checksum
    notes: Mapping[str, Any]


@dataclass(slots=True)
class Seat:
    """The process of one contestant. Use it as a context.

    Its standard error goes to `log`. It has `limit_s` wall seconds for each answer.
    """

    name: str
    log: Path
    limit_s: float = 1_800.0
    environ: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Seat":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def prepare(self, job: Job) -> None:
        """Start the process if there is none, and let the contestant prepare.

        Raises:
            Missing: the contestant cannot take part.
            SeatFailed: the contestant failed.
        """
        if self._process is None:
            self._start()
        self._ask({"do": "prepare", "job": job.to_json()})

    def run(self) -> Ran:
        """Measure one run, and check its result afterwards.

        Raises:
            SeatFailed: the contestant failed.
        """
        pid = self._running().pid
        parts, before, machine = spent(pid), tree_cpu_s(pid), machine_cpu_s()
        with peaks_of(pid) as peaks:
            wall_s = float(self._ask({"do": "run"})["wall_s"])
        used = machine_cpu_s() - machine
        cpu_s = max(tree_cpu_s(pid) - before, peaks.cpu_s())  # a JVM that nobody waited for is only in the polls
        since = spent(pid).since(parts)
        checked = self._ask({"do": "check"})
        foreign = max(used - cpu_s, 0.0) / max(wall_s, 1e-9)
        return Ran(
            sample=Sample(wall_s=wall_s, cpu_s=cpu_s, rss_mb=peaks.mb, foreign_cores=round(foreign, 2)),
            checksum=Checksum(**checked["checksum"]),
            notes={**checked["notes"], **since},
        )

    def close(self) -> None:
        """End the process and everything that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:
            end_session(process.pid, grace_s=5)

    def _start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.seat", self.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.environ},
            )

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise SeatFailed(f"{self.name} was not prepared")
        return self._process

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        process = self._running()
        told, heard = _pipe(process.stdin), _pipe(process.stdout)
        try:
            told.write(json.dumps(question) + "\n")
            told.flush()
            if not select.select([heard], [], [], self.limit_s)[0]:
                self.close()
                raise SeatFailed(f"{self.name} took more than {self.limit_s:g} s to {question['do']}")
            line = heard.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SeatFailed(f"{self.name} ended with status {process.poll()} at {question['do']}; see {self.log}")
        reply: dict[str, Any] = json.loads(line)
        if "missing" in reply:
            raise Missing(reply["missing"])
        if "error" in reply:
            raise SeatFailed(f"{self.name} at {question['do']}: {reply['error']}\n{reply['traceback']}")
        return reply


def _pipe(found: IO[str] | None) -> IO[str]:
    assert found is not None, "the process was started with pipes"
    return found
