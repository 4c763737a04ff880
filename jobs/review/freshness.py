"""How far a pipeline is behind its schedule: its newest record, and its newest slice that readers see."""

from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import SliceGrid, next_slice, slice_grid
from jobs.plain_text import counted
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import RequestContext
from jobs.planning.standing import due_slices
from jobs.runs import Slice
from windowlib.errors import HindcastError


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """The newest slice with records and the newest published one, and how many slices each is behind the schedule.

    `newest_record` and `newest_published` are ids of slices; None: there is none. `unit` is `day` or `slice`.
    """

    newest_record: str | None
    record_behind: int
    newest_published: str | None
    published_behind: int
    unit: str
    has_schedule: bool = True

    @property
    def text(self) -> str:
        """Both on one line."""
        record = f"newest record {self.newest_record}" if self.newest_record else "no record yet"
        published = (
            f"newest published slice {self.newest_published}" if self.newest_published else "no slice published yet"
        )
        return f"{record}, {self._behind(self.record_behind)}; {published}, {self._behind(self.published_behind)}"

    def _behind(self, slices: int) -> str:
        if not self.has_schedule:
            return f"{counted(slices, self.unit)} behind" if slices else "up to date"
        return f"{counted(slices, self.unit)} behind the schedule" if slices else "on schedule"


def freshness(work: RequestContext, view: LedgerView) -> Freshness:
    """Return how far a pipeline is behind its schedule at the time of the ledger's clock, with the published spec.

    A slice is expected when it has ended before the last time of the cron schedule. Without one: when it has ended.

    Raises:
        LogError, SpecError: the log is missing or does not fit the pipeline.
        RequestError: too many slices are behind.
    """
    work, _ = on_published_spec(work, view)
    until_ms, grid = last_tick_ms(work.pipeline, work.ledger.now_ms()), slice_grid(work.pipeline)
    due = due_slices(work, view, until_ms)
    newest, head = work.log_state(view, ()).last_data, view.head
    return Freshness(
        newest_record=None if newest is None else newest.slice_id,
        record_behind=len(due) if newest is None else _ended_after(grid, newest, until_ms),
        newest_published=None if head is None else head.result.slice.slice_id,
        published_behind=len(due),
        unit="day" if grid.is_daily else "slice",
        has_schedule=work.pipeline.schedule is not None,
    )


def _ended_after(grid: SliceGrid, newest: Slice, until_ms: int) -> int:
    """Return how many slices after the newest record have ended, also those that readers see without records."""
    count, slice_ = 0, next_slice(grid, newest)
    while slice_ is not None and slice_.end_ms <= until_ms:
        count, slice_ = count + 1, next_slice(grid, slice_)
    return count


def freshness_line(work: RequestContext, view: LedgerView) -> str:
    """Return the freshness of a pipeline on one line, or why it is not known."""
    try:
        return freshness(work, view).text
    except HindcastError as error:
        return f"freshness is not known: {error}"


def last_tick_ms(pipeline: Pipeline, now_ms: int) -> int:
    """Return the last time of the cron schedule up to an instant; without a cron schedule, the instant."""
    if pipeline.schedule is None or pipeline.schedule.cron is None:
        return now_ms
    from croniter import croniter

    after = datetime.fromtimestamp(now_ms // 1000 + 1, tz=UTC)
    return int(croniter(pipeline.schedule.cron, after).get_prev(float)) * 1000
