"""The command `hindcast status`. It reads the ledgers and the lists of files of the logs, and no rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any, Final

import click

from jobs.cli import options
from jobs.folding import Stretch, fold, spans
from jobs.lake.delta_tables import is_delta
from jobs.lake.lake import Lake
from jobs.ledger.publications import standing
from jobs.ledger.run_projection import briefs_among, failing_in_sight
from jobs.ledger.tally import in_words, tally
from jobs.ledger.view import LedgerView, Request
from jobs.pipeline.files import SUFFIXES, pipeline_files
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_instant, show_ms, slice_grid
from jobs.plain_text import counted
from jobs.planning.change_sentences import told_changes
from jobs.planning.changed_slices import stretches_of
from jobs.planning.event_time_progress import EventTimeProgress, progress_of
from jobs.planning.log_state import LogState
from jobs.planning.published_spec import LOST, on_published_spec, why_not_replayed, why_stopped
from jobs.planning.request_context import ReadLog, RequestContext, context_of, is_live
from jobs.planning.standing import empty_slices, holes
from jobs.publishing.current_tables import current_tables
from jobs.publishing.rules import describe_hold, publication_effect
from jobs.publishing.staged_changes import changed_since_staged
from jobs.publishing.stop_reasons import failed_in_sight
from jobs.review.freshness import freshness_line
from jobs.review.pages.state import awaited, in_its_cut
from jobs.runs import SHOWN_DIGITS, Slice
from windowlib.errors import HindcastError, RequestError

WATCH_S: Final = 2.0
"""`--watch` looks at the ledgers after so many seconds."""


@click.command(
    "status",
    short_help="Print what is published, and the open requests.",
    epilog="Examples: hindcast status; hindcast status flights --json; hindcast status flights --watch",
)
@click.argument("pipeline_name", metavar="[PIPELINE]", required=False)
@click.option(
    "--watch",
    "is_watched",
    is_flag=True,
    help="First print the progress of the requests that are worked on, whenever it has changed, until none is left. "
    "With --json, each is a line of JSON.",
)
@options.json_option
@options.existing_place_options
def status_command(*, pipeline_name: str | None, is_watched: bool, as_json: bool, places: options.Places) -> int:
    """Print what is published, which requests are open, and why each is not published.

    The command also compares the log with what the published runs read, by the commits of the log alone, and prints the
    slices that have changed since, and what becomes of them.

    Without PIPELINE, the command prints all pipelines of the pipelines directory. A file that cannot be read is printed
    with its error. A ledger that cannot be read is printed with its error, too, and the exit status is 1. A pipeline of
    the lake without a file is named, because its schedule has ended with the file.
    """
    files = places.chosen(pipeline_name)
    if is_watched:
        _watch([places.request_context(pipeline) for pipeline in files.good], as_json=as_json)
    broken = [{"pipeline": broken_file.name, "error": broken_file.error} for broken_file in files.broken]
    states, status = [], options.OK
    for pipeline in files.good:
        try:
            states.append(_state(places.request_context(pipeline)))
        except HindcastError as error:
            if pipeline_name is not None:
                raise
            broken.append({"pipeline": pipeline.name, "error": str(error)})  # the others are still shown (law L10)
            status = options.REFUSED
    without_file = _without_file(places, chosen=pipeline_name)
    if as_json:
        options.print_json({"pipelines": states, "broken": broken, "without_file": without_file})
        return status
    for state in states:
        _show_state(state)
    missing = f"has a ledger in the lake, and no file in {places.pipelines}, so nothing replays it"
    options.say(
        *(f"{broken_file['pipeline']}: broken: {broken_file['error']}" for broken_file in broken),
        *(f"{name}: {missing}" for name in without_file),
    )
    return status


def _without_file(places: options.Places, *, chosen: str | None) -> list[str]:
    """Return the pipelines that have a ledger in the lake, and no file; none if one pipeline is chosen."""
    if chosen is not None:
        return []
    names = {path.stem for path in pipeline_files(places.pipelines)}
    return [name for name in places.lake.pipelines() if name not in names and is_delta(places.lake.ledger(name))]


def _state(work: RequestContext) -> dict[str, Any]:
    view = work.ledger.view()
    published = list(view.published)
    work = replace(work, read_log=_read_once(work.read_log))
    waits = awaited(work, view)
    on_chain, edited = on_published_spec(work, view)
    failing = failing_in_sight(view)
    return {
        "pipeline": work.pipeline.name,
        "ledger_version": view.version,
        "published": {
            "slices": len(published),
            "first": published[0] if published else None,
            "last": published[-1] if published else None,
            "empty": [slice_.slice_id for slice_ in empty_slices(view)],
        },
        "published_ranges": _ranges(view),
        "published_verdicts": _verdicts(view, view.published),
        "failed": failed_in_sight(failing) if failing else None,
        "newest_publication": _newest_publication(view),
        "freshness": freshness_line(work, view),
        "waits": None if waits is None else waits.line,
        "current_tables": [table.to_json() | {"line": str(table)} for table in current_tables(work)],
        "held": None if view.hold is None else describe_hold(view.hold),
        "holes": [{"slices": hole.ids, "line": hole.sentence} for hole in holes(on_chain, view)],
        "edited": [*edited, *filter(None, [why_stopped(on_chain, view), _without_upstream(work.pipeline)])],
        "changed": told_changes(work, view).to_json(),
        "requests": [_request(in_its_cut(work, request), view, request) for request in view.open_requests()],
    }


def _without_upstream(pipeline: Pipeline) -> str:
    """Return that the pipeline whose table is the log has no file beside that of the reader; else empty."""
    upstream, directory = pipeline.log.pipeline, Path(pipeline.source).parent
    if upstream is None or any((directory / f"{upstream}{suffix}").exists() for suffix in SUFFIXES):
        return ""
    return (
        f"its log is a table of pipeline {upstream}, which has no file in {directory}, so no command publishes "
        "there. If that pipeline was renamed, write its new name in `log.pipeline` (docs/how-to/rename.md)"
    )


def _read_once(read_log: ReadLog) -> ReadLog:
    """Return a function that reads the log for slices. Without slices, it may return what it has read for some."""
    last: tuple[Pipeline, LogState] | None = None

    def read(pipeline: Pipeline, lake: Lake, slices: Sequence[Slice], **options: Any) -> LogState:  # noqa: ANN401
        nonlocal last
        if last is None or slices or last[0] != pipeline:
            last = pipeline, read_log(pipeline, lake, slices, **options)
        return last[1]

    return read


def _ranges(view: LedgerView) -> list[list[str]]:
    """Return the first and the last slice of each stretch of published slices without a gap."""
    seen = [view.slices[slice_id] for slice_id in view.published]
    return [[stretch[0].slice_id, stretch[-1].slice_id] for stretch in stretches_of(seen)]


def _verdicts(view: LedgerView, runs: Mapping[str, str]) -> dict[str, int]:
    """Return the tally of some runs (slice id -> run id). A run whose attempts were condemned is not counted."""
    return tally(brief.standing for brief in briefs_among(view, runs.values()) if brief.standing is not None)


def _newest_publication(view: LedgerView) -> dict[str, Any] | None:
    """The only publication that can be rolled back; None if there is none."""
    newest = next(standing(view.publications), None)
    if newest is None:
        return None
    return {
        "publication": newest.seq,
        "who": newest.who,
        "at": show_instant(newest.at_ms),
        "slices": len(newest.changes),
    }


def _request(work: RequestContext, view: LedgerView, request: Request) -> dict[str, Any]:
    grid = slice_grid(work.pipeline)
    is_working = is_live(work, request)
    now = _progress_of(work, view, request, is_working=is_working)
    return {
        "request_id": request.request_id,
        "kind": request.kind.value,
        "who": request.who,
        "reason": request.reason,
        "opened": show_instant(request.opened_at_ms),
        "from": None if request.from_ms is None else show_ms(grid, request.from_ms),
        "to": None if request.to_ms is None else show_ms(grid, request.to_ms),
        "staged": len(request.runs),
        "verdicts": _verdicts(view, request.runs),
        "working": is_working,
        "progress": now.to_json(),
        "failure": request.failure,
        "assignee": request.assignee,
        "comments": len(request.comments),
        "publication": _publication(work, view, request) if request.runs else _not_staged(work, view, request),
    }


def _progress_of(work: RequestContext, view: LedgerView, request: Request, *, is_working: bool) -> EventTimeProgress:
    """Return the progress of a request. Only one that is worked on has a time that is left, by its plan."""
    planned, pipeline = None, work.pipeline
    if is_working:
        from jobs.review.pages.request_page import plan_of  # a status without such a request does not need it

        try:
            own, _ = context_of(work, request.request_id)
            pipeline, (planned, _) = own.pipeline, plan_of(own, view, request)
        except RequestError:
            pass  # its spec cannot be read any more
    return progress_of(pipeline, view, request, planned=planned)


def _watch(works: Sequence[RequestContext], *, as_json: bool) -> None:
    """Print the progress of the requests that are worked on, whenever it has changed, until none is left."""
    told: dict[str, EventTimeProgress] = {}
    while True:
        working = [(work, *progress) for work in works for progress in _working(work)]
        for work, request, now in working:
            if told.get(request.request_id) != now:
                told[request.request_id] = now
                _tell(work, request, now, as_json=as_json)
        if not working:
            return
        sleep(WATCH_S)


def _working(work: RequestContext) -> list[tuple[Request, EventTimeProgress]]:
    """Return the requests of a pipeline that are worked on; none if it cannot be read, as the status then tells."""
    try:
        view = work.ledger.view()
        live = [request for request in view.open_requests() if is_live(work, request)]
        return [(request, _progress_of(in_its_cut(work, request), view, request, is_working=True)) for request in live]
    except HindcastError:
        return []  # the others are still shown (law L10)


def _tell(work: RequestContext, request: Request, now: EventTimeProgress, *, as_json: bool) -> None:
    name = work.pipeline.name
    facts = {"pipeline": name, "request_id": request.request_id, **now.to_json()}
    options.answer(as_json, facts, f"{name}, request {request.request_id[:SHOWN_DIGITS]}: {now.sentence}")


def _publication(work: RequestContext, view: LedgerView, request: Request) -> str:
    is_ready, told = publication_effect(work, view, request)
    if not is_ready:
        return told
    name, request_id = work.pipeline.name, request.request_id[:SHOWN_DIGITS]
    changed = changed_since_staged(work, view, request)
    return f"ready: hindcast publish {name} --request {request_id} {told}{changed and f'; {changed}'}"


def _not_staged(work: RequestContext, view: LedgerView, request: Request) -> str:
    what = f"proposed: {request.reason}" if request.is_proposed else "nothing staged yet"
    name, request_id = work.pipeline.name, request.request_id[:SHOWN_DIGITS]
    cancel = f"hindcast cancel {name} --request {request_id} --reason …"
    if why := why_not_replayed(work, view, request):
        again = f"replace it with hindcast repair {name} --propose, or " if request.is_repair and why != LOST else ""
        return f"{what}. It cannot be replayed, because {why}: {again}end it with {cancel}"
    if not request.is_proposed:
        return what
    return (
        f"{what}. Replay it with hindcast run {name} --request {request_id} --no-publish, or decline it with {cancel}"
    )


def _show_state(state: Mapping[str, Any]) -> None:
    published, newest = state["published"], state["newest_publication"]
    seen = "nothing"
    if published["slices"]:
        ends = [list(dict.fromkeys(pair)) for pair in state["published_ranges"]]
        empty = f"; {counted(len(published['empty']), 'slice')} without a record" if published["empty"] else ""
        seen = f"{counted(published['slices'], 'slice')}, {spans(ends)}: {in_words(state['published_verdicts'])}{empty}"
    options.say(f"{state['pipeline']}: readers see {seen} (ledger version {state['ledger_version']})")
    if newest is not None:
        options.say(
            f"  newest publication: {newest['publication']}, {counted(newest['slices'], 'slice')}, by {newest['who']} "
            f"at {newest['at']}"
        )
    if state["failed"]:
        options.say(f"  {state['failed']}")
    options.say(f"  {state['freshness']}")
    if state["waits"]:
        options.say(f"  the schedule {state['waits']}")
    options.say(*(f"  {hole['line']}" for hole in state["holes"]))
    options.say(*(f"  {table['line']}" for table in state["current_tables"] if table["behind"]))
    if state["held"]:
        options.say(f"  {state['held']}")
    for sentence in (*state["edited"], *state["changed"]["sentences"]):
        options.say(f"  {sentence}")
    for stretch in fold(state["requests"], _alike):
        options.say(*_request_lines(stretch))


def _alike(request: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what the lines of a request have apart from its id, range and time."""
    return request["kind"], request["who"], request["assignee"], request["staged"], _progress(request)


def _request_lines(stretch: Stretch[Mapping[str, Any]]) -> tuple[str, ...]:
    request = stretch.first
    origin = f"{request['kind']} by {request['who']}"
    if stretch.is_folded:
        opened = f"{request['opened']} … {stretch.items[-1]['opened']}"
        head = f"  {counted(len(stretch.items), 'request')}, {origin} at {opened} (--json lists them)"
    else:
        span = f" [{request['from']}, {request['to']})" if request["from"] else ""
        head = f"  request {request['request_id'][:12]}{span} {origin} at {request['opened']}"
    verdicts = in_words(request["verdicts"])
    assigned = f", assigned to {request['assignee']}" if request["assignee"] else ""
    staged = f"{counted(request['staged'], 'slice')} staged: {verdicts}" if request["staged"] else "no slice staged"
    return f"{head}{assigned}: {staged}", f"    {_progress(request)}"


def _progress(request: Mapping[str, Any]) -> str:
    if request["working"]:
        return f"being worked on: {request['progress']['sentence']}"
    return str(request["failure"] or request["publication"])
