"""The command `hindcast verify`."""

import re
from typing import Final

import click

from jobs.cli import options
from jobs.orchestration.maintenance import verify_all
from jobs.pipeline.slices import parse_bound
from jobs.plain_text import counted
from jobs.planning.published_spec import on_published_spec, why_lost
from jobs.planning.request_context import RequestContext
from jobs.reading.verify import Span
from windowlib.errors import RangeError, RequestError

_SHARE: Final = re.compile(r"1/([1-9][0-9]{0,4})")


@click.command(
    "verify",
    short_help="Compare all stored rows with the ledger.",
    epilog="Examples: hindcast verify flights; hindcast verify flights --from 2013-02-01 --to 2013-02-08",
)
@click.option("--from", "from_text", default=None, metavar="DATE", help="Start of the range.  [default: no limit]")
@click.option(
    "--to", "to_text", default=None, metavar="DATE", help="End of the range, not included in it.  [default: no limit]"
)
@click.option(
    "--share",
    "share_text",
    default=None,
    metavar="1/N",
    help="Only one of N shares of the slices, another one each day: with 1/30, each slice is read once in 30 days.",
)
@options.json_option
@options.pipeline_options
def verify_command(
    *, from_text: str | None, to_text: str | None, share_text: str | None, as_json: bool,
    work: RequestContext,
) -> int:  # fmt: skip
    """Compare the ledger, every stored row of published and staged runs, and the log's files with what was written.

    The command finds lost, duplicated and changed rows and unreadable files in all tables: outputs, side tables,
    checkpoints, tallies and results of checks. Of the event log, it reads the files of the published slices, and
    compares them with their checksums, or with the digests that the runs have stored. Notes name files of the ledger
    that no commit names, and a published spec that cannot be computed any more, as after an upgrade. The exit status is
    1 if there is a finding. It is 0 without one, also if no slice is in the share or range, or if files of the log have
    no checksum and no run has stored a digest of them: the last line tells so. A
    pipeline without a ledger is refused. `hindcast mend` makes damaged rows again.
    """
    from_ms, to_ms = (None if text is None else parse_bound(work.pipeline, text) for text in (from_text, to_text))
    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise RangeError(f"--to {to_text} is not after --from {from_text}, so there is no slice to verify")
    span = Span(from_ms=from_ms, to_ms=to_ms)
    if share_text is not None:
        span = span.of_days(_shares(share_text), now_ms=work.ledger.now_ms())
    read = verify_all(work, span)
    report, ledger, log = read.report, read.ledger, read.log
    view = work.ledger.view()
    notes = (*ledger.notes, *filter(None, [why_lost(on_published_spec(work, view)[0], view)]))
    if not report.ledger_version:
        raise RequestError(
            f"{work.pipeline.name} has no ledger in the lake {work.lake.root}, so nothing was compared; name the lake "
            "with --lake or HINDCAST_LAKE, or restore the ledger from a copy"
        )
    if as_json:
        further = {"notes": [*notes], "log_files": log.files, "log_files_unknown": log.unknown}
        options.print_json(report.to_json() | further)
    else:
        options.say(*map(str, report.findings), *(f"note: {note}" for note in notes))
        options.say(
            f"{report.pipeline}: {counted(report.rows, 'row')} of {counted(report.runs, 'run')} "
            f"(ledger version {report.ledger_version}); "
            f"{log}: {report.verdict}"
        )
        options.say(*(f"next: hindcast mend {report.pipeline} {slice_id}" for slice_id in report.mendable))
    return options.REFUSED if report.findings else options.OK


def _shares(text: str) -> int:
    """Return N of a text 1/N; a wrong one is an error of usage."""
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(
            f"expected 1/N with a whole number N, such as 1/30, found {text!r}", param_hint="--share"
        )
    return int(match[1])
