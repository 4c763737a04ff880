"""The command `hindcast verify`."""

import click

from jobs.cli import common
from jobs.pipeline.slices import parse_bound
from jobs.reading.verify import Span, verify


@click.command(
    "verify",
    short_help="Compare all stored rows with the ledger.",
    epilog="Examples: hindcast verify flights; hindcast verify flights --from 2013-02-01 --to 2013-02-08",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option("--from", "from_text", default=None, metavar="DATE", help="Start of the range.  [default: no limit]")
@click.option(
    "--to", "to_text", default=None, metavar="DATE", help="End of the range, not included in it.  [default: no limit]"
)
@common.json_option
@common.existing_place_options
def verify_command(
    *, pipeline_name: str, from_text: str | None, to_text: str | None, as_json: bool, places: common.Places
) -> int:
    """Compare every stored row of every published or staged run with the ledger.

    The command finds lost, duplicated and changed rows and unreadable files in all tables: outputs, side tables,
    checkpoints, tallies and results of checks. The exit status is 1 if there is a finding.
    """
    work = places.workspace(places.pipeline(pipeline_name))
    bounds = [None if text is None else parse_bound(work.pipeline, text) for text in (from_text, to_text)]
    span = Span(from_ms=bounds[0], to_ms=bounds[1])
    found = verify(places.lake, work.pipeline.name, work.ledger.view(), span=span)
    if as_json:
        common.print_json(found.to_json())
    else:
        common.say(*map(str, found.findings))
        verdict = f"{len(found.findings):,} findings" if found.findings else "all rows are as they were written"
        common.say(
            f"{found.pipeline}: {found.rows:,} rows of {found.runs:,} runs (ledger version {found.ledger_version}): "
            f"{verdict}"
        )
    return common.REFUSED if found.findings else common.OK
