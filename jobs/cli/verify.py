"""The command that verifies: hindcast verify."""

import click

from jobs.cli import common
from jobs.pipeline.slices import parse_bound
from jobs.reading.verify import Span, verify


@click.command(
    "verify", epilog="Examples: hindcast verify flights; hindcast verify flights --from 2013-02-01 --to 2013-02-08"
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option("--from", "from_text", default=None, metavar="DATE", help="First slice.  [default: the first there is]")
@click.option("--to", "to_text", default=None, metavar="DATE", help="End of the range, not included.")
@common.json_option
@common.existing_place_options
def verify_command(
    *, pipeline_name: str, from_text: str | None, to_text: str | None, as_json: bool, places: common.Places
) -> int:
    """Compare every stored row of every run, published or staged, with what the ledger says was written.

    Finds rows that were lost, doubled or changed, and files that cannot be read: outputs, side tables, checkpoints,
    tallies, results of checks. Exit status 1 when something is not what was written.
    """
    work = places.workspace(places.pipeline(pipeline_name))
    bounds = [None if text is None else parse_bound(work.pipeline, text) for text in (from_text, to_text)]
    span = Span(from_ms=bounds[0], to_ms=bounds[1])
    found = verify(places.lake, work.pipeline.name, work.ledger.view(), span=span)
    if as_json:
        common.print_json(found.to_json())
    else:
        common.say(*map(str, found.findings))
        verdict = f"{len(found.findings):,} findings" if found.findings else "everything is what was written"
        common.say(
            f"{found.pipeline}: {found.rows:,} rows of {found.runs:,} runs (ledger version {found.ledger_version}): "
            f"{verdict}"
        )
    return common.REFUSED if found.findings else common.OK
