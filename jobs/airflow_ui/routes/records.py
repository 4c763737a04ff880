"""The search for a record by its id, and for the windows of a key."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from jobs.airflow_ui.context import PipelineContext, PipelineDep, opening_once
from jobs.airflow_ui.rendering import page
from jobs.pipeline.models.pipeline import Pipeline
from jobs.review.explain import Explanation
from jobs.review.links import KEY
from jobs.review.pages.cells import cell, cells_of
from jobs.review.pages.record_page import Found, Scope, find, scope_after, search_scope, spec_of_chain, windows_of_key
from jobs.review.pages.record_search import Searched, search_records
from jobs.review.pages.row_pages import shown_columns
from jobs.review.pages.window_page import window_addresses
from windowlib.errors import LogError, RequestError

router = APIRouter(prefix="/pipelines/{pipeline}/records")
MAX_TEXT = 1_000
SEARCH_S = 0.6
"""A page reads no further slices after this time."""
MOST_WINDOWS = 100


@router.get("")
@opening_once
def records(
    request: Request,
    context: PipelineDep,
    *,
    record_id: Annotated[str, Query(max_length=MAX_TEXT)] = "",
    last: str | None = None,
    slice_id: Annotated[str | None, Query(alias="slice")] = None,
) -> HTMLResponse:
    """Return the page of a search: the explanation of a record, the records with a part of an id, or windows of a key.

    The record of a `slice` is explained at once. `last` is the newest slice that is searched.
    """
    pipeline = spec_of_chain(context.pipeline, context.view)
    scope = search_scope(context.view, last)
    key = {name: request.query_params.get(f"{KEY}{name}", "")[:MAX_TEXT] for name in pipeline.log.key_columns}
    result, searched = None, None
    if record_id and scope is not None:
        result, searched = _search(context, pipeline, record_id, scope=scope, last=last, slice_id=slice_id)
    values = {
        "name": context.name,
        "record_id": record_id,
        "record_column": pipeline.log.record_id,
        "key": key,
        "scope": scope,
        "found": result,
        "searched": searched,
        "stored_values": _stored(result.explanation) if result and result.explanation else [],
        "windows": _windows(context, pipeline, key, scope=scope)
        if scope and any(key.values()) and not record_id
        else None,
        "query": {"record_id": record_id, **{f"{KEY}{name}": value for name, value in key.items() if value}},
    }
    return page(request, "record", values)


def _search(
    context: PipelineContext, pipeline: Pipeline, record_id: str, *, scope: Scope, last: str | None,
    slice_id: str | None,
) -> tuple[Found | None, Searched | None]:  # fmt: skip
    """Return the explanation of a record, and how far the search for its id came."""
    view = context.view
    if slice_id is not None:
        return find(context.lake, pipeline, record_id, scope=scope_after(view, slice_id)), None
    if pipeline.log.record_id is None:
        return find(context.lake, pipeline, record_id, scope=scope), None
    try:
        searched = search_records(context.lake, pipeline, view, part=record_id, last=last, seconds=SEARCH_S)
    except (LogError, RequestError):  # no log, or slices that are no partitions of it: a whole id may be found
        return find(context.lake, pipeline, record_id, scope=scope), None
    record = searched.only(record_id)
    if record is None:
        return None, searched
    scope = scope_after(view, record.slice_id)
    return find(context.lake, pipeline, record.record_id, scope=scope), searched


def _stored(explanation: Explanation) -> list[tuple[str, str]]:
    """Return everything that is known about a record as (name, text); the fields of the record are `record.name`."""
    stored: list[tuple[str, str]] = []
    for name, value in explanation.details.items():
        if isinstance(value, Mapping):
            stored += [(f"{name}.{inner}", cell(inner_value, inner)) for inner, inner_value in value.items()]
        else:
            stored.append((name, cell(value, name)))
    return stored


def _windows(context: PipelineContext, pipeline: Pipeline, key: dict[str, str], *, scope: Scope) -> dict[str, object]:
    rows, count = windows_of_key(context.lake, pipeline, key, scope=scope, most=MOST_WINDOWS)
    columns = shown_columns(rows.column_names)
    return {
        "columns": columns,
        "cells": cells_of(rows.select(columns)),
        "addresses": window_addresses(pipeline, rows, request_id=None),
        "count": count,
    }
