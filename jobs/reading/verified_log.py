"""Compares the bytes of the event log with what its writer and the runs have stored of them, without Spark (law L9).

The log may have grown since, and files may have been compacted: only the files that the log has now are read. `plan
--verify` compares the records.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.lake.covered_files import Cover, CoveredFile, cover_of
from jobs.lake.damage import log_errors, refuse_outage
from jobs.lake.event_log import files_of_slices
from jobs.lake.known_log import checked_files, covered_files
from jobs.lake.lake import Lake
from jobs.lake.log_version import LogVersion
from jobs.lake.parquet_files import open_parquet
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import counted
from jobs.reading.log_places import log_place
from jobs.reading.stored_rows import Finding
from jobs.reading.verify import Span
from jobs.storage import file_system
from windowlib.errors import LogError

if TYPE_CHECKING:
    import pyarrow.fs as pafs


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerification:
    """How many data files of the log were compared, and every difference.

    `unknown` further files have no checksum, and no run has stored a digest of them.
    """

    files: int
    unknown: int
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        unknown = f", {counted(self.unknown, 'other', 'have')} no checksum and no stored digest" if self.unknown else ""
        done = "was compared with its checksum or digest"
        if self.files != 1:
            done = "were compared with their checksums or digests"
        return f"{counted(self.files, 'file')} of the log {done}{unknown}"


def verify_log(lake: Lake, pipeline: Pipeline, view: LedgerView, *, span: Span) -> LogVerification:
    """Compare the log's files of published slices, and the commit files that they follow from.

    Args:
        lake: the lake.
        pipeline: the pipeline.
        view: the ledger version, whose runs have stored the digests.
        span: the slices to check.

    Raises:
        StoreError: the object store of the log does not answer.
    """
    published = (view.runs[run_id] for run_id in view.published.values() if run_id in view.runs)
    runs = [run for run in published if span.holds(run.result.slice)]
    slices = tuple(run.result.slice for run in runs)
    known, name = known_log(view, slices), pipeline.log.table
    if not slices:
        return LogVerification(files=0, unknown=0, findings=())
    try:
        log = log_place(lake, pipeline).open()
        log.log_files(stored=known.stored_in_log(log.table_id))
        files = files_of_slices(log, by=pipeline.log.slice, slices=slices)
        covered = covered_files(log, files, known=known)
        covers = dict(zip((file.path for file in covered), checked_files(covered), strict=True))
    except LogError as error:
        refuse_outage(lake.event_log(pipeline), error)
        finding = Finding(table=name, slice_id=None, attempt_id=None, file=None, what=str(error))
        return LogVerification(files=0, unknown=0, findings=(finding,))
    slice_ids = {file.path: file.slice_id for file in files}
    findings = []
    unknown = 0
    for file in covered:
        digest = covers[file.path]
        problem = digest if isinstance(digest, LogError) else None
        if isinstance(digest, bytes):
            cover, problem = _read_pages(log, file)
            unknown += cover is Cover.NOTHING and file.stored is None
        if problem is not None:
            findings.append(
                Finding(table=name, slice_id=slice_ids[file.path], attempt_id=None, file=file.path, what=str(problem))
            )
    return LogVerification(files=len(covered) - unknown, unknown=unknown, findings=tuple(findings))


def _read_pages(log: LogVersion, file: CoveredFile) -> tuple[Cover, LogError | None]:
    """Read a file that has no checksum file if its pages have checksums. Return what covers it, and what is wrong."""
    system: pafs.FileSystem = file_system(log.uri)[0]
    try:
        with log_errors(log.uri, f"reading {file.path} ({file.owner})"):
            cover = cover_of(system, file.place)
            if cover is Cover.PAGES:
                with system.open_input_file(file.place) as data:
                    for _rows in open_parquet(data).iter_batches():
                        pass
    except LogError as error:
        refuse_outage(log.uri, error)
        return Cover.PAGES, error
    return cover, None
