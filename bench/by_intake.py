"""Hindcast over logs of several forms: how much more another order of the records costs than row tracking."""

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.by_hindcast import WARM_UP_RECORDS, Replay, days, run_days
from bench.contestant import Job
from bench.log_forms import log_of_form, order_of, write_form
from jobs.pipeline.files import build_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.spark.private_dir import private_directory

POLL_S = 0.02


class Intake(Replay):
    """A replay of the log of the workload in the form of the option `form`."""

    def prepare(self, job: Job) -> None:
        self._form = job.options["form"]
        cache = Path(job.options["cache"])
        log = log_of_form(job.workload, job.records, form=self._form, cache=cache, seed=job.seed)
        self._peak = ScratchPeak()
        super().prepare(replace(job, log=log))

    def run(self) -> None:
        with scratch_peak() as self._peak:
            super().run()

    def notes(self) -> Mapping[str, Any]:
        return {**super().notes(), "scratch_mb": round(self._peak.size / 1e6, 1)}

    def _pipeline_over(self, log: str) -> Pipeline:
        document = self._job.workload.document(table=log)
        document["log"]["order"] = order_of(self._form)
        return build_pipeline(document, source="bench.yaml")

    def _warm_up(self, job: Job) -> None:
        log = Path(job.scratch) / "warm_log"
        shutil.rmtree(log, ignore_errors=True)
        self._empty()
        few = min(job.records, WARM_UP_RECORDS)
        write_form(self._spark, log, job.workload, few, form=self._form, seed=job.seed)
        run_days(self._spark, self._lake, self._pipeline_over(str(log)), days(0, 1))


@dataclass(slots=True)
class ScratchPeak:
    """The greatest size of the files in the private directory of this process, in bytes."""

    size: int = 0


@contextmanager
def scratch_peak() -> Iterator[ScratchPeak]:
    """Look at the size of the private directory while the context lasts."""
    peak, done = ScratchPeak(), threading.Event()
    place = private_directory()

    def look() -> None:
        while not done.wait(POLL_S):
            peak.size = max(peak.size, size_of(place))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def size_of(place: Path) -> int:
    """Return the size of the files below a directory. Files that are removed meanwhile do not count."""
    size = 0
    for file in place.rglob("*"):
        try:
            size += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue
    return size
