"""The command adopt."""

from dataclasses import replace

import click

from jobs.cli import options
from jobs.cli.plan import restart_of
from jobs.cli.progress import progress_option
from jobs.cli.run import Shown, run_asked
from jobs.cli.slice_lines import all_option, show_plan
from jobs.engine.fingerprints import spec_fingerprint
from jobs.orchestration.following import stopped_readers
from jobs.orchestration.requests import Staging
from jobs.pipeline.files import load_all
from jobs.pipeline.slices import check_range, parse_bound, show_instant, slice_at, slice_grid
from jobs.planning.published_spec import why_uncomputable
from jobs.planning.request_context import Asked, RequestContext
from jobs.planning.spec_changes import border_warning, spec_changes
from jobs.planning.steps import Ask
from jobs.planning.stored_spec import stored_pipeline
from jobs.planning.suites import with_checks
from jobs.publishing.publication_warnings import publication_warnings
from jobs.reading.stored_tables import spec_of
from jobs.runs import Slice
from windowlib.errors import RequestError


@click.command(
    "adopt",
    short_help="Let the published chain go on with the edited pipeline file.",
    epilog="Example: hindcast adopt flights --from 2013-02-10 --no-publish",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option(
    "--from",
    "from_text",
    default=None,
    metavar="DATE",
    help="The first slice with the new spec.  [default: the published head; of another length: the one after it]",
)
@click.option("--no-publish", is_flag=True, help="Only stage the slices, and print the difference.")
@click.option("--dry-run", is_flag=True, help="Only print what changes, and what would be replayed.")
@click.option("--reason", default="", help="Why. The ledger stores it.")
@progress_option
@options.master_option
@all_option
@options.json_option
@options.existing_place_options
def adopt_command(  # noqa: PLR0913 - one parameter per option
    *, pipeline_name: str, from_text: str | None, no_publish: bool, dry_run: bool, reason: str, progress: str,
    master: str | None, fold_from: int, as_json: bool, places: options.Places,
) -> int:  # fmt: skip
    """Replay the slices from --from to the published head with the spec of the pipeline file, and publish them.

    Until then, the schedule goes on with the spec that was published. The new chain begins at a restart point: its
    rows are those of a chain that always had the new spec. The slices before --from stay as they are. If the new spec
    fires windows at other times, readers may see records of windows over that border twice, or never. If they would
    lose windows for good, or see records twice, a check holds the request, and the exit status is 1: a person waives
    it, or cancels the request.
    """
    pipeline = places.pipeline(pipeline_name)
    work = with_checks(places.request_context(pipeline))
    slices, view = _slices(work, from_text), work.ledger.view()
    names = [slice_.slice_id for slice_ in slices if slice_.slice_id in view.published]
    chain = filter(None, map(view.published_chain_run, names) if names else [view.head])  # none if `every` has changed
    other = next((run for run in chain if run.result.spec_fingerprint != spec_fingerprint(pipeline)), None)
    if other is None:
        line = f"{pipeline.name}: the published chain has the spec of {pipeline.source} already."
        if why := why_uncomputable(work, spec_fingerprint(pipeline)):
            raise RequestError(f"{line} {why[0].upper()}{why[1:]}. Edit the file, and run this command again")
        return options.answer(as_json, {"pipeline": pipeline.name, "changes": []}, line)
    told = options.err() if as_json else options.out()
    before = spec_of(view, other)
    stored = stored_pipeline(pipeline, view.requests[other.request_id])  # with the functions beside the file
    changes = spec_changes(stored, pipeline, spec=other.result.spec_fingerprint)
    for line in changes:
        options.say(line, console=told)
    border = border_warning(changes, first=slices[0], published=view.slices[next(iter(view.published))])
    stopped = stopped_readers(load_all(places.pipelines).good, work.lake, before=before, after=pipeline)
    for line in (*filter(None, [border]), *stopped):
        options.complain(f"warning: {line}")
    warm_up = restart_of(work, slices, master=master)
    if dry_run:
        planned = work.plan(view, Ask.of_range(slices, pipeline=pipeline, warm_up=warm_up))
        beyond = publication_warnings(work.lake, view, planned)
        planned = replace(planned, warnings=(*planned.warnings, *beyond))
        if as_json:
            options.print_json(planned.to_json())
        else:
            show_plan(planned, at_least=fold_from)
        return options.OK
    asked = Asked(
        from_ms=slices[0].start_ms,
        to_ms=slices[-1].end_ms,
        who=options.who(),
        reason=reason or f"the spec of {pipeline.source} from {show_instant(slices[0].start_ms)} on",
        warm_up=warm_up,
    )
    shown = Shown(as_json=as_json, fold_from=fold_from, progress=progress)
    return run_asked(work, asked, staging=Staging(), publishes=not no_publish, master=master, shown=shown)


def _slices(work: RequestContext, from_text: str | None) -> tuple[Slice, ...]:
    """Return the slices from a bound to the published head. Those of another length begin with the one after it.

    Raises:
        RequestError: nothing is published, the bound is after the head, or `log.slice` leaves slices between them out.
        RangeError: slices of another length are adopted, and the first of them is not over.
    """
    head = work.ledger.view().head
    if head is None:
        raise RequestError(
            f"pipeline {work.pipeline.name} has no published chain; `hindcast run` begins one with the pipeline file"
        )
    last, grid = head.result.slice, slice_grid(work.pipeline)
    default = last if slice_at(grid, last.start_ms) == last else slice_at(grid, last.end_ms)
    final = slice_at(grid, parse_bound(work.pipeline, last.slice_id))  # in another time zone: the day of its date
    first = default if from_text is None else slice_at(grid, parse_bound(work.pipeline, from_text))
    if default != last and first == default:
        return check_range(work.pipeline, first.start_ms, first.end_ms, now_ms=work.ledger.now_ms())
    if first.start_ms > final.start_ms:
        raise RequestError(
            f"--from {first.slice_id} is after the published head {last.slice_id} of pipeline {work.pipeline.name}. "
            "The new spec begins at a published slice"
        )
    return check_range(work.pipeline, first.start_ms, final.end_ms, now_ms=work.ledger.now_ms())
