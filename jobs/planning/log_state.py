"""The state of the event log for a range of slices, from the Delta log and the ledger. No record is read."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.lake.covered_files import Cover, cover_of
from jobs.lake.damage import log_errors
from jobs.lake.event_log import PinnedLog
from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.lake.store import check_columns
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.log_schema import input_columns
from jobs.pipeline.look_back import look_back
from jobs.pipeline.models.log import PartitionType
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.ready import ReadyGrammar
from jobs.pipeline.slices import SliceGrid, slice_at, slice_grid
from jobs.planning.log_pin import pin_input
from jobs.reading.log_places import log_place, tables_in_log
from jobs.reading.stored_tables import log_columns, spec_of
from jobs.runs import LogCoordinates, Slice
from jobs.storage import file_system
from windowlib.errors import SpecError
from windowlib.records.column_types import spell_type
from windowlib.records.tables import window_outputs

if TYPE_CHECKING:
    from jobs.planning.state_columns import StateGate


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The coordinates of each slice of a range, and the first and last slice with records (None: no record).

    Records outside the pipeline's `first..last` are ignored. `last_data` has begun: a record of a slice of the future,
    such as one with a wrong date, tells nothing of the slices before it. `data_ms` are the distinct instants of the
    slice column that have records, ascending. `newest_data_ms` is when the newest commit that adds data was made, if
    the readiness of a slice of the range depends on it; else None. `known` saves the next `pin_log` from reading the
    same commits again. `warnings` are sentences for the person who plans. `missing` maps the slices whose records the
    log does not have yet to the reason, if the log is a table of another pipeline; None of other logs, which cannot
    tell that. `first_whole` is the first slice with records that is not there in part only; None without one.
    `gate` refuses states that cannot go on with the columns of the log.
    """

    version: int
    coordinates: Mapping[str, LogCoordinates]
    first_data: Slice | None
    last_data: Slice | None = None
    data_ms: tuple[int, ...] = ()
    newest_data_ms: int | None = None
    known: KnownLog = field(default_factory=KnownLog)
    warnings: tuple[str, ...] = ()
    missing: Mapping[str, str] | None = None
    first_whole: Slice | None = None
    gate: "StateGate | None" = field(default=None, compare=False, repr=False)

    @property
    def beginning(self) -> Slice | None:
        """The slice with which a chain of all records begins. Slices before it may never be whole."""
        return self.first_whole or self.first_data

    def has_records(self, slice_: Slice) -> bool:
        place = bisect_left(self.data_ms, slice_.start_ms)
        return place < len(self.data_ms) and self.data_ms[place] < slice_.end_ms

    def after_data(self, slices: Iterable[Slice]) -> tuple[Slice, ...]:
        """Return the slices after the last one with records: nothing in the log tells whether they have arrived."""
        last = self.last_data
        return tuple(slice_ for slice_ in slices if last is None or slice_.start_ms > last.start_ms)


def read_log_state(
    pipeline: Pipeline,
    lake: Lake,
    slices: Sequence[Slice],
    *,
    view: LedgerView | None = None,
    before: LogState | None = None,
    now_ms: int | None = None,
) -> LogState:
    """Read the Delta log for a range of slices. Commits that a run in `view` has seen are not read again.

    `before` is the state of the same slices that was read a moment ago. It is returned if the log has no newer commit.
    `now_ms` is the time; None: every slice has begun.

    Raises:
        LogError: the log is missing, or no kind of table that can be read.
        SpecError: the pipeline names columns that the log does not have, or is new and would write its tables into
            the directory of the log; or a column was widened, and stored rows have another type of a key or an output;
            or `log.partitions` gives a column another type than published slices have.
    """
    from jobs.planning.state_columns import StateGate  # commands that read no log do not need it

    inside = tables_in_log(lake, pipeline)
    if inside is not None and view is not None and not view.version:
        raise SpecError(inside)
    if before is not None and log_place(lake, pipeline).is_newest(before.version):
        return before
    known = None if view is None else known_log(view, look_back(pipeline, slices).every)
    pinned = pin_input(pipeline, lake, slices, known=known, row_ids=False)
    if slices and pinned.widened:
        _refuse_widened(pipeline, lake, pinned)
    if pipeline.log.format == "parquet" and view is not None and view.head is not None:
        _refuse_other_partitions(pipeline, lake, pinned, published=spec_of(view, view.head).log.partitions or {})
    grid = slice_grid(pipeline)
    filled = _inside(grid, pinned.data_ms)
    begun = filled if now_ms is None else filled[: bisect_left(filled, slice_at(grid, now_ms).end_ms)]
    last = slice_at(grid, begun[-1]) if begun else None
    return LogState(
        version=pinned.version,
        coordinates={slice_.slice_id: pinned.coordinates(slice_.slice_id) for slice_ in slices},
        first_data=slice_at(grid, filled[0]) if filled else None,
        last_data=last,
        data_ms=tuple(filled),
        newest_data_ms=pinned.newest_data_ms() if last in slices and waits_for_commits(pipeline.log.ready) else None,
        known=pinned.known(),
        warnings=(*([] if inside is None else [inside]), *_unprotected(pinned)),
        missing=pinned.table.missing(slices),
        first_whole=next((own for at_ms in filled if pinned.table.is_whole(own := slice_at(grid, at_ms))), None),
        gate=StateGate.of(pipeline, lake, pinned),
    )


def _refuse_widened(pipeline: Pipeline, lake: Lake, pinned: PinnedLog) -> None:
    """Refuse keys and outputs whose type a widened column changes while stored rows have another, as a replay does.

    A plan imports no functions of users. Of a pipeline with functions, only the keys are compared.
    """
    from jobs.engine.window_spec import engine  # few logs need it

    columns = input_columns(pipeline, pinned.columns)
    keys = {name: columns[name] for name in pipeline.log.key_columns}
    table = window_outputs(keys, {} if pipeline.functions() else engine(pipeline, columns).outputs)
    check_columns(lake.table(pipeline.name, table.name), table)


def _refuse_other_partitions(
    pipeline: Pipeline, lake: Lake, pinned: PinnedLog, *, published: Mapping[str, PartitionType]
) -> None:
    """Refuse an edited type of a partition column: no file shows it, and records have another order and other ids."""
    named = {*published, *(pipeline.log.partitions or {})}
    stored = log_columns(lake, pipeline.name) if named - {*published} else {}
    formers = {name: spell_type(node) for name, node in stored.items()} | {**published}
    for name in sorted(named & pinned.columns.keys()):
        former, now = formers.get(name), pinned.columns[name]
        if former is not None and former != now:
            raise SpecError(
                f"{pipeline.source}: log.partitions: column {name!r} is {now} now, and the published slices have it as "
                f"{former}. With another type, records can have another order and other values, and published slices "
                f"would not be replayed. Write {name}: {former}, and derive a column of another type in log.columns, "
                f"such as cast({name} as …); or give the pipeline a new name"
            )


def waits_for_commits(ready: ReadyGrammar | None) -> bool:
    """Return whether a slice can be complete because of a commit after its end: the pipeline states no condition."""
    return ready is None or not ready.has_condition


def _unprotected(pinned: PinnedLog) -> Iterator[str]:
    """Yield a sentence if the writer of the newest file of the range protects nothing."""
    newest = max(pinned.files, key=lambda file: (file.modified_ms, file.path), default=None)
    if newest is None:
        return
    with log_errors(pinned.uri, f"reading {newest.path}"):
        cover = cover_of(file_system(pinned.uri)[0], pinned.place(newest))
    if cover is Cover.NOTHING:
        yield (
            f"the writer of event log {pinned.uri} stores no checksums, neither in the pages of its files nor in files "
            f"beside them (seen in {newest.path}). The first run stores a digest of each file, and later readings "
            "compare it, but damage before the first run cannot be seen. Spark stores checksums in pages by default, "
            "and pyarrow with write_page_checksum = True; deltalake and Polars have no such setting"
        )


def _inside(grid: SliceGrid, instants_ms: Sequence[int]) -> list[int]:
    """Return the instants from the first slice of a grid up to the end of its last one."""
    end_ms = None if grid.last_ms is None else slice_at(grid, grid.last_ms).end_ms
    return [
        at_ms
        for at_ms in instants_ms
        if (grid.first_ms is None or at_ms >= grid.first_ms) and (end_ms is None or at_ms < end_ms)
    ]
