"""The state of a pipeline as numbers for a monitoring system: `hindcast metrics`, and the gauges of Airflow's tasks.

The ledger gives them, so they are the same whoever asks, and asking costs no reading of rows. `changed_slices` needs
the log, too, so it is missing where the log is not read or cannot be read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from jobs.ledger.publications import standing
from jobs.ledger.run_projection import failing_in_sight
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.slices import SliceGrid, next_from_first, next_slice, slice_grid
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import RequestContext
from jobs.planning.standing import empty_slices
from jobs.publishing.current_tables import current_tables
from jobs.publishing.stop_reasons import held_runs

MAX_COUNTED: Final = 10_000
"""So many slices without a publication are counted."""


HELP: Final[Mapping[str, str]] = {
    "published_slices": "Slices that readers see.",
    "changed_slices": "Published slices whose records in the log are not those that their runs read. Needs the log.",
    "empty_slices": "Published slices without a record.",
    "unpublished_slices": "Slices that are over and come after the last published one, whether or not they have data.",
    "waiting_seconds": "Seconds since the end of the first of these slices; 0 if there is none.",
    "held_slices": "Slices of open requests whose checks failed and that nobody has waived.",
    "failed_published_slices": "Slices that readers see with an error, or with a failed check that nobody has waived.",
    "open_requests": "Requests that are not published and not closed, without proposed restatements.",
    "proposed_restatements": "Proposed restatements and late repairs that wait to be replayed or declined.",
    "failed_requests": "Open requests whose newest attempt failed.",
    "rolled_back": "1 if a rollback holds the schedule until a person publishes or resumes, else 0.",
    "behind_current_tables": "Current tables that do not show the newest publication, are damaged, or left the file.",
    "newest_publication_age_seconds": "Seconds since readers saw a change.",
    "newest_watermark_seconds": "Watermark of the last published slice, in seconds since 1970.",
    "newest_publication_slices": "Slices that the newest publication changed that is not rolled back.",
    "newest_publication_records": "Records that the runs of the newest publication read.",
    "newest_publication_records_per_second": "Records read by second of replay, of the newest publication's runs.",
    "newest_publication_late_ratio": "Share of the newest publication's records that were late, 0 to 1.",
    "newest_publication_invalid_ratio": "Share of the newest publication's records that were invalid, 0 to 1.",
    "newest_publication_filtered_ratio": "Share of the newest publication's records that log.where did not keep.",
    "newest_publication_duplicate_ratio": "Share of the newest publication's records that were duplicates, 0 to 1.",
}
"""Every gauge and what it means. One that has no value yet, because nothing is published, is left out.

A name has the unit at its end, as Prometheus recommends.
"""


def gauges(work: RequestContext, view: LedgerView, *, changed: int | None = None) -> dict[str, float]:
    """Return the gauges of a pipeline, name -> value, in the order of `HELP`.

    `changed` is the number of changed slices; None: not known.
    """
    behind = sum(current.is_behind for current in current_tables(work))
    work, _ = on_published_spec(work, view)
    grid, now_ms = slice_grid(work.pipeline), work.ledger.now_ms()
    values = dict(_open_work(view)) | dict(_published(view, now_ms=now_ms)) | dict(_waiting(view, grid, now_ms))
    values["behind_current_tables"] = behind
    if changed is not None:
        values["changed_slices"] = changed
    return {name: values[name] for name in HELP if name in values}


def _open_work(view: LedgerView) -> Iterator[tuple[str, float]]:
    requests = view.awaited_requests()
    yield "held_slices", len(held_runs(view))
    proposed = sum(request.is_proposed for request in requests)
    yield "open_requests", len(requests) - proposed
    yield "proposed_restatements", proposed
    yield "failed_requests", sum(request.failure is not None for request in requests)
    yield "rolled_back", float(view.hold is not None)


def _waiting(view: LedgerView, grid: SliceGrid, now_ms: int) -> Iterator[tuple[str, float]]:
    """Yield what the ledger and the clock tell of slices without a publication. The log is not read."""
    yield "empty_slices", len(empty_slices(view))
    if not view.published:
        return
    first = next_from_first(grid, view.slices[list(view.published)[-1]])
    waiting, count = first, 0
    while waiting is not None and waiting.end_ms <= now_ms and count < MAX_COUNTED:
        waiting, count = next_slice(grid, waiting), count + 1
    yield "unpublished_slices", count
    yield "waiting_seconds", 0 if first is None else max(0, now_ms - first.end_ms) / 1000


def _published(view: LedgerView, *, now_ms: int) -> Iterator[tuple[str, float]]:
    yield "published_slices", len(view.published)
    yield "failed_published_slices", len(failing_in_sight(view))
    head = view.head
    if head is not None and head.result.watermark_ms is not None:
        yield "newest_watermark_seconds", head.result.watermark_ms / 1000
    if not view.publications:
        return
    yield "newest_publication_age_seconds", max(0, now_ms - view.publications[-1].at_ms) / 1000
    newest = next(standing(view.publications), None)
    if newest is None:
        return
    yield "newest_publication_slices", len(newest.changes)
    yield from _work(view.run(run_id) for run_id in newest.changes.values() if run_id is not None)


def _work(runs: Iterable[StagedRun]) -> Iterator[tuple[str, float]]:
    done: Sequence[StagedRun] = list(runs)
    records = sum(run.result.counts.read for run in done)
    seconds = sum(run.result.seconds for run in done)
    yield "newest_publication_records", records
    if seconds > 0:
        yield "newest_publication_records_per_second", records / seconds
    if records:
        for fate in ("late", "invalid", "filtered", "duplicate"):
            yield f"newest_publication_{fate}_ratio", sum(getattr(run.result.counts, fate) for run in done) / records
