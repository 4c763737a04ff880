"""The page of a slice, and the paged rows of its tables, also as CSV."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from jobs.airflow_ui.context import DecisionPlace, PipelineContext, PipelineDep, opening_once, readers_of
from jobs.airflow_ui.feeds import FeedsDep
from jobs.airflow_ui.rendering import NO_STORE, page
from jobs.ledger.view import StagedRun
from jobs.pipeline.slices import slice_of_id
from jobs.planning.change_sentences import told_changes
from jobs.reading.plain_values import column_values
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.stored_tables import spec_of
from jobs.review import links
from jobs.review.pages.cells import cells_of, csv_line
from jobs.review.pages.failing import find_examples, reason_tallies
from jobs.review.pages.lineage import dag_runs_of, lineage_of, slice_files
from jobs.review.pages.plots import output_plots
from jobs.review.pages.row_filters import Comparison, Filter
from jobs.review.pages.row_pages import RowsAsk, RowsPage, RunRows
from jobs.review.pages.slice_page import SlicePage, choose_run, row_tables, slice_page, table_title
from jobs.review.pages.state import awaited
from jobs.review.pages.window_page import window_addresses
from jobs.review.report.collect import Part, collect_view
from jobs.runs import Slice
from windowlib.errors import HindcastError, RequestError
from windowlib.records.tables import WINDOW_OUTPUTS

router = APIRouter(prefix="/pipelines/{pipeline}/slices/{slice_id}")
MAX_PAGE = 10_000_000
MAX_VALUE = 500


@router.get("")
@opening_once
def one_slice(
    request: Request,
    context: PipelineDep,
    feeds: FeedsDep,
    *,
    slice_id: str,
    run: str | None = None,
    files: bool = False,
) -> HTMLResponse:
    """Return the page of a slice, for its newest run or the one that `run` names by its first digits.

    `files` lists the files that the run has read.
    """
    slice_ = _slice(context, slice_id)
    shown = choose_run(context.view, slice_.slice_id, run)
    part = Part(count=1, last=slice_.slice_id, late_rows=0)
    rows = collect_view(context.lake, context.published_pipeline, context.view, part=part)
    work, view = context.request_context, context.view
    waits = awaited(work, view)
    waits = waits if waits is not None and waits.slice == slice_ else None
    made = slice_page(view, slice_, shown=shown, rows=rows, is_awaited=waits is not None)
    problem = None
    stored: Mapping[str, Any] = {"examples": (), "plots": (), "reasons": {}}
    try:
        if shown is not None:
            stored = _from_rows(StoredRuns(context.lake, context.name, context.view), made, shown)
    except HindcastError as error:  # the page still tells what the ledger has
        problem = str(error)
    here = links.slice_page(context.name, slice_.slice_id, run_id=run)
    with_files = {"files": "true"} | ({"run": run} if run else {})
    values = {
        "name": context.name,
        "p": made,
        "stored": stored,
        "problem": problem,
        "waits": waits,
        "is_changed": slice_.slice_id in (told_changes(work, view).slices or ()),
        "dag_runs": dag_runs_of(context.view, slice_.slice_id),
        "feeds": feeds,
        "lineage": None if shown is None else lineage_of(context.lake, context.pipeline, context.view, run=shown),
        "readers": readers_of(context.name, slice_, context.user),
        "upstream": context.pipeline.log.pipeline,
        "files_href": f"?{urlencode(with_files, errors='replace')}#lineage-title",
        **_files_read(context, slice_, shown if files else None),
        "windows_table": WINDOW_OUTPUTS,
        "place": DecisionPlace(
            context=context,
            return_to=here,
            run_id="" if shown is None else shown.result.run_id,
            request_id=None if shown is None else shown.request_id,
        ),
    }
    return page(request, "slice", values)


def _files_read(context: PipelineContext, slice_: Slice, shown: StagedRun | None) -> Mapping[str, Any]:
    """Return the files of a slice in the version of the log that a run has read, or why they cannot be listed."""
    files, problem = None, None
    try:
        if shown is not None:
            files = slice_files(context.lake, context.pipeline, slice_, read=shown.result.log)
    except HindcastError as error:
        problem = str(error)
    return {"files": files, "files_problem": problem}


def _from_rows(stored: StoredRuns, made: SlicePage, run: StagedRun) -> Mapping[str, Any]:
    """Return what the page shows of stored rows: those that did not keep a check, plots, and reasons by table."""
    examples = [(line, find_examples(stored, run, line.check)) for line in made.failures]
    return {
        "examples": [(line, kept) for line, kept in examples if kept is not None],
        "plots": output_plots(stored, run),
        "reasons": {tally.table: tally for tally in reason_tallies(stored, run)},
    }


class RowsQuery(BaseModel):
    """The query of a page of rows: which run, filter, order and page, and whether a CSV file is wanted."""

    run: str | None = None
    column: str = Field("", max_length=MAX_VALUE)
    how: Comparison = Comparison.CONTAINS
    value: str = Field("", max_length=MAX_VALUE)
    sort: str = Field("", max_length=MAX_VALUE)
    order: Literal["asc", "desc"] = "asc"
    page: int = Field(1, ge=1, le=MAX_PAGE)
    format: Literal["html", "csv"] = "html"

    def ask(self) -> RowsAsk:
        kept = Filter(column=self.column, comparison=self.how, value=self.value) if self.column and self.value else None
        return RowsAsk(filter=kept, sort=self.sort or None, is_descending=self.order == "desc", page=self.page)


@router.get("/{table}")
@opening_once
def rows(
    request: Request, context: PipelineDep, *, slice_id: str, table: str, query: Annotated[RowsQuery, Query()]
) -> Response:
    """Return one page of the rows of a run in a table, or all of them as CSV."""
    slice_ = _slice(context, slice_id)
    shown = _run_with_rows(context, slice_, run_id=query.run, table=table)
    own = RunRows(StoredRuns(context.lake, context.name, context.view), shown, table)
    if query.format == "csv":
        return _csv(own, query.ask(), name=f"{context.name}_{slice_.slice_id}_{table}.csv")
    made = own.page(query.ask())
    reasons = reason_tallies(own.stored, own.run, [own.table]) if query.page == 1 and not query.value else ()
    values = {
        "name": context.name,
        "slice_id": slice_.slice_id,
        "run": shown,
        "table": table,
        "title": table_title(table),
        "page": made,
        "comparisons": list(Comparison),
        "cells": cells_of(made.rows),
        "addresses": _window_addresses(context, shown, made) if table == WINDOW_OUTPUTS else (),
        "reasons": next(iter(reasons), None),
        "links_to": _Addresses(links.rows_page(context.name, slice_.slice_id, table), made, query.run),
    }
    return page(request, "rows", values)


def _window_addresses(context: PipelineContext, run: StagedRun, made: RowsPage) -> list[str | None]:
    """Return the page of the window of each row. A run that readers do not see is explained with its request."""
    is_published = context.view.published.get(run.result.slice.slice_id) == run.result.run_id
    request_id = None if is_published else run.request_id
    return window_addresses(spec_of(context.view, run), made.rows, request_id=request_id)


class _Addresses:
    """The addresses of other pages, orders and forms of the same rows."""

    def __init__(self, path: str, shown: RowsPage, run: str | None) -> None:
        self._path = path
        self._shown = shown
        self.run = run or ""

    def page(self, number: int) -> str:
        return self._with(page=str(number))

    def sorted_by(self, column: str) -> str:
        """Return the address of the rows sorted by a column; a second choice of the column turns the order."""
        ask = self._shown.ask
        turned = ask.sort == column and not ask.is_descending
        return self._with(sort=column, order="desc" if turned else "asc", page="1")

    def csv(self) -> str:
        """Return the address of the CSV file with all rows of the filter."""
        return self._with(format="csv")

    def _with(self, **changes: str) -> str:
        ask = self._shown.ask
        now: Mapping[str, str] = {
            "run": self.run,
            "column": ask.filter.column if ask.filter else "",
            "how": ask.filter.comparison.value if ask.filter else "",
            "value": ask.filter.value if ask.filter else "",
            "sort": ask.sort or "",
            "order": "desc" if ask.is_descending else "",
        }
        given = {name: text for name, text in {**now, **changes}.items() if text}
        return f"{self._path}?{urlencode(given, errors='replace')}"


def _slice(context: PipelineContext, slice_id: str) -> Slice:
    """Return a slice of the ledger, or of the pipeline's grid."""
    try:
        return slice_of_id(context.pipeline, slice_id, known=context.view.slices)
    except RequestError as error:
        raise HTTPException(404, f"Pipeline {context.name} has no such slice. {error}") from error


def _run_with_rows(context: PipelineContext, slice_: Slice, *, run_id: str | None, table: str) -> StagedRun:
    run = choose_run(context.view, slice_.slice_id, run_id)
    if run is None:
        raise HTTPException(404, f"Slice {slice_.slice_id} was never replayed, so it has no rows.")
    if table not in row_tables(run):
        raise HTTPException(404, f"There is no page of table {table!r}; the tables are {', '.join(row_tables(run))}.")
    return run


def _csv(own: RunRows, ask: RowsAsk, *, name: str) -> Response:
    parts = own.batches(ask)  # errors are raised before the answer begins
    columns = own.columns()

    def lines() -> Iterator[str]:
        yield csv_line(columns)
        for part in parts:
            present = [column_values(part[column]) if column in part.column_names else None for column in columns]
            for row in range(part.num_rows):
                yield csv_line([values[row] if values is not None else None for values in present])

    headers = {**NO_STORE, "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines(), media_type="text/csv; charset=utf-8", headers=headers)
