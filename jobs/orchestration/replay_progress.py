"""Logs the progress of a replay: one line for each staged slice, and every few seconds one line on the whole."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from expectations.formatting import instant, percent
from jobs.durations import human_duration
from jobs.orchestration.plan_outline import folded
from jobs.orchestration.requests import Progress
from jobs.plain_text import counted
from jobs.replay.stage_times import RUNNING
from jobs.runs import RunResult, Verdict

log = logging.getLogger("hindcast")

EVERY_S = 10.0


@dataclass(slots=True)
class ProgressLog:
    """Receives the progress of staging. As a context, it logs a line every `every_s` seconds from a thread.

    Attributes:
        records: about how many records the replay reads in all; None if unknown.
        seconds: how long the replay takes according to past runs; None if there are none.
        every_s: the time between two lines.
        clock: returns seconds.
    """

    records: int | None = None
    seconds: float | None = None
    every_s: float = EVERY_S
    clock: Callable[[], float] = time.monotonic
    _began_s: float = 0.0
    _latest: Progress | None = None
    _results: list[RunResult] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "ProgressLog":
        self._began_s = self.clock()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=self.every_s)

    def __call__(self, progress: Progress) -> None:
        """Log the slices that a chunk has staged, or the chunk that begins."""
        if not progress.results:
            log.info("replaying %s", folded([slice_.slice_id for slice_ in progress.chunk]))
        for result in progress.results:
            log.log(_level(result), "%s", slice_line(result))
        self._results.extend(progress.results)
        self._latest = progress

    def line(self) -> str:
        """Return the progress on one line: slices, records/s, watermark, late share, time left, current step."""
        latest, results = self._latest, tuple(self._results)
        if latest is None:
            return "no slice is replayed yet"
        read, late = sum(result.counts.read for result in results), sum(result.counts.late for result in results)
        elapsed = self.clock() - self._began_s
        parts = [f"{len(results):,} of {counted(latest.total, 'slice')}"]
        if read and elapsed > 0:
            parts.append(f"{read / elapsed:,.0f} records/s")
            parts.append(f"late {percent(late / read)}")
        if results and results[-1].watermark_ms is not None:
            parts.append(f"watermark {instant(results[-1].watermark_ms)}")
        left = self._left(read, elapsed)
        if left:
            parts.append(f"about {human_duration(left * 1_000)} left")
        step = RUNNING.describe()
        return ", ".join(parts) + (f"; now: {step}" if step else "")

    def _left(self, read: int, elapsed: float) -> float | None:
        """Return about how many seconds are left: by the records so far, before that by past runs."""
        if read and self.records is not None and elapsed > 0:
            return float(round(max(self.records - read, 0) * elapsed / read))
        return None if self.seconds is None else float(round(max(self.seconds - elapsed, 0)))

    def _tell(self) -> None:
        while not self._ended.wait(self.every_s):
            try:
                log.info("%s", self.line())
            except Exception:  # a line of the log must not end a replay
                log.debug("no progress line", exc_info=True)


def slice_line(result: RunResult) -> str:
    """Return one staged slice on one line: its verdict, and its records by fate."""
    counts = result.counts
    fates = (
        (counts.late, "late"), (counts.unassigned, "without a window"), (counts.invalid, "invalid"),
        (counts.filtered, "filtered"), (counts.duplicate, "duplicate"),
    )  # fmt: skip
    shown = "".join(f", {number:,} {name}" for number, name in fates if number)
    return (
        f"{result.slice.slice_id} {result.verdict.value}: {counted(counts.read, 'record')}, "
        f"{counted(counts.panes, 'pane')}{shown}"
    )


def _level(result: RunResult) -> int:
    return logging.INFO if result.verdict in {Verdict.PASS, Verdict.WARN} else logging.WARNING
