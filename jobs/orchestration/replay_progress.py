"""Logs the progress of a replay: one line for each staged slice, and every few seconds one line on the whole."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

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

    `every_s` is the time between two lines, and `clock` returns seconds.
    """

    every_s: float = EVERY_S
    clock: Callable[[], float] = time.monotonic
    _latest: Progress | None = None
    _since_s: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "ProgressLog":
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
            is_good = result.verdict in {Verdict.PASS, Verdict.WARN}
            log.log(logging.INFO if is_good else logging.WARNING, "%s", slice_line(result))
        self._since_s = self.clock()
        self._latest = progress

    def line(self) -> str:
        """Return the progress on one line, and the current step."""
        latest = self._latest
        if latest is None:
            return "no slice is replayed yet"
        step = RUNNING.describe()
        return latest.now.after(self.clock() - self._since_s).sentence + (f"; now: {step}" if step else "")

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
