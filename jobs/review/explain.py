"""Explains the fate of one record, as a text and as data. No Spark.

Late, unassigned and invalid records have a row with the reason in a side table. By the law of conservation (L3), every
other record of a replayed slice is in windows: windows that fired are in window_outputs, open windows in window_state.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from jobs.engine.fingerprints import relevant_document
from jobs.lake.lake import Lake
from jobs.lake.store import attempts_dataset
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.files import pipeline_document
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_instant
from jobs.plain_text import agreeing, counted, first_of
from jobs.planning.spec_changes import in_one_sentence, spec_changes
from jobs.reading.plain_values import plain, rows_of
from jobs.reading.published import HIDDEN
from jobs.reading.stored_rows import IDS, StoredRuns
from jobs.reading.stored_tables import spec_of
from jobs.review.explain_rows import MAX_WINDOWS, Fate, duplicate, invalid, late, unassigned
from jobs.review.explain_windows import RecordWindows, record_time, windows_of
from jobs.review.log_search import LogRecord, has_read, records_of, removed_records
from jobs.review.record_ids import ids_by
from windowlib.columnar.undecodable import readable
from windowlib.errors import LogError, RequestError
from windowlib.libraries import pa, pc
from windowlib.records.tables import DUPLICATE_RECORDS, INVALID_RECORDS, LATE_RECORDS, ROW_ID, UNASSIGNED_RECORDS

_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{1,16}")  # fewer digits: without leading zeros, as older runs stored them
_DECIMAL = re.compile(r"-?[0-9]{1,19}")
MOST_TOLD: Final = 10
"""So many records with one id are explained at most."""
_UNSURE: Final = (
    " Slice {slice_id} has changed since its run, and nothing tells whether the run has read this record: the version "
    "of the log that the run read is gone, or has fewer records that equal it. If the record came after the run, this "
    "is not its fate."
)
NOT_PUBLISHED = " Readers do not see this yet: the run is staged, not published."


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The fate of one record. `details` is the row of its side table, or the record with its windows.

    `slice_id` is the slice in which the record arrived. `is_published`: readers see the run that decided the fate.
    `others` are explanations of other records with this id, without others of their own. Of `left_out` more, there is
    none.
    """

    record_id: str
    fate: Fate
    sentence: str
    slice_id: str | None
    is_published: bool
    details: Mapping[str, Any] = field(default_factory=dict)
    others: "tuple[Explanation, ...]" = ()
    left_out: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """The explanation in sentences; a line for each record, if several have this id."""
        if not self.others:
            return (self.sentence,)
        told = 1 + len(self.others)
        cut = f"; {told} of them are explained" if self.left_out else ""
        several = f"{counted(told + self.left_out, 'record', 'have')} the id {self.record_id}{cut}."
        return (several, self.sentence, *(other.sentence for other in self.others))

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain JSON data; times are ISO texts in UTC."""
        others = {"others": [other.to_json() for other in self.others], "left_out": self.left_out}
        return {
            "record_id": self.record_id,
            "fate": self.fate,
            "slice_id": self.slice_id,
            "published": self.is_published,
            "sentence": self.sentence,
            "details": plain(self.details),
            **(others if self.others else {}),
        }


Locator = Callable[[StagedRun, str], tuple[int, int | None]]
"""(run of the record's slice, record id) -> (rank in the slice, watermark before the record)."""


def explain(
    lake: Lake, pipeline: Pipeline, record_id: str, *, view: LedgerView, locate: Locator | None = None,
    only: frozenset[str] | None = None,
) -> Explanation:  # fmt: skip
    """Return the fate of a record in the published runs; for slices without one, in the runs of open requests.

    If several records have the id, those of side tables come first: the others are in slice order after them.
    `pipeline` is the spec of the chain. It finds the record, and the spec of the slice's run explains the slice.
    `record_id` is the value of the column `log.record_id`. Without such a column, it is the hash of a record of a side
    table: its `record_id` (16 hexadecimal digits), or its `record_hash` (a decimal number). `locate` finds the position
    of an assigned record, which no table stores. `only` are the slices whose part of the log is searched (None: all),
    and the view should have no others.

    Raises:
        RequestError: the log has no such record, or has it in a slice that is not among `only`.
        LogError: the log cannot be read.
        StoreError: stored rows cannot be read, or differ from those that were written.
    """
    rows, told = _from_side_tables(lake, pipeline, record_id, view=view)
    records, problem = _in_log(lake, pipeline, record_id, view=view, only=only, rows=rows)
    for record in records[: max(0, MOST_TOLD - len(told))]:
        is_first = sum(each.slice_id == record.slice_id for each in records) == 1 and all(
            "earlier_rank" in row for row in rows if row["slice_id"] == record.slice_id
        )
        find = locate if is_first and record.removed_by is None else None
        told.append(_from_log(lake, pipeline, record_id, record=record, view=view, locate=find))
    left_out = len(rows) + len(records) - len(told)
    return replace(told[0], sentence=told[0].sentence + problem, others=tuple(told[1:]), left_out=left_out)


def _in_log(
    lake: Lake, pipeline: Pipeline, record_id: str, *, view: LedgerView, only: frozenset[str] | None,
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[LogRecord], str]:  # fmt: skip
    """Return the records of the log with an id that have none of the rows of side tables.

    If it cannot be searched, and there are rows, a sentence tells why.
    """
    if rows and not pipeline.log.record_id:
        return [], ""
    try:
        return _without(rows, records_of(lake, pipeline, record_id, view=view, only=only)), ""
    except RequestError:
        removed: list[LogRecord] = []
        if not rows and only is None:
            with suppress(LogError):
                removed = removed_records(lake, pipeline, record_id, view=view)
        if not rows and not removed:
            raise
        return removed, ""
    except LogError as error:
        if not rows:
            raise
        return [], f" The log could not be searched for other records with this id: {error}"


def _from_side_tables(
    lake: Lake, pipeline: Pipeline, record_id: str, *, view: LedgerView
) -> tuple[list[dict[str, Any]], list[Explanation]]:
    """Return the rows of the side tables with an id, and the explanations of the first ones."""
    runs, stored = _runs(view), StoredRuns(lake, pipeline.name, view)
    column = "record_id" if pipeline.log.record_id else "record_hash"
    wanted = (column, [record_id] if pipeline.log.record_id else [*_hashes(record_id)])
    side_tables = [(LATE_RECORDS, late), (UNASSIGNED_RECORDS, unassigned), (INVALID_RECORDS, invalid)]
    if any(DUPLICATE_RECORDS in run.result.digests for run in runs.values()):
        side_tables.append((DUPLICATE_RECORDS, duplicate))
    rows: list[dict[str, Any]] = []
    told: list[Explanation] = []
    others = [run for run in runs.values() if spec_of(view, run).log.record_id != pipeline.log.record_id]
    named_id = pipeline.log.record_id
    ids = ids_by(lake, pipeline, named_id) if named_id and others else None  # their rows have ids of another column
    for table, explain_row in side_tables:
        named = _side_rows(stored, table, [*runs.values()], wanted=wanted)
        if ids is not None:
            again = _side_rows(stored, table, others, wanted=("record", [record_id]), ids=ids)
            known = {row[ROW_ID] for row in named}
            named += [row for row in again if row[ROW_ID] not in known]
        for row in named:
            if column == "record_hash" and rows and row[column] != rows[0][column]:  # the text is a hash in both forms
                continue
            rows.append(row)
            if len(told) == MOST_TOLD:
                continue
            shown = record_id if pipeline.log.record_id else f"{row['record_hash'] % 2**64:016x}"
            spec = spec_of(view, runs[row["slice_id"]])
            fate, sentence = explain_row(spec, shown, row)
            sentence += _other_spec(pipeline, spec, row["slice_id"])
            details = {name: value for name, value in row.items() if name not in HIDDEN}
            told.append(
                _explanation(
                    shown, fate, sentence, slice_id=row["slice_id"], is_published=_is_published(view, row),
                    details=details,
                )
            )  # fmt: skip
    return rows, told


def _without(rows: Sequence[Mapping[str, Any]], records: Sequence[LogRecord]) -> list[LogRecord]:
    """Return the records of the log that no row of a side table is of: each row is of the most similar one."""
    left = [*records]
    for row in rows:
        stored = row.get("record") or {}
        similar = [
            (sum(stored.get(name) == value for name, value in record.values.items()), place)
            for place, record in enumerate(left)
            if record.slice_id == row["slice_id"]
        ]
        if similar:
            del left[max(similar)[1]]
    return left


def _runs(view: LedgerView) -> dict[str, StagedRun]:
    """Return the run of each slice, in slice order: the published one, otherwise that of the newest open request."""
    chosen = {slice_id: run_id for request in view.awaited_requests() for slice_id, run_id in request.runs.items()}
    runs = [view.run(run_id) for run_id in {**chosen, **view.published}.values()]
    return {run.result.slice.slice_id: run for run in sorted(runs, key=lambda run: run.result.slice.start_ms)}


def _is_published(view: LedgerView, row: Mapping[str, Any]) -> bool:
    run = view.published_run(row["slice_id"])
    return run is not None and run.result.attempt_id == row["attempt_id"]


def _side_rows(
    stored: StoredRuns, table: str, runs: Sequence[StagedRun], *, wanted: tuple[str, Sequence[str | int]],
    ids: Callable[[Any], Any] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the whole rows of some runs in a side table whose value in a column is wanted, in the order of the values.

    Of the other rows of a large table, the values of this column and the ids are read. `ids` tells the values to which
    the wanted ones are compared, of those of the column; None: these themselves.
    """
    column, values = wanted
    narrow = []
    for batch in stored.batches(table, runs, (column, *IDS)):
        own = batch[column] if ids is None else ids(batch[column])
        narrow += rows_of(batch.filter(pc.is_in(own, value_set=pa.array(values, own.type))))
    attempts = {(row["slice_id"], row["attempt_id"]) for row in narrow}
    with attempts_dataset(stored.lake.table(stored.pipeline, table), attempts) as dataset:
        if dataset is None:
            return []
        rows = dataset.to_table(filter=pc.field(ROW_ID).isin([row[ROW_ID] for row in narrow]))
    whole = rows_of(readable(rows))
    return whole if ids is not None else sorted(whole, key=lambda row: values.index(row[column]))


def _hashes(text: str) -> Iterator[int]:
    """Yield the hashes that a text may name. A text that is a hash in both forms is read as hexadecimal first."""
    if _HEXADECIMAL.fullmatch(text):
        yield (int(text, 16) + 2**63) % 2**64 - 2**63
    if _DECIMAL.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        yield int(text)


def _explanation(
    record_id: str, fate: Fate, sentence: str, *, slice_id: str, is_published: bool, details: Mapping[str, Any]
) -> Explanation:
    """Return the explanation of a record of a slice that was replayed."""
    return Explanation(
        record_id=record_id,
        fate=fate,
        sentence=sentence if is_published else sentence + NOT_PUBLISHED,
        slice_id=slice_id,
        is_published=is_published,
        details=details,
    )


def _other_spec(pipeline: Pipeline, spec: Pipeline, slice_id: str) -> str:
    """Return a sentence that a slice was computed with another spec than `pipeline`; empty if it was not."""
    if relevant_document(pipeline_document(spec)) == relevant_document(pipeline_document(pipeline)):
        return ""
    changes = in_one_sentence(spec_changes(spec, pipeline))
    return f" Slice {slice_id} was computed with another spec than the one in force: {changes}."


def _from_log(
    lake: Lake, pipeline: Pipeline, record_id: str, *, record: LogRecord, view: LedgerView, locate: Locator | None
) -> Explanation:
    """Explain a record of the log that no side table has: filtered, in windows, or in a slice not yet replayed."""
    runs, slice_id = _runs(view), record.slice_id
    run = runs.get(slice_id)
    if run is None:
        sentence = f"Record {record_id} is in the log, in slice {slice_id}, which has not been replayed yet."
        return Explanation(
            record_id=record_id, fate="not replayed", sentence=sentence, slice_id=slice_id, is_published=False,
            details={"record": record.derived(pipeline)[0]},
        )  # fmt: skip
    spec = spec_of(view, run)
    values, is_kept = record.derived(spec)
    is_published = view.published.get(slice_id) == run.result.run_id
    is_read = has_read(lake, pipeline, record, record_id=record_id, run=run, view=view)
    if is_read is False:
        return _not_read(pipeline, record_id, run=run, is_published=is_published, values=values)
    unsure = ("" if is_read else _UNSURE.format(slice_id=slice_id)) + _removal(pipeline, record)
    if not is_kept:
        sentence = (
            f"Record {record_id} is filtered: it arrived in slice {slice_id}, and log.where ({spec.log.where}) "
            "does not keep it. It is counted, and it is in no window and in no other table."
        ) + (_other_spec(pipeline, spec, slice_id) + unsure)
        own = {"record": values}
        fate: Fate = "filtered" if is_read else "unknown"
        return _explanation(record_id, fate, sentence, slice_id=slice_id, is_published=is_published, details=own)
    happened = record_time(spec.log.event_time, values)
    keys = {*spec.log.key_columns}
    same_keys = {name: run for name, run in runs.items() if {*spec_of(view, run).log.key_columns} == keys}
    unpublished = runs.keys() - view.published.keys() if is_published else frozenset[str]()
    windows = windows_of(lake, spec, values, runs=same_keys, unpublished=unpublished)
    key = ", ".join(f"{column} {values[column]}" for column in spec.log.key_columns) or "all records"
    when = happened.problem if happened.ms is None else show_instant(happened.ms)
    sentence = (
        f"Record {record_id} is assigned: it happened at {when} and arrived in slice "
        f"{slice_id}, in time for {'the function' if spec.windows is None else 'its windows'} of {key}. "
        f"{_windows_text(windows, last=[*same_keys][-1]) or _no_windows_text(spec)}."
    )
    details = {
        "record": values,
        "event_time_ms": happened.ms,
        "fired": list(windows.fired),
        "superseded": dict(windows.superseded),
        "open": list(windows.still_open),
        "fired_not_published": dict(windows.fired_later),
        "superseded_not_published": dict(windows.superseded_later),
        "run_id": run.result.run_id,
    }
    if locate is not None:
        rank, met_ms = locate(run, record_id)
        details |= {"rank": rank, "watermark_ms": met_ms}
        met = "there was no watermark yet" if met_ms is None else f"the watermark was {show_instant(met_ms)}"
        sentence += f" It is at place {rank + 1:,} of its slice. When it arrived, {met}."
    sentence += _other_spec(pipeline, spec, slice_id) + unsure
    fate = "assigned" if is_read else "unknown"
    return _explanation(record_id, fate, sentence, slice_id=slice_id, is_published=is_published, details=details)


def _removal(pipeline: Pipeline, record: LogRecord) -> str:
    """Return the commit that has removed a record, as a sentence; empty if the log has the record."""
    if record.removed_by is None:
        return ""
    return (
        f" In the log, {record.removed_by.named} has removed or changed the record since. "
        f"`hindcast status {pipeline.name}` tells what becomes of the slice."
    )


def _not_read(
    pipeline: Pipeline, record_id: str, *, run: StagedRun, is_published: bool, values: Mapping[str, Any]
) -> Explanation:
    """Return the explanation of a record that came into its slice after the run."""
    slice_id = run.result.slice.slice_id
    which = "the run that readers see" if is_published else "its staged run"
    sentence = (
        f"Record {record_id} is in slice {slice_id} of the log, but {which} has not read it: the slice has changed "
        f"since. Readers do not see the record. `hindcast status {pipeline.name}` tells what becomes of the slice."
    )
    return Explanation(
        record_id=record_id, fate="not read", sentence=sentence, slice_id=slice_id, is_published=False,
        details={"record": values, "run_id": run.result.run_id},
    )  # fmt: skip


def _windows_text(windows: RecordWindows, *, last: str) -> str:
    """Return the windows after the slice `last` in words; empty without any."""
    taken = [f"{bounds} by {heir or 'nothing that readers see'}" for bounds, heir in windows.superseded.items()]
    parts = (
        ("fired", windows.fired),
        ("fired and {} superseded now", taken),
        (f"{{}} still open after slice {last}", windows.still_open),
    )
    texts = [_counted(texts, what) for what, texts in parts if texts]
    for words, by_slice in (("fired", windows.fired_later), ("{} superseded", windows.superseded_later)):
        for slice_id in sorted({*by_slice.values()}):
            own = [bounds for bounds, place in by_slice.items() if place == slice_id]
            texts.append(_counted(own, f"{words} in slice {slice_id}, which is not published"))
    return ". ".join(texts)


def _counted(windows: Sequence[str], what: str) -> str:
    happened = what.format(agreeing(len(windows), "are"))
    return f"{counted(len(windows), 'window')} {happened}: {first_of(windows, MAX_WINDOWS)}"


def _no_windows_text(pipeline: Pipeline) -> str:
    """Return why no window is named."""
    if pipeline.windows is None:
        return "There are no windows: the function processes each record alone"
    if pipeline.windows.is_unbounded:
        return "The windows have no bounds in time, so the tables do not show in which panes of this key it is"
    if pipeline.windows.is_processing_time:
        return (
            "The replay's clock at the record tells its windows, and no table has it: "
            f"`hindcast explain {pipeline.name} --window` tells the records of a window"
        )
    return "They were merged into other windows, or closed without a firing"
