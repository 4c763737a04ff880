"""The search for a record or a key, in a bounded number of slices, so that a page takes less than a second."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.lake.arrow_sql import query
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.lake.store import table_columns
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.published import BOUNDS, read_published
from jobs.reading.stored_tables import spec_of
from jobs.review.explain import Explanation, explain
from jobs.review.pages.row_filters import Comparison, Filter, filtered
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import RequestError
from windowlib.libraries import pa, pc
from windowlib.records.tables import WINDOW_OUTPUTS


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """A search takes the newest slices whose sums stay within these limits, and at least one slice."""

    slices: int = 200
    read: int = 2_000_000
    beside: int = 100_000
    panes: int = 500_000


DEFAULT_LIMITS = SearchLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The slices that a search reads: a view that has no others. `older` is the last slice before them.

    `whole` is the view with all slices.
    """

    view: LedgerView
    whole: LedgerView
    first: str
    last: str
    older: str | None
    is_newest: bool

    @property
    def slices(self) -> frozenset[str]:
        return frozenset(self.view.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a search for a record: its explanation, or why there is none."""

    explanation: Explanation | None
    problem: str | None


def search_scope(view: LedgerView, last: str | None = None, *, limits: SearchLimits = DEFAULT_LIMITS) -> Scope | None:
    """Return the slices to search, the newest of which is `last` (None: the newest of all); None without any.

    Raises RequestError: the ledger has no slice `last`.
    """
    ids = list(view.slices)
    end = len(ids) if last is None else _place(ids, last) + 1
    return _scope(view, [*_chosen(view, reversed(ids[:end]), limits)][::-1]) if end else None


def scope_after(view: LedgerView, slice_id: str, *, limits: SearchLimits = DEFAULT_LIMITS) -> Scope:
    """Return the slices that explain a record of a slice: the slice and those after it, whose windows may have it.

    Raises RequestError: the ledger has no such slice.
    """
    ids = list(view.slices)
    return _scope(view, [*_chosen(view, ids[_place(ids, slice_id) :], limits)])


def _place(ids: Sequence[str], slice_id: str) -> int:
    if slice_id not in ids:
        raise RequestError(f"the ledger has no slice {slice_id!r}")
    return ids.index(slice_id)


def _scope(view: LedgerView, chosen: Sequence[str]) -> Scope:
    """Return a scope with these slices, which follow each other in the ledger."""
    ids = list(view.slices)
    start = ids.index(chosen[0])
    return Scope(
        view=_restricted(view, frozenset(chosen)),
        whole=view,
        first=chosen[0],
        last=chosen[-1],
        older=ids[start - 1] if start else None,
        is_newest=chosen[-1] == ids[-1],
    )


def spec_of_chain(pipeline: Pipeline, view: LedgerView) -> Pipeline:
    """Return the spec of the published chain; that of the file if nothing is published."""
    return pipeline if view.head is None else spec_of(view, view.head)


def find(lake: Lake, pipeline: Pipeline, record_id: str, *, scope: Scope) -> Found:
    """Explain a record of the slices of a scope, and the first record of a duplicate if it is in an earlier slice.

    Raises HindcastError: the rows or the log cannot be read.
    """
    try:
        told = explain(lake, pipeline, record_id, view=scope.view, only=scope.slices)
    except RequestError as error:
        return Found(explanation=None, problem=str(error))
    more = "" if scope.is_newest else f" The slices after {scope.last} were not searched."
    told = replace(told, sentence=told.sentence + more)
    return Found(explanation=_with_first(lake, pipeline, told, scope=scope), problem=None)


def _with_first(lake: Lake, pipeline: Pipeline, told: Explanation, *, scope: Scope) -> Explanation:
    """Return the explanation of a duplicate with that of its first record, if the scope has not its slice."""
    slice_id = str(told.details.get("earlier_slice_id"))
    if told.fate != "duplicate" or slice_id in scope.slices or slice_id not in scope.whole.slices:
        return told
    earlier = find(lake, pipeline, told.record_id, scope=scope_after(scope.whole, slice_id)).explanation
    known = () if earlier is None else (replace(earlier, others=()), *earlier.others)
    return replace(told, others=(*told.others, *(each for each in known if each.slice_id == slice_id)))


def windows_of_key(
    lake: Lake, pipeline: Pipeline, key: Mapping[str, str], *, scope: Scope, most: int
) -> "tuple[pa.Table, int]":
    """Return the newest windows of a key that readers see in the slices of a scope, and how many there are.

    A window that a slice after the scope has replaced is not among them. `key` maps a key column to its value, as pages
    show it. Columns without a value match all windows. At most `most` windows are returned.

    Raises:
        RangeError: a value is not of the key column's type.
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    windows = _of_key(read_published(lake, pipeline.name, scope.view), key)
    if windows.num_rows and not scope.is_newest:
        ids = list(scope.whole.slices)  # panes of later slices may replace those of the scope
        onward = _restricted(scope.whole, frozenset(ids[ids.index(scope.first) :]))
        seen = read_published(lake, pipeline.name, onward, chosen=_around(lake, pipeline.name, windows))
        windows = _of_key(seen, key)
        windows = windows.filter(pc.is_in(windows["slice_id"], pa.array(scope.slices, windows["slice_id"].type)))
    return windows.slice(0, most), windows.num_rows


def _of_key(rows: "pa.Table", key: Mapping[str, str]) -> "pa.Table":
    """Return the rows of a key, the newest windows first."""
    if not rows.num_rows:  # without a published slice, the table has no column, which DuckDB refuses
        return rows
    for name, value in key.items():
        if value and name in rows.column_names:
            rows = filtered(rows, Filter(column=name, comparison=Comparison.EQUALS, value=value))
    return query({"rows": rows}, "SELECT * FROM rows ORDER BY window_start DESC NULLS LAST, window_end DESC")


def _around(lake: Lake, pipeline: str, windows: "pa.Table") -> RowFilter:
    """Return a filter that chooses all panes that start with some windows or between them."""
    kind = arrow_type(table_columns(lake.table(pipeline, WINDOW_OUTPUTS))[BOUNDS[0]])
    starts = windows[BOUNDS[0]].cast(kind)
    ends = pc.min_max(starts)
    if not ends["min"].is_valid:  # global windows
        return RowFilter(values={BOUNDS[0]: pa.nulls(1, kind)})
    if starts.null_count:
        return RowFilter(from_=ends["min"], or_null=True)
    return RowFilter(from_=ends["min"], to=pa.scalar(ends["max"].value + 1, kind))


def _chosen(view: LedgerView, ids: Iterable[str], limits: SearchLimits) -> Iterator[str]:
    """Yield slices in their order while the sums stay within the limits, and at least one."""
    runs: dict[str, list[StagedRun]] = {}
    for run in view.runs.values():
        runs.setdefault(run.result.slice.slice_id, []).append(run)
    read = beside = panes = 0
    for number, slice_id in enumerate(ids):
        counts = [run.result.counts for run in runs.get(slice_id, ())]
        read += max((count.read for count in counts), default=0)
        beside += max((count.late + count.unassigned + count.invalid + count.duplicate for count in counts), default=0)
        panes += max((count.panes for count in counts), default=0)
        is_over = read > limits.read or beside > limits.beside or panes > limits.panes
        if number and (is_over or number >= limits.slices):
            return
        yield slice_id


def _restricted(view: LedgerView, slices: frozenset[str]) -> LedgerView:
    """Return a view that has only these slices. Its runs are complete, because they refer to each other."""
    return replace(
        view,
        published={slice_id: run_id for slice_id, run_id in view.published.items() if slice_id in slices},
        slices={slice_id: slice_ for slice_id, slice_ in view.slices.items() if slice_id in slices},
        requests={
            name: replace(request, runs={slice_id: run for slice_id, run in request.runs.items() if slice_id in slices})
            for name, request in view.requests.items()
        },
    )
