"""Finds a record in the log by its id, its slice by its columns, and tells whether a run has read it. No Spark."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from itertools import islice
from typing import Any, Final

from jobs.expressions.derived_columns import Derivation
from jobs.lake.covered_files import CoveredFile, StoredDigests
from jobs.lake.known_log import REWRITE
from jobs.lake.lake import Lake
from jobs.lake.log_cut import Cut, slice_value
from jobs.lake.log_match import Match, match_input
from jobs.lake.log_rows import Search, find_records, leaf_columns
from jobs.lake.log_version import DataFile, LogVersion
from jobs.lake.rewrite_search import find_rewrites
from jobs.lake.rewrites import Rewrite
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.log_schema import derivation
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slice_at, slice_grid
from jobs.plain_text import counted
from jobs.planning.log_state import read_log_state
from jobs.reading.log_places import log_place
from jobs.reading.plain_values import column_values
from jobs.runs import Slice
from windowlib.errors import LogError, RequestError, SpecError


def _whole_ms(value: object) -> str:
    """Return a value as text; of a time, the milliseconds are whole, as in the cut of the log."""
    return str(value.replace(microsecond=value.microsecond // 1000 * 1000) if isinstance(value, datetime) else value)


def slice_finder(pipeline: Pipeline, view: LedgerView) -> Callable[[Mapping[str, Any]], Slice]:
    """Return a function: the columns of a record or of a file -> its slice. Those of the partition are enough.

    It is the slice that readers see, which an earlier `log.slice` may have cut, otherwise that of the pipeline. The
    function raises RequestError if the slices are those of commits, and LogError if the columns name no slice.
    """
    by, grid = pipeline.log.slice, slice_grid(pipeline)
    cut = Cut(uri=pipeline.log.table, by=by, slices=())
    published = [view.slices[slice_id] for slice_id in view.published]

    def slice_of(values: Mapping[str, Any]) -> Slice:
        if by.is_by_commits:
            raise RequestError(
                f"the log of pipeline {pipeline.name} is cut into slices by its commits, so a record alone does not "
                "tell its slice; late, unassigned and invalid records are found by their hash"
            )
        own = {name: None if values[name] is None else _whole_ms(values[name]) for name in by.columns}
        value = slice_value(own, by.columns)
        if value is None:
            raise LogError(
                f"the record belongs to no slice, because its {' or '.join(map(repr, by.columns))} is null. "
                f"`hindcast status {pipeline.name}` tells what to do"
            )
        at_ms = cut.instant_ms(value)
        place = bisect_right(published, at_ms, key=lambda slice_: slice_.start_ms) - 1
        is_seen = place >= 0 and at_ms < published[place].end_ms
        return published[place] if is_seen else slice_at(grid, at_ms)

    return slice_of


MOST_RECORDS: Final = 1_000
"""So many records with one id are found in the log at most."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of the log and the slice in which it arrived, with the columns that are stored there.

    `removed_by` is the commit that removed or changed the record, if the newest version of the log does not have it.
    """

    log: LogVersion
    slice_id: str
    values: dict[str, Any]
    removed_by: Rewrite | None = None

    def derived(self, spec: Pipeline) -> tuple[dict[str, Any], bool]:
        """Return the record with the derived columns of a spec, and whether the filter of the spec keeps it."""
        derived = derivation(spec, self.log.columns)
        return _with_derived(self.log, derived, self.values) if derived else (self.values, True)


def records_of(
    lake: Lake,
    pipeline: Pipeline,
    record_id: str,
    *,
    view: LedgerView,
    only: frozenset[str] | None,
    version: int | None = None,
) -> list[LogRecord]:
    """Return the records of the log with an id, in slice order: at most `MOST_RECORDS`.

    `only` are the slices to search (None: all), and `version` is that of the log (None: the newest).

    Raises:
        RequestError: the log has no such record, or has it in a slice that is not among `only`, or the pipeline names
            no column of ids.
        LogError: the log cannot be read.
    """
    column = pipeline.log.record_id
    if column is None:
        raise RequestError(
            f"no late, unassigned or invalid record of pipeline {pipeline.name} has the hash {record_id}. Without "
            f"`log.record_id` in {pipeline.source}, Hindcast cannot search the log for other records: set it to a "
            "column that identifies a record"
        )

    log, search = log_search(lake, pipeline, view, only=only, version=version)
    derived = derivation(pipeline, log.columns)
    values = [*islice(find_records(log, column, record_id, search=search, derivation=derived), MOST_RECORDS)]
    if not values:
        removed = len(log.removed(file.path for file in log.files()))
        gone = f". VACUUM or a person has removed {counted(removed, 'file')} of it, which cannot be searched"
        raise RequestError(
            f"the log {pipeline.log.table} has no record whose {column} is {record_id!r}; take a value of that column "
            f"from the log{gone if removed else ''}"
        )
    slice_of = slice_finder(pipeline, view)
    placed = [(slice_of(_with_derived(log, derived, own)[0] if derived else own), own) for own in values]
    records = [
        LogRecord(log, slice_.slice_id, own) for slice_, own in sorted(placed, key=lambda pair: pair[0].start_ms)
    ]
    wanted = [record for record in records if only is None or record.slice_id in only]
    if not wanted:
        where = records[0].slice_id
        raise RequestError(f"record {record_id} is in slice {where} of the log, which is not one of those searched")
    return wanted


def _with_derived(log: LogVersion, derived: Derivation, record: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    from jobs.expressions.evaluation import derive

    derived_rows = derive(leaf_columns(log, derived, record), derived)
    values = {name: column_values(derived_rows.rows.column(name))[0] for name in derived.nodes}
    return record | values, derived_rows.kept is None or bool(derived_rows.kept[0])


def log_search(
    lake: Lake, pipeline: Pipeline, view: LedgerView, *, only: Collection[str] | None, version: int | None = None
) -> tuple[LogVersion, Search]:
    """Return the log at a version, and the choice of its files: of the slices `only` (None: all), with their digests.

    The choice looks at `only` when it is made, so the caller may change the collection between two searches.
    Raises LogError: the log cannot be read.
    """
    known = known_log(view, tuple(view.slices.values()))
    log = log_place(lake, pipeline).open(version)
    known.log_files(log)
    slice_of = slice_finder(pipeline, view)
    digests = cache(lambda slice_id: StoredDigests.of(known.file_digests(log.table_id, slice_id)))

    def search(file: DataFile, place: str, partition: Mapping[str, Any]) -> CoveredFile | None:
        slice_id, columns = "none", pipeline.log.slice.columns
        if columns and {*columns} <= partition.keys():
            with suppress(LogError):  # its records belong to no slice
                slice_id = slice_of(partition).slice_id
                if only is not None and slice_id not in only:
                    return None
        stored = digests(slice_id).of_path(file.digest_name)
        return CoveredFile(
            uri=log.uri, path=file.path, place=place, owner=f"slice {slice_id}", way_on=REWRITE, stored=stored
        )

    return log, search


def has_read(
    lake: Lake, pipeline: Pipeline, record: LogRecord, *, record_id: str, run: StagedRun, view: LedgerView
) -> bool | None:
    """Return whether a run of the record's slice has read it. None: the slice has changed, and nothing tells.

    If the Delta log shows a change of the slice, the record is looked up in the newest version of its table that has
    the records of the run.
    """
    slice_ = run.result.slice
    with suppress(LogError):  # a slice with a DELETE that nobody has accepted has changed
        now = read_log_state(pipeline, lake, [slice_], view=view).coordinates[slice_.slice_id]
        if match_input(run.sightings, now) is Match.SAME:
            return True
    equal_logs = (sighting.log for sighting in run.sightings if sighting.is_equal)
    versions = [log.version for log in equal_logs if log.table_id == record.log.table_id]
    if not versions:
        return None
    only = frozenset([slice_.slice_id])
    try:
        earlier = records_of(lake, pipeline, record_id, view=view, only=only, version=max(versions))
    except RequestError:
        return False
    except (LogError, SpecError):  # the version is gone, or lacks columns
        return None
    known = earlier[0].values.keys() & record.values.keys()  # columns may have been added since

    def equal(records: Sequence[LogRecord]) -> int:
        return sum(all(repr(own.values[name]) == repr(record.values[name]) for name in known) for own in records)

    read = equal(earlier)
    if not read or record.removed_by is not None:
        return read > 0
    return True if read >= equal(records_of(lake, pipeline, record_id, view=view, only=only)) else None


def removed_records(lake: Lake, pipeline: Pipeline, record_id: str, *, view: LedgerView) -> list[LogRecord]:
    """Return the records with an id that published runs have read and a commit has removed, of the newest such commit.

    Raises LogError: the log cannot be read.
    """
    for rewrite in sorted(_rewrites(lake, pipeline, view), key=lambda rewrite: -rewrite.version):
        only, before = frozenset(rewrite.slices), rewrite.version - 1
        with suppress(LogError, RequestError, SpecError):  # the version is gone, or lacks the record or columns
            records = records_of(lake, pipeline, record_id, view=view, only=only, version=before)
            removed = [replace(own, removed_by=rewrite) for own in records if own.slice_id in view.published]
            runs = {own.slice_id: view.run(view.published[own.slice_id]) for own in removed}
            read = partial(has_read, lake, pipeline, record_id=record_id, view=view)
            if may_be_read := [own for own in removed if read(own, run=runs[own.slice_id]) is not False]:
                return may_be_read
    return []


def _rewrites(lake: Lake, pipeline: Pipeline, view: LedgerView) -> Iterator[Rewrite]:
    """Yield the commits that removed or changed records of published slices, and that their runs have not read."""
    place, grid = log_place(lake, pipeline), slice_grid(pipeline)
    if pipeline.log.record_id is None or place.open().why_not_accepted:
        return
    for run_id in view.published.values():
        yield from (accepted.rewrite for accepted in view.rewrites_since(view.run(run_id)))
    published = (view.slices[slice_id] for slice_id in view.published)
    slices = tuple(slice_ for slice_ in published if slice_at(grid, slice_.start_ms) == slice_)
    yield from find_rewrites(place, by=pipeline.log.slice, slices=slices, known=known_log(view, slices)).rewrites
