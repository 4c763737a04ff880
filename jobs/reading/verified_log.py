"""Compares the bytes of the event log with what its writer and the runs have stored of them, without Spark (law L9).

The log may have grown since, and files may have been compacted: only the files that the log has now are read. `plan
--verify` compares the records.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast
from zlib import crc32

from jobs.lake.covered_files import Cover, CoveredFile, cover_of
from jobs.lake.damage import log_errors, refuse_outage
from jobs.lake.event_log import files_of_slices
from jobs.lake.footer_bounds import footer_bounds
from jobs.lake.known_log import checked_files, covered_files
from jobs.lake.lake import Lake
from jobs.lake.log_version import LogVersion
from jobs.lake.parquet_files import open_parquet
from jobs.lake.slice_instants import Span as TimeSpan, TimeKind, slice_instants
from jobs.lake.slicing_choice import is_partitioned
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.log import SliceGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted
from jobs.reading.log_places import log_place
from jobs.reading.stored_rows import Finding
from jobs.reading.verify import Span
from jobs.storage import file_system
from windowlib.errors import LogError, SpecError
from windowlib.libraries import pa, pafs


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerification:
    """How many data files of the log were compared, and every difference.

    `unknown` further files have no checksum, and no run has stored a digest of them. `removed` are gone from a table
    that needs them no longer (`LogVersion.removable`). `why_not` tells why no file was compared, without any damage.
    """

    files: int
    unknown: int
    removed: int = 0
    why_not: str = ""
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        if self.why_not:
            return f"the log was not compared: {self.why_not}"
        done = "were compared with their checksums or digests"
        if not self.files + self.unknown + self.removed:
            return "no file of the log is of a published one of these slices"
        if self.files == 1:
            done = "was compared with its checksum or digest"
        compared = (
            f"{counted(self.files, 'file')} of the log {done}" if self.files else "no file of the log was compared"
        )
        which = counted(self.unknown, "other" if self.files else "file", "have")
        unknown = f", {which} no checksum and no stored digest" if self.unknown else ""
        gone = (
            f", VACUUM or a person has removed {self.removed:,} that the table no longer needs" if self.removed else ""
        )
        return f"{compared}{unknown}{gone}"


def verify_log(lake: Lake, pipeline: Pipeline, view: LedgerView, *, span: Span) -> LogVerification:
    """Compare the log's files of published slices, and the commit files that they follow from.

    The runs of `view` have stored the digests. `span` are the slices to check.
    Raises StoreError: the object store of the log does not answer.
    """
    published = (view.runs[run_id] for run_id in view.published.values() if run_id in view.runs)
    runs = [run for run in published if span.holds(run.result.slice)]
    slices = tuple(run.result.slice for run in runs)
    known, name = known_log(view, slices), pipeline.log.table
    if not slices:
        return LogVerification(files=0, unknown=0, findings=())
    try:
        log = _opened(lake, pipeline)
        if isinstance(log, str):
            return LogVerification(files=0, unknown=0, why_not=log, findings=())
        known.log_files(log)
        listed = files_of_slices(log, by=pipeline.log.slice, slices=slices)
        removed = log.removed(file.path for file in listed)
        files = [file for file in listed if file.path not in removed]
        covered = covered_files(log, files, known=known)
        covers = dict(zip((file.path for file in covered), checked_files(covered), strict=True))
        wrong = [*_wrong_statistics(log, pipeline.log.slice, span)]
    except LogError as error:
        refuse_outage(lake.event_log(pipeline), error)
        return LogVerification(files=0, unknown=0, findings=(Finding(table=name, what=str(error)),))
    others = [Finding(table=name, file=path, what=what) for path, what in wrong]
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
            findings.append(Finding(table=name, slice_id=slice_ids[file.path], file=file.path, what=str(problem)))
    return LogVerification(
        files=len(covered) - unknown, unknown=unknown, removed=len(removed), findings=(*findings, *others)
    )


def _opened(lake: Lake, pipeline: Pipeline) -> LogVersion | str:
    """Return the log; or why a table of another pipeline, which is not damaged, is no log of the pipeline now."""
    try:
        return log_place(lake, pipeline).open()
    except (LogError, SpecError) as error:
        if pipeline.log.pipeline is not None:
            from jobs.reading.upstream_place import NothingPublishedError  # few pipelines need it

            if isinstance(error, NothingPublishedError | SpecError):
                return str(error)
        raise


def _wrong_statistics(log: LogVersion, by: SliceGrammar, span: Span) -> Iterator[tuple[str, str]]:
    """Yield each file whose statistics in the log tell other times of the slice column than its footer, and how.

    A replay does not open a file whose statistics name other slices, so all files of the log are compared, or those of
    the shares; none if the slices of a range are asked.
    """
    if (
        not log.has_commits
        or by.is_by_commits
        or is_partitioned(log, by)
        or span != Span(shares=span.shares, chosen=span.chosen)
    ):
        return
    [column] = by.columns
    read = footer_bounds(log, column, only=lambda path: crc32(path.encode()) % span.shares in span.chosen)
    stated = _spans(log, by, log.bounds(column))
    for path, own in _spans(log, by, read).items():
        if path in stated and not stated[path].first_ms <= own.first_ms <= own.last_ms <= stated[path].last_ms:
            told, has = (" to ".join(map(show_instant, times)) for times in (stated[path], own))
            yield (
                path,
                f"the log states that its column {column!r} is from {told}, and its footer from {has}. A replay looks "
                "for its records in the slices that the log states. Write its records into a new file (a compaction "
                "with dataChange = false), whose statistics are right",
            )


def _spans(log: LogVersion, by: SliceGrammar, bounds: "pa.Table") -> dict[str, TimeSpan]:
    """Return path -> the times of the slice column of a file, by its bounds."""
    kind = cast("TimeKind", log.nodes[by.columns[0]])
    lows, highs = (slice_instants(bounds[name].combine_chunks(), kind, by.zone).to_pylist() for name in ("low", "high"))
    return {path: TimeSpan.of(*ends) for path, *ends in zip(bounds["path"].to_pylist(), lows, highs, strict=True)}


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
