"""The rule that readers see nothing that the suite in force has not checked."""

from collections.abc import Collection

from jobs.engine.fingerprints import spec_fingerprint
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.pipeline.slices import show_ms, slice_grid
from jobs.planning.request_context import RequestContext
from jobs.planning.stored_spec import stored_pipeline
from jobs.planning.suites import suite_fingerprint
from jobs.publishing.stop_reasons import listed
from windowlib.errors import SpecError


def of_other_suite(work: RequestContext, view: LedgerView, request: Request) -> tuple[tuple[str, ...], str]:
    """Return the slices whose runs were checked by another suite than a rerun would have, and why they are refused.

    The suite in force is that of the pipeline file, or of the stored spec of the request if the file has another spec.
    A file without `quality` has none. Runs that readers see already keep the checks that they had, and so do runs of
    versions of Hindcast that did not record their suite.
    """
    judged = {
        run.result.slice.slice_id: run.checks_fingerprint
        for run in map(view.run, request.runs.values())
        if run.checks_fingerprint is not None and not view.is_in_chain(run.result.run_id)
    }
    is_same = request.spec_fingerprint == spec_fingerprint(work.pipeline)
    pipeline = work.pipeline if is_same else stored_pipeline(work.pipeline, request)
    if not judged or pipeline.quality is None:
        return (), ""
    try:
        now = suite_fingerprint(pipeline)
    except SpecError as error:
        why = f"whether suite {pipeline.quality.suite} has changed since the runs were checked is not known: {error}"
        return tuple(judged), why
    slices = tuple(slice_id for slice_id, checked in judged.items() if checked != now)
    if not slices:
        return (), ""
    verb = "was" if len(slices) == 1 else "were"
    return slices, (
        f"suite {pipeline.quality.suite} has changed since {listed(slices)} {verb} checked, or it is another file than "
        f"that which checked them. Readers see nothing that it has not checked: {_checked_again(work, request, slices)}"
    )


def _checked_again(work: RequestContext, request: Request, slices: Collection[str]) -> str:
    """Return what a person does so that the suite in force checks the runs of a request."""
    if request.kind is RequestKind.AIRFLOW_BACKFILL and request.is_open:
        runs = [origin.run_id for origin in request.origins if {*origin.slice_ids} & {*slices}]
        of = f" of DAG run {listed(runs)}" if runs else ""
        return f"clear the replay task{of}"
    command = f"hindcast run {work.pipeline.name}"
    if request.is_candidate:
        return f"run the request again (the same `{command} … --as-candidate`)"
    if request.from_ms is None or request.to_ms is None:
        return "run its slices again"
    if request.is_open:
        return f"run the request again (`{command} --request {request.request_id}`), or clear its replay task"
    if request.is_repair:
        return f"repair again (`hindcast repair {work.pipeline.name} --run`)"
    grid = slice_grid(work.pipeline)
    bounds = f"--from {show_ms(grid, request.from_ms)} --to {show_ms(grid, request.to_ms)}"
    return f"replay its range (`{command} {bounds}`)"
