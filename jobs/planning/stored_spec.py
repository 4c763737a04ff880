"""The pipeline of a request as the ledger stores it, with what the pipeline file of now tells for every spec."""

from typing import Any

from jobs.engine.fingerprints import spec_fingerprint
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.pipeline.files import pipeline_from_json
from jobs.pipeline.models.log import LogGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.publish import PublishGrammar, SettledGrammar
from jobs.reading.log_places import log_place
from windowlib.errors import LogError, SpecError


def stored_pipeline(pipeline: Pipeline, request: Request) -> Pipeline:
    """Return the pipeline of a request as the ledger stores it.

    Users' functions are found beside the pipeline file. The name of the pipeline, whose directory in the lake may have
    been renamed, the place of the log, which may have moved, and `publish` are those of the file. A rule for settled
    windows that names an output which the stored spec does not have is for the edited spec, so the stored rule counts.
    """
    source = f"request {request.request_id} in the ledger"
    stored = pipeline_from_json(request.spec_json, source=source, functions_dir=pipeline.functions_dir)
    publish = _publish(stored, pipeline)
    log = stored.log.model_copy(update=_place(stored.log, pipeline.log))
    if (pipeline.name, log, publish) == (stored.name, stored.log, stored.publish):
        return stored
    return stored.model_copy(update={"name": pipeline.name, "log": log, "publish": publish})


def spec_of_request(pipeline: Pipeline, view: LedgerView, request_id: str | None) -> Pipeline:
    """Return the pipeline of a request, such as a candidate with other windows; `pipeline` without a known request."""
    request = None if request_id is None else view.requests.get(request_id)
    return pipeline if request is None else stored_pipeline(pipeline, request)


def at_read_log(pipeline: Pipeline, lake: Lake, run: StagedRun, *, stored: Pipeline) -> Pipeline:
    """Return a pipeline with the place of the log of a run's `stored` spec, if only there is a table that it has read.

    So the slices of a former spec can be made again after the adoption of a spec that reads another table.
    """
    former = {key: getattr(stored.log, key) for key in _place(stored.log, pipeline.log)}
    moved = pipeline.model_copy(update={"log": pipeline.log.model_copy(update=former)})
    if moved.log == pipeline.log or _has_read(pipeline, lake, run) or not _has_read(moved, lake, run):
        return pipeline
    return moved


def settled_rule(pipeline: Pipeline, request: Request) -> SettledGrammar | None:
    """Return the rule for settled windows that counts for a request; None if there is none."""
    is_same = request.spec_fingerprint == spec_fingerprint(pipeline)
    publish = pipeline.publish if is_same or pipeline.publish is None else stored_pipeline(pipeline, request).publish
    return None if publish is None else publish.settled


def _place(stored: LogGrammar, now: LogGrammar) -> dict[str, Any]:
    """Return the keys that tell where the log is; none if the stored spec is for another kind of log."""
    is_same_kind = (stored.format, stored.pipeline, now.pipeline) == (now.format, None, None)
    return {key: getattr(now, key) for key in ("table", "partitions", "history")} if is_same_kind else {}


def _has_read(pipeline: Pipeline, lake: Lake, run: StagedRun) -> bool:
    """Return whether a run has read the table that is at the place of the log now."""
    try:
        table_id = log_place(lake, pipeline).open().table_id
    except (LogError, SpecError):
        return False
    return any(seen.log.table_id == table_id for seen in run.sightings if seen.is_equal)


def _publish(stored: Pipeline, now: Pipeline) -> PublishGrammar | None:
    if now.publish is None or now.publish.settled is None:
        return now.publish
    named, known = now.publish.settled.change_at_most.columns, (*stored.output_columns, "record_count")
    if {*named} <= {*known}:
        return now.publish
    return now.publish.model_copy(update={"settled": None if stored.publish is None else stored.publish.settled})
