"""The records of a log that is a table of another pipeline: of which runs a slice is made, and its rows.

A window is one record of the first slice after which no record can change it: the watermark has passed its end and the
allowed lateness, and no later slice has a pane of it. Its values are those of its last pane, which an earlier slice may
have fired. Panes of mode `discarding` add up, so each of them is a record. So publications of later slices change no
record of an earlier one, and a corrected slice changes the slices in which its windows became final. A late repair, and
an adopted spec with a greater lateness, may fire a window again that was final: this and later windows are then records
of the slice that fired it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import Final

from cachetools import LRUCache

from jobs.engine.fingerprints import fingerprint
from jobs.lake.arrow_sql import query
from jobs.lake.damage import reading
from jobs.lake.delta_tables import open_table
from jobs.lake.lake import Lake
from jobs.lake.store import table_columns
from jobs.lake.table_files import Attempt
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.log import LogGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.upstream import SLICE_COLUMN, WINDOW_TIME
from jobs.reading.published import KeyedRuns, PublishedView, published_runs, published_sql, quote_duckdb, runs_by_keys
from jobs.reading.stored_rows import StoredRuns, of_attempts, run_attempt, statistics_digests
from jobs.reading.stored_tables import spec_of, stored_table
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.errors import LogError
from windowlib.libraries import pa, pc
from windowlib.profiles import profile
from windowlib.records import tables

FORMAT: Final = 2
"""Increase it when the rows of a slice get other columns or another order."""
MOST_MS: Final = 2**53
"""Instants farther from 1970 are those of no window."""
_NUMBER: Final = "__number"
_Span = tuple[int, int]
_READ: Final[LRUCache[tuple[str, Attempt], _Span]] = LRUCache(100_000)
"""The bounds of rewritten attempts that this process has read. The rows of an attempt never change."""
_LOCK: Final = Lock()
_TIMED: Final = ("tumbling", "sliding", "session", "dynamic_session")
"""The kinds of windows that end by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSlice:
    """What one slice of the log is made of.

    `run` is the published run of the slice. `parts` are the published runs whose rows are read: this run, and earlier
    ones that may have panes of its windows. `groups` are the parts by their key columns: panes of one window are in
    parts with the same ones. The slice has the windows that end after the first and up to the second of `ends_ms`;
    None: all rows.
    """

    run: StagedRun
    parts: tuple[StagedRun, ...]
    groups: tuple[KeyedRuns, ...] = ()
    ends_ms: tuple[int, int] | None = None

    def digest(self, log: LogGrammar) -> str:
        """Return a digest of all that its rows follow from. A run's id determines the run's rows (law L1)."""
        runs = [part.result.run_id for part in self.parts]
        keys = [[group.keys for group in self.groups]] if len(self.groups) > 1 else []
        return fingerprint([FORMAT, log.pipeline, log.table, log.panes, runs, self.ends_ms, *keys])


def upstream_slices(lake: Lake, view: LedgerView, log: LogGrammar) -> list[UpstreamSlice]:
    """Return the published slices of the other pipeline as slices of the log, in order.

    Raises:
        LogError: windows of the other pipeline do not end by time, so that no pane is the final one.
        StoreError: the table of the other pipeline cannot be read.
    """
    runs = published_runs(view)
    if log.panes != "final":
        return [UpstreamSlice(run=run, parts=(run,)) for run in runs]
    bounds = _bounds(lake, view, log, runs=runs)
    untils_ms = _untils_ms(view, runs, bounds)
    slices, parts, final_ms = list[UpstreamSlice](), list[tuple[StagedRun, int, int]](), MIN_TIME_MS
    for run, until_ms in zip(runs, untils_ms, strict=True):
        first_ms, last_ms = bounds.get(run_attempt(run), (MIN_TIME_MS, MAX_TIME_MS))
        own = (*(part for part, first_end_ms, _ in parts if first_end_ms <= until_ms), run)
        groups = runs_by_keys(view, own)
        slices.append(UpstreamSlice(run=run, parts=own, groups=groups, ends_ms=(final_ms, until_ms)))
        final_ms = until_ms
        parts = [part for part in (*parts, (run, first_ms, last_ms)) if part[2] > final_ms]
    return slices


def _bounds(lake: Lake, view: LedgerView, log: LogGrammar, *, runs: Sequence[StagedRun]) -> dict[Attempt, _Span]:
    """Return two instants in ms, between which all windows of a run end, for each attempt with files.

    They are those of the statistics. After OPTIMIZE, the rows are read, because windows that are records of a slice
    must not become records of another one.
    """
    assert log.pipeline is not None, "the log is a table of a pipeline"
    digests = statistics_digests(runs)
    with reading(uri := lake.table(log.pipeline, log.table)):
        table = open_table(uri)
        if table is None:
            return {}
        bounds = table.listing().times("window_end", digests)
        rewritten = {attempt for attempt, digest in digests.items() if digest is not None and attempt not in bounds}
        rewritten &= {file.attempt for file in table.listing().of(rewritten)}
    with _LOCK:
        bounds |= {attempt: _READ[uri, attempt] for attempt in rewritten if (uri, attempt) in _READ}
    stored, missing = StoredRuns(lake, log.pipeline, view), rewritten - bounds.keys()
    others = [run for run in runs if run_attempt(run) in missing]
    for batch in stored.batches(log.table, others, ("window_end", *tables.PARTITION_COLUMNS)) if others else ():
        for attempt, (first_ms, last_ms) in _ends_ms(batch).items():
            own = bounds.get(attempt, (MAX_TIME_MS, MIN_TIME_MS))
            bounds[attempt] = min(own[0], first_ms), max(own[1], last_ms + 1)
    with _LOCK:
        _READ.update({(uri, attempt): bounds[attempt] for attempt in missing & bounds.keys()})
    return bounds


def _ends_ms(batch: "pa.RecordBatch") -> dict[Attempt, _Span]:
    """Return the first and the last end of a window of each attempt; none of windows without an end."""
    ends = batch["window_end"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    rows = pa.table({"end": ends} | {name: batch[name] for name in tables.PARTITION_COLUMNS})
    grouped = rows.group_by([*tables.PARTITION_COLUMNS]).aggregate([("end", "min"), ("end", "max")]).to_pylist()
    spans = (((each["slice_id"], each["attempt_id"]), (each["end_min"], each["end_max"])) for each in grouped)
    return {attempt: span for attempt, span in spans if span[0] is not None}


def _untils_ms(view: LedgerView, runs: Sequence[StagedRun], bounds: Mapping[Attempt, _Span]) -> Sequence[int]:
    """Return the end of the last windows of each slice: they are final after its run, and no later run has a pane.

    A run of a repair, or of a spec with a greater lateness, has panes of windows that were final before it.
    """
    untils_ms, capped_ms = list[int](), MAX_TIME_MS
    for run, before in zip(reversed(runs), (*reversed(runs[:-1]), None), strict=True):
        untils_ms.append(min(capped_ms, _final_until_ms(spec_of(view, run), run)))
        if before is not None:  # without statistics, the spec of the run tells which windows were open before it
            own = bounds.get(run_attempt(run))
            open_ms = _final_until_ms(spec_of(view, run), before) if own is None else own[0] - 1
            capped_ms = min(capped_ms, open_ms)
    return [*accumulate(reversed(untils_ms), max)]


def _final_until_ms(spec: Pipeline, run: StagedRun) -> int:
    """Return the end of the last windows that are final after a run: no later record changes them."""
    windows, name, slice_ = spec.windows, spec.name, run.result.slice
    if windows is None or not any(getattr(windows, kind) is not None for kind in _TIMED):
        raise LogError(
            f"panes: final: slice {slice_.slice_id} of pipeline {name} has no windows that end by the time of its "
            "records, so no pane is known to be the last one. Write panes: all"
        )
    if windows.is_processing_time:
        return slice_.end_ms  # the end of a slice fires all timers before it
    if run.result.watermark_ms is None:
        return MIN_TIME_MS
    return run.result.watermark_ms - windows.allowed_lateness_ms - profile(spec.semantics).deleted_after_end_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRows:
    """The rows of a slice in their order, and a digest of them. Equal rows in the same order have the same digest."""

    slice: UpstreamSlice
    rows: "pa.Table"
    digest: str


def rows_of(lake: Lake, view: LedgerView, log: LogGrammar, *, slices: Sequence[UpstreamSlice]) -> Iterator[SliceRows]:
    """Yield the rows of slices. The parts of all of them are read at once, and compared with the ledger.

    Raises:
        LogError: there is no such table, or it has a column `window_time`.
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    assert log.pipeline is not None, "the log is a table of a pipeline"
    parts = {part.result.run_id: part for slice_ in slices for part in slice_.parts}
    stored = StoredRuns(lake, log.pipeline, view).read(log.table, parts.values())
    columns = table_columns(lake.table(log.pipeline, log.table))
    if not columns:
        raise LogError(f"pipeline {log.pipeline} has no table {log.table} yet, which log.table names")
    # What is no part of a record: bytes that are no text, and places that have no meaning.
    left_out = "undecoded" if log.panes != "final" else "fired_rank"
    for slice_ in slices:
        own = _own_rows(stored, slice_, log)
        table = stored_table(spec_of(view, slice_.run), log.table, columns, log=dict)
        own = own.sort_by([(name, "ascending") for name in log.order_columns or ()])
        names = [*table.columns(), tables.ROW_ID]
        names = [name for name in names if name in own.column_names and name != left_out]
        rows = _flat(own.select(names), log)
        if log.table == tables.WINDOW_OUTPUTS:
            rows = _with_window_time(rows, log)
        yield SliceRows(slice=slice_, rows=rows, digest=_digest(own, rows.schema, log))


def _own_rows(stored: "pa.Table", slice_: UpstreamSlice, log: LogGrammar) -> "pa.Table":
    """Return the rows of a slice, of the stored rows of its parts."""
    if slice_.ends_ms is None:
        return of_attempts(stored, {run_attempt(part, log.table) for part in slice_.parts})
    return pa.concat_tables(
        _last_panes(
            of_attempts(stored, {run_attempt(part, log.table) for part in group.runs}), group.keys, slice_.ends_ms
        )
        for group in slice_.groups
    )


def _digest(rows: "pa.Table", schema: "pa.Schema", log: LogGrammar) -> str:
    """Return a digest of rows in their order: of their ids and, if they are in the record, their places."""
    digest = hashlib.blake2b(str([(field.name, str(field.type)) for field in schema]).encode(), digest_size=16)
    places = ("fired_rank", "rank", tables.ROW_CHECK) if log.panes != "final" else ()
    for name in (tables.ROW_ID, *places):
        if name in rows.column_names:
            digest.update(rows[name].fill_null(0).to_numpy().tobytes())
    return digest.hexdigest()


def _last_panes(rows: "pa.Table", keys: Sequence[str], ends_ms: tuple[int, int]) -> "pa.Table":
    """Return the published panes of the windows that end in an interval: the last ones, and discarding ones."""
    kind = rows.schema.field("window_end").type
    low, high = (pa.scalar(max(min(at_ms, MOST_MS), -MOST_MS) * 1_000, kind) for at_ms in ends_ms)
    chosen = rows.filter(pc.and_(pc.greater(rows["window_end"], low), pc.less_equal(rows["window_end"], high)))
    numbered = chosen.append_column(_NUMBER, pa.array(range(chosen.num_rows), pa.int64()))
    view = PublishedView(keys=keys, columns=[_NUMBER])
    last = query({"panes": numbered}, published_sql(view, relation="panes", quote=quote_duckdb))
    return chosen.take(last[_NUMBER])


def record_names(fields: Iterable[str], log: LogGrammar) -> dict[str, str]:
    """Return field of the record -> its column. A field with the name of a column that tells the place has a prefix."""
    names, places = {name: name for name in fields}, {SLICE_COLUMN, *(log.order_columns or ())}
    for name in [name for name in names if name.casefold() in places]:
        other = f"record_{name}"
        while other.casefold() in {taken.casefold() for taken in names.values()}:
            other = f"record_{other}"
        del names[name]  # its column is the last one
        names[name] = other
    return names


def _flat(rows: "pa.Table", log: LogGrammar) -> "pa.Table":
    """Return rows with the fields of the record as columns. A column of the table of such a name is left out.

    A field without a value is left out, too: the log may have got it after the run, and a missing column is null.
    """
    if "record" not in rows.column_names:
        return rows
    record = rows["record"].combine_chunks()
    fields = dict(zip((field.name for field in record.type), record.flatten(), strict=True))
    names = record_names(fields, log)
    taken = {name.casefold() for name in names.values()} | {"record"}
    valued = {column: fields[name] for name, column in names.items() if fields[name].null_count < rows.num_rows}
    others = {name: rows[name] for name in rows.column_names if name.casefold() not in taken}
    return pa.table(valued | others)


def _with_window_time(rows: "pa.Table", log: LogGrammar) -> "pa.Table":
    own = [name for name in rows.column_names if name.casefold() == WINDOW_TIME]
    if own:
        raise LogError(
            f"the windows of pipeline {log.pipeline} have a key or an output {own[0]!r}, and as records of a log they "
            f"get a column {WINDOW_TIME}, the last millisecond of the window. Give the key or the output of pipeline "
            f"{log.pipeline} another name (log.columns: {{other_name: {own[0]}}} gives a key one)"
        )
    ends = rows["window_end"]
    return rows.append_column(WINDOW_TIME, pc.subtract(ends, pa.scalar(1_000, pa.duration("us"))).cast(ends.type))
