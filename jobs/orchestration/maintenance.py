"""What keeps a lake in order: reading stored rows again (`verify`, all or a share), and the clean-up.

The DAG `maintain_<name>` of a pipeline with `retention` does both.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from jobs.durations import UNIT_MS
from jobs.lake.lake import Lake
from jobs.pipeline.files import load_file
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.publishing.cleaning import OLDER_THAN_MS, Leftovers, clean_lake
from jobs.publishing.verified_current import verify_current_tables
from jobs.reading.verified_ledger import LedgerVerification, verify_ledger
from jobs.reading.verified_log import LogVerification, verify_log
from jobs.reading.verify import Span, Verification, verify
from jobs.wall_clock import now_ms

SHARES: Final = 30
"""The DAG reads each slice once in so many days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was compared. `report` has all findings, also those of the current tables."""

    report: Verification
    ledger: LedgerVerification
    log: LogVerification


def verify_all(work: RequestContext, span: Span) -> Verified:
    """Compare the ledger, the stored rows and the log's files of some slices with what was written.

    With all slices, or their first share, the current tables are compared with what readers see, if these can read it.
    Of a share, one that is behind is no finding: a publication may be about to move it.

    Raises:
        LedgerError: the ledger cannot be read.
        StoreError: a table cannot be read.
    """
    view, name = work.ledger.view(), work.pipeline.name
    report = verify(work.lake, name, view, span=span)
    ledger = verify_ledger(work.ledger)
    log = verify_log(work.lake, work.pipeline, view, span=span)
    is_readable = all(run_id in view.runs for run_id in view.published.values())
    is_due = span.has_copies and is_readable
    current = verify_current_tables(work, moving=span != Span()) if is_due else ()
    findings = (*ledger.findings, *report.findings, *current, *log.findings)
    report = replace(report, findings=findings, unknown_files=log.unknown)
    return Verified(report=report, ledger=ledger, log=log)


def scrub(pipeline_file: str, *, lake: Lake, since_ms: int | None = None) -> Verification:
    """Return what is damaged in the shares of the slices that are due; raises as `verify_all` does.

    Those of the days since `since_ms` are due, the time of the last run without a finding; None: that of today.
    """
    work, until_ms = _work(pipeline_file, lake), now_ms()
    days = 1 if since_ms is None else max(1, until_ms // UNIT_MS["d"] - since_ms // UNIT_MS["d"])
    return verify_all(work, Span().of_days(SHARES, now_ms=until_ms, days=days)).report


def clean_up(pipeline_file: str, *, lake: Lake, who: str) -> Leftovers:
    """Clean the lake of a pipeline. Raises LedgerError, StoreError: as for `jobs.publishing.cleaning.clean`."""
    return clean_lake(_work(pipeline_file, lake), older_than_ms=OLDER_THAN_MS, who=who, dry_run=False)


def what_to_do(report: Verification) -> str:
    """Return what a person does about findings, as a sentence without its full stop."""
    commands = [f"hindcast mend {report.pipeline} {slice_id}" for slice_id in report.mendable]
    if not commands:
        return f"Run `hindcast verify {report.pipeline}`, which tells what to do about each finding"
    more = f", and {counted(len(commands) - 1, 'more slice')}" if len(commands) > 1 else ""
    return f"Make the rows again: `{commands[0]}`{more}"


def _work(pipeline_file: str, lake: Lake) -> RequestContext:
    return open_request_context(load_file(Path(pipeline_file)), lake, now_ms=now_ms)
