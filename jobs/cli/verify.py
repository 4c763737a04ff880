"""The command `hindcast verify`."""

from dataclasses import replace

import click

from jobs.cli import options
from jobs.pipeline.slices import parse_bound
from jobs.plain_text import counted
from jobs.reading.verified_ledger import verify_ledger
from jobs.reading.verified_log import verify_log
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
@options.json_option
@options.existing_place_options
def verify_command(
    *, pipeline_name: str, from_text: str | None, to_text: str | None, as_json: bool, places: options.Places
) -> int:
    """Compare the ledger, every stored row of published and staged runs, and the log's files with what was written.

    The command finds lost, duplicated and changed rows and unreadable files in all tables: outputs, side tables,
    checkpoints, tallies and results of checks. Of the event log, it reads the files of the published slices, and
    compares them with their checksums, or with the digests that the runs have stored. Notes name files of the ledger
    that no commit names. The exit status is 1 if there is a finding.
    """
    work = places.request_context(places.pipeline(pipeline_name))
    bounds = [None if text is None else parse_bound(work.pipeline, text) for text in (from_text, to_text)]
    span = Span(from_ms=bounds[0], to_ms=bounds[1])
    view = work.ledger.view()
    report = verify(places.lake, work.pipeline.name, view, span=span)
    ledger = verify_ledger(work.ledger)
    log = verify_log(places.lake, work.pipeline, view, span=span)
    report = replace(report, findings=(*ledger.findings, *report.findings, *log.findings))
    if as_json:
        further = {"notes": [*ledger.notes], "log_files": log.files, "log_files_unknown": log.unknown}
        options.print_json(report.to_json() | further)
    else:
        options.say(*map(str, report.findings), *(f"note: {note}" for note in ledger.notes))
        verdict = counted(len(report.findings), "finding") if report.findings else "everything is as it was written"
        options.say(
            f"{report.pipeline}: {counted(report.rows, 'row')} of {counted(report.runs, 'run')} "
            f"(ledger version {report.ledger_version}); "
            f"{log}: {verdict}"
        )
    return options.REFUSED if report.findings else options.OK
