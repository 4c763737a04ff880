"""The command `hindcast diff`."""

from collections.abc import Sequence

import click

from jobs.cli import options
from jobs.comparing.views import Sides, differing_request, request_sides, run_sides, two_requests_sides, version_sides
from jobs.ledger.view import LedgerView
from jobs.planning.request_context import RequestContext

BOTH = 2
SAMPLES, SAMPLES_JSON, SAMPLES_AFTER_A_RUN = 5, 20, 3


@click.command(
    "diff",
    short_help="Print what a request would change, or how two publications differ.",
    epilog="Examples: hindcast diff flights; hindcast diff flights --at 12 --at 17 --json",
)
@click.option(
    "--request",
    "request_ids",
    multiple=True,
    metavar="ID",
    help="Compare this request with what readers see; a published one with what they saw before it. Given twice: "
    "compare two requests. The first letters of an id are enough.  [default: the newest open request that would "
    "change something]",
)
@click.option(
    "--at",
    "versions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="VERSION",
    help="Compare what readers saw at this ledger version with what they see now. Given twice: compare two versions.",
)
@click.option(
    "--run",
    "run_ids",
    multiple=True,
    metavar="ID",
    help="Compare this run with the run of its slice that readers see. Given twice: compare two runs of one slice.",
)
@click.option("--all-panes", is_flag=True, help="Compare every firing of every window, not only the final result.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=None,
    help="The greatest number of rows side by side, of each table and each kind of change.  [default: 5, or 20 with "
    "--json]",
)
@click.option("--verify", is_flag=True, help="Compute the id of every row from its content. By default: up to 250,000.")
@options.json_option
@options.pipeline_options
def diff_command(
    *, request_ids: Sequence[str], versions: Sequence[int], run_ids: Sequence[str], all_panes: bool,
    limit: int | None, verify: bool, as_json: bool, work: RequestContext,
) -> int:  # fmt: skip
    """Print the windows and records that two views of a pipeline have differently: before, and after.

    For each table: how many are only in one view, and how many have changed. For each column: how often and by how much
    it differs. Then some rows side by side. Windows are compared by what readers see, which is the last firing.
    """
    view = work.ledger.view()
    sides = _sides(view, request_ids, versions=versions, run_ids=run_ids)
    samples = limit if limit is not None else SAMPLES_JSON if as_json else SAMPLES
    from jobs.comparing.compare import Comparison, compare

    content_rows = None if verify else Comparison().content_rows
    comparison = Comparison(all_panes=all_panes, samples=samples, content_rows=content_rows)
    differences = compare(work.lake, work.pipeline.name, sides, options=comparison)
    return options.answer(as_json, differences.to_json(), *differences.lines(samples=None))


def say_differences(work: RequestContext, request_id: str) -> None:
    """Print what a staged request would change, if it would change anything. Without an id, no request was opened."""
    view = work.ledger.view()
    if differing_request(view, request_id) is None:
        if not request_id:
            options.say("Nothing to compare: readers see these runs already.")
        return
    from jobs.comparing.compare import Comparison, compare

    comparison = Comparison(samples=SAMPLES_AFTER_A_RUN)
    differences = compare(work.lake, work.pipeline.name, request_sides(view, request_id), options=comparison)
    options.say(*differences.lines(samples=None))


def _sides(view: LedgerView, request_ids: Sequence[str], *, versions: Sequence[int], run_ids: Sequence[str]) -> Sides:
    options = (("--request", bool(request_ids)), ("--at", bool(versions)), ("--run", bool(run_ids)))
    given = [name for name, is_given in options if is_given]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other; give one of them")
    for name, values in (("--request", request_ids), ("--at", versions), ("--run", run_ids)):
        if len(values) > BOTH:
            raise click.UsageError(f"{name} was given {len(values)} times; give it once or twice")
    if versions:
        return version_sides(view, *versions)
    if run_ids:
        return run_sides(view, *run_ids)
    if len(request_ids) == BOTH:
        return two_requests_sides(view, *request_ids)
    return request_sides(view, next(iter(request_ids), None))
