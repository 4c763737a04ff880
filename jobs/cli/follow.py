"""The command `hindcast follow`."""

from collections.abc import Sequence
from dataclasses import replace

import click

from jobs.cli import options
from jobs.cli.plan import NoPlanYet, downstream_plans, show_downstream
from jobs.cli.progress import progress_option
from jobs.cli.run import Shown, run_asked
from jobs.cli.slice_lines import all_option
from jobs.ledger.view import Request
from jobs.orchestration.following import following, readers_of, slices_to_follow
from jobs.orchestration.open_ranges import in_the_way
from jobs.orchestration.requests import Staging
from jobs.pipeline.files import load_all
from jobs.plain_text import shortened
from jobs.planning.plan import Plan
from jobs.planning.request_context import Asked, IfOpen, RequestContext, find_resumable
from jobs.publishing.stop_reasons import stopping_runs
from jobs.runs import SHOWN_DIGITS, Slice
from windowlib.errors import HindcastError, RequestError


@click.command(
    "follow",
    short_help="Bring the pipelines that read a pipeline up to what it has published.",
    epilog="Examples: hindcast follow flights --dry-run; hindcast follow flights",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option("--dry-run", is_flag=True, help="Only print the plans, as far as they are known now.")
@click.option("--no-publish", is_flag=True, help="Only stage the slices of the nearest pipelines.")
@click.option("--reason", default="", help="Why. The ledgers store it.")
@progress_option
@options.master_option
@all_option
@options.json_option
@options.existing_place_options
def follow_command(  # noqa: PLR0913 - one parameter per option
    *, pipeline_name: str, dry_run: bool, no_publish: bool, reason: str, progress: str, master: str | None,
    fold_from: int, as_json: bool, places: options.Places,
) -> int:  # fmt: skip
    """Replay and publish, in the pipelines that read PIPELINE, what follows from its publications.

    A pipeline that reads another one comes after it. Each is one request, which is published whole or not at all, and
    reads one version of the other ledger. If a request is not published, the pipelines that read it are left out, and
    the exit status is 1: run the command again after the decision. A pipeline file that differs from what is published
    is not used until it is adopted. --json prints one object for each pipeline.
    """
    name, files = places.pipeline(pipeline_name).name, load_all(places.pipelines)
    for broken in files.broken:
        options.complain(f"warning: {broken.name} is not followed if it reads {name}: {broken.error}")
    readers = readers_of(files.good, name)
    if dry_run or not readers:
        _print_plans(name, downstream_plans(places, name), fold_from=None if as_json else fold_from)
        return options.OK
    shown = Shown(as_json=as_json, fold_from=fold_from, progress=progress)
    stopped, exit_status = set[str](), options.OK
    for reader in readers:
        if reader.log.pipeline in stopped:
            stopped.add(reader.name)
            continue
        try:
            work, warnings = following(places.request_context(reader))
            slices, left_out = slices_to_follow(work)
            for warning in (*warnings, *left_out):
                options.complain(f"warning: {warning}")
            asked = _asked(work, slices, reason=reason, publishes=not no_publish)
            status = run_asked(work, asked, staging=Staging(), publishes=not no_publish, master=master, shown=shown)
        except HindcastError as error:  # the others are still followed (law L10)
            options.complain(f"{reader.name}: {error}")
            stopped.add(reader.name)
            exit_status = options.REFUSED
            continue
        if no_publish or status != options.OK:
            stopped.add(reader.name)
    return options.REFUSED if stopped and not no_publish else exit_status


def _asked(work: RequestContext, slices: Sequence[Slice], *, reason: str, publishes: bool) -> Asked:
    """Return what is asked for. It replaces requests that an earlier `follow` has left, and no person decides on.

    A person decides on those that were staged with `--no-publish`, which only another one with this option replaces,
    and on those of other commands. A request that is left or opened after this look is neither continued nor replaced.

    Raises:
        RequestError: an open request of the same slices, which would be continued, is one that a person decides on.
    """
    own = f"follows the publications of {work.pipeline.log.pipeline}"
    wanted = own if publishes else f"{own}, staged with --no-publish"
    asked = Asked(
        from_ms=slices[0].start_ms,
        to_ms=slices[-1].end_ms,
        who=options.who(),
        reason=f"{wanted}: {reason}" if reason else wanted,
    )
    view = work.ledger.view()
    left = view.requests.get(find_resumable(work, view, asked) or "")
    if left is not None and left.runs and _purpose(left) not in {own, wanted}:
        name, request_id = work.pipeline.name, left.request_id[:SHOWN_DIGITS]
        why = f" ({shortened(left.reason)})" if left.reason else ""
        raise RequestError(
            f"request {request_id} of {left.who}{why} has the same slices, so a person decides on it: `hindcast "
            f"{'publish' if left.is_complete else 'run'} {name} --request {request_id}` or `hindcast cancel {name} "
            f"--request {request_id} --reason …`"
        )
    resumed = left if left is not None and _purpose(left) == wanted else None
    asked = replace(asked, resumes=frozenset(() if resumed is None else {resumed.request_id}))
    others = () if resumed is not None else in_the_way(work, view, asked)
    runs = [view.runs.get(run_id) for other in others for run_id in other.runs.values()]  # some may be condemned
    is_left = all(_purpose(other) in {own, wanted} and not stopping_runs(view, other) for other in others)
    is_replacing = others and is_left and not any(run is not None and run.waiver for run in runs)
    seen = frozenset(other.request_id for other in others)
    return replace(asked, if_open=IfOpen.REPLACE, replaces=seen) if is_replacing else asked


def _purpose(request: Request) -> str:
    """Return the reason of a request without the words of the person (`--reason`)."""
    return request.reason.partition(": ")[0]


def _print_plans(name: str, plans: Sequence[Plan | NoPlanYet], *, fold_from: int | None) -> None:
    """Print the plans of the pipelines that read a pipeline; as JSON if `fold_from` is None."""
    if fold_from is not None:
        show_downstream(name, plans, fold_from=fold_from)
        return
    for planned in [planned.to_json() for planned in plans] or [{"pipeline": name, "readers": []}]:
        options.print_json(planned)
