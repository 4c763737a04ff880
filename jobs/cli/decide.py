"""Commands by which a person decides: publish, waive, rollback, resume."""

import click

from jobs.cli import common
from jobs.publishing.decisions import resume, rollback, waive
from jobs.publishing.publishing import publish
from jobs.publishing.rules import Publication


@click.command("publish", epilog="Example: hindcast publish flights")
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option(
    "--request",
    "request_id",
    default=None,
    metavar="ID",
    help="This request.  [default: the newest open one that may be published]",
)
@common.json_option
@common.existing_place_options
def publish_command(*, pipeline_name: str, request_id: str | None, as_json: bool, places: common.Places) -> int:
    """Let readers see what was staged: all slices of a request at once, in one ledger commit, or nothing.

    Refused, with exit status 1 and the names of the slices, while a check holds one of them, or when slices that
    readers see were computed from a state that would change.
    """
    pipeline = places.pipeline(pipeline_name)
    return _tell(publish(places.workspace(pipeline), who=common.who(), request_id=request_id), as_json=as_json)


@click.command(
    "waive", epilog='Example: hindcast waive flights 2013-02-08 --reason "a blizzard; the cancellations are real"'
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.argument("slice_id", metavar="SLICE")
@click.option("--reason", required=True, help="Why this failed slice may be seen; kept in the ledger with your name.")
@click.option(
    "--run",
    "run_id",
    default=None,
    metavar="ID",
    help="The run that you have looked at, or the first letters of its id; refused when another one was staged since.  "
    "[default: the newest]",
)
@common.json_option
@common.existing_place_options
def waive_command(
    *, pipeline_name: str, slice_id: str, reason: str, run_id: str | None, as_json: bool, places: common.Places
) -> int:
    """Let one failed slice pass, for a reason. SLICE is its id, such as 2013-02-08. Publish afterwards.

    The waiver is for the run as it is: other records or another spec make another run, which is judged anew. A check
    that broke (verdict error) cannot be waived.
    """
    pipeline = places.pipeline(pipeline_name)
    run = waive(places.workspace(pipeline), slice_id, reason=reason, who=common.who(), run_id=run_id)
    one = {"pipeline": pipeline.name, "slice_id": run.result.slice.slice_id, "run_id": run.result.run_id}
    if as_json:
        common.print_json(one | {"who": common.who(), "reason": reason.strip()})
    else:
        common.say(
            f"waived: slice {one['slice_id']} of {pipeline.name} (run {one['run_id'][:12]}), by {common.who()}: "
            f"{reason.strip()}",
            f"next: hindcast publish {pipeline.name}",
        )
    return common.OK


@click.command("rollback", epilog='Example: hindcast rollback flights --publication 12 --reason "published too early"')
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option(
    "--publication",
    type=click.IntRange(min=1),
    required=True,
    metavar="NUMBER",
    help="The publication to take back, as `hindcast status` names it; it must be the newest.",
)
@click.option("--reason", required=True, help="Why; kept in the ledger with your name.")
@common.json_option
@common.existing_place_options
def rollback_command(*, pipeline_name: str, publication: int, reason: str, as_json: bool, places: common.Places) -> int:
    """Let readers see again what they saw before a publication. Nothing is deleted.

    The chain is held from then on: the schedule skips, until a person publishes (`hindcast run`, `hindcast publish
    --request`) or lets it go on (`hindcast resume`).
    """
    pipeline = places.pipeline(pipeline_name)
    done = rollback(places.workspace(pipeline), publication, reason=reason, who=common.who())
    return _tell(done, as_json=as_json, what="rolled back")


@click.command("resume", epilog='Example: hindcast resume flights --reason "the feed was mended"')
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option("--reason", required=True, help="Why; kept in the ledger with your name.")
@common.json_option
@common.existing_place_options
def resume_command(*, pipeline_name: str, reason: str, as_json: bool, places: common.Places) -> int:
    """Let the chain go on after a rollback: the schedule replays and publishes what follows the published head."""
    pipeline = places.pipeline(pipeline_name)
    ended = resume(places.workspace(pipeline), reason=reason, who=common.who())
    if as_json:
        common.print_json({"pipeline": pipeline.name, "rolled_back": ended.undoes, "by": ended.who})
    else:
        common.say(f"resumed: {pipeline.name} was held since {ended.who} rolled back publication {ended.undoes}")
    return common.OK


def _tell(publication: Publication, *, as_json: bool, what: str = "published") -> int:
    if as_json:
        common.print_json(publication.to_json())
    elif publication.is_published:
        common.say(f"{what}: {publication.why} (ledger version {publication.ledger_version})")
    else:
        common.complain(f"not published: {publication.why}")
    return common.OK if publication.is_published else common.REFUSED
