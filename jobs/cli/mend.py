"""The command `hindcast mend`."""

import click

from jobs.cli import options
from jobs.orchestration.mending import Mended, mend
from jobs.pipeline.slices import slice_of_id
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext
from jobs.runs import SHOWN_DIGITS


@click.command(
    "mend",
    short_help="Make damaged rows of a slice again.",
    epilog="Examples: hindcast mend flights 2013-02-08 --dry-run; hindcast mend flights 2013-02-08",
)
@click.option("--dry-run", is_flag=True, help="Only tell what is damaged, and whether it can be made again.")
@click.option("--reason", default="", help="Why. The ledger stores it.  [default: what was found]")
@options.master_option
@options.json_option
@options.pipeline_options
@click.argument("slice_id", metavar="SLICE")
def mend_command(
    *, slice_id: str, dry_run: bool, reason: str, master: str | None, as_json: bool, work: RequestContext
) -> int:
    """Make the damaged rows of the runs of a slice again, also those of its state.

    `hindcast verify` names the slices. The slice is replayed from the stored state before it, with the spec of the run.
    The new rows must have the run id and the digests of the ledger. Then they count for the run in place of the damaged
    ones, and publications stay as they are. Nothing changes for a run whose records, or the state before it, are not
    there any more. The exit status is 1 if something is still damaged, or a run cannot be made again.
    """
    slice_ = slice_of_id(work.pipeline, slice_id, known=work.ledger.view().slices)
    from jobs.replay.replayer import spark_replayer

    with spark_replayer(master) as replayer:
        mended = mend(work, slice_, replayer, who=options.who(), reason=reason, dry_run=dry_run, master=master)
    options.answer(as_json, mended.to_json(), *_lines(mended, dry_run=dry_run))
    return options.REFUSED if mended.left or mended.refused else options.OK


def _lines(mended: Mended, *, dry_run: bool) -> list[str]:
    where = f"{mended.pipeline}: slice {mended.slice_id}"
    if not mended.damaged:
        return [f"{where}: everything is as it was written"]
    lines = [str(finding) for findings in mended.damaged.values() for finding in findings]
    if dry_run:
        lines.append(f"{where}: {counted(len(mended.damaged) - len(mended.refused), 'run')} can be made again")
        lines.append(f"next: hindcast mend {mended.pipeline} {mended.slice_id}")
    for run_id, attempt_id in mended.attempts.items():
        lines.append(
            f"{where}: run {run_id[:SHOWN_DIGITS]} was made again, with equal digests, as attempt {attempt_id}"
        )
    lines += [f"{where}: {why}" for why in mended.refused.values()]
    lines += [f"still damaged: {finding}" for finding in mended.left]
    return lines
