"""The page of a window: why it has its numbers. It reads a bounded number of records, and never starts Spark."""

import csv
import io
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound
from jobs.plain_text import counted
from jobs.reading.plain_values import rows_of
from jobs.reading.published import BOUNDS
from jobs.reading.stored_tables import spec_of
from jobs.review import links
from windowlib.errors import HindcastError, RequestError
from windowlib.libraries import pa

if TYPE_CHECKING:
    from jobs.replay.intake.chunk_log import ChunkLog
    from jobs.review.window.slice_replay import Reading
    from jobs.review.window.told_window import WindowExplanation

PAGE_RECORDS = 1_000_000
"""The default of `WindowAsk.most_read`."""
SHOWN_RECORDS = 100
"""Of a window with more than twice as many records, so many of the first and of the last are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAsk:
    """The window of a page: key column -> value, and the bounds as texts. `end` is empty if the start is enough.

    The page reads at most `most_read` records of the log, in all slices together.
    """

    key: Mapping[str, str]
    start: str
    end: str = ""
    request_id: str | None = None
    most_read: int = PAGE_RECORDS

    def command(self, pipeline: str) -> str:
        """Return the command that tells the same, without a limit."""
        key = io.StringIO()
        csv.writer(key).writerow(self.key.values())
        text = next(iter(self.key.values())) if len(self.key) == 1 else key.getvalue().removesuffix("\r\n") or "all"
        words = ["hindcast", "explain", pipeline, "--window", text, self.start]
        words += ["--end", self.end] if self.end else []
        return shlex.join(words + (["--request", self.request_id] if self.request_id else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPage:
    """The explanation of a window, or the problem that prevents it; and the command that tells the same."""

    explanation: "WindowExplanation | None"
    problem: str | None
    command: str


def _reading(most: int) -> "Reading":
    """Return what reads slices in this process, while they have at most `most` records together."""
    from jobs.replay.tasks import LocalTasks

    read = 0

    def tasks(chunk: "ChunkLog") -> LocalTasks:
        nonlocal read
        if chunk.direct.why_spark is not None:
            raise RequestError(f"Only Spark reads this log, and a page does not start it: {chunk.direct.why_spark}.")
        read += chunk.log.whole.records
        if read > most:
            raise RequestError(
                f"The slices of this window have more than {counted(most, 'record')}, and a page reads no more."
            )
        return LocalTasks()

    return tasks


def window_page(lake: Lake, pipeline: Pipeline, ask: WindowAsk, *, view: LedgerView) -> WindowPage:
    """Return the page of a window. `pipeline` is the one of `spec_of_request`.

    A problem does not fail the page: the page then tells it.
    """
    try:
        explanation, problem = _explained(lake, pipeline, ask, view=view), None
    except HindcastError as error:
        explanation, problem = None, str(error)
    return WindowPage(explanation=explanation, problem=problem, command=ask.command(pipeline.name))


def window_addresses(pipeline: Pipeline, rows: "pa.Table", *, request_id: str | None) -> list[str | None]:
    """Return the path of the page of each row of `window_outputs`; None for rows whose window has no page."""
    needed = [name for name in (*pipeline.log.key_columns, *BOUNDS) if name in rows.column_names]
    return [window_address(pipeline, row, request_id=request_id) for row in rows_of(rows.select(needed))]


def window_address(pipeline: Pipeline, row: Mapping[str, object], *, request_id: str | None) -> str | None:
    """Return the path of the page of the window with the key and the bounds of a row; None if the row lacks one."""
    keys = pipeline.log.key_columns
    start, end = (row.get(name) for name in BOUNDS)
    if start is None or end is None or any(row.get(name) is None for name in keys):
        return None
    key = {name: str(row[name]) for name in keys}
    return links.window_page(pipeline.name, key, start=_iso(start), end=_iso(end), request_id=request_id)


def _iso(at: object) -> str:
    return at.isoformat().replace("+00:00", "Z") if isinstance(at, datetime) else str(at)


def _explained(lake: Lake, pipeline: Pipeline, ask: WindowAsk, *, view: LedgerView) -> "WindowExplanation":
    if pipeline.functions() or (view.head is not None and spec_of(view, view.head).functions()):
        raise RequestError(
            f"Pipeline {pipeline.name} runs functions of users, and the api-server does not run them. The command does."
        )
    # These import the operators, which other pages do not need.
    from jobs.review.window.explanation import AskedWindow, explain_window, key_columns_of
    from jobs.review.window.wanted import key_of_texts

    asked = AskedWindow(
        key=key_of_texts(pipeline, [*ask.key.values()], key_columns_of(lake, pipeline)),
        start_ms=parse_bound(pipeline, ask.start),
        end_ms=parse_bound(pipeline, ask.end) if ask.end else None,
        request=ask.request_id,
        most=SHOWN_RECORDS,
    )
    return explain_window(lake, pipeline, asked, view=view, reading=_reading(ask.most_read))
