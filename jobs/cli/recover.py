"""The command `hindcast recover`."""

import click

from jobs.cli import options
from jobs.planning.request_context import RequestContext
from jobs.publishing.current_tables import move_current_tables


@click.command(
    "recover",
    short_help="Go on after the ledger has lost its last commits.",
    epilog='Example: hindcast recover flights --reason "the disk failed, and the backup is of the day before"',
)
@click.option("--reason", required=True, help="Why the commits cannot be restored. The ledger stores it.")
@options.pipeline_options
def recover_command(*, reason: str, work: RequestContext) -> int:
    """Let a ledger go on after it has lost commits.

    If commit files alone are lost, also in the middle, they are written again from their data files, and nothing is
    lost. Else the ledger goes on without its last commits.

    Every other command refuses a ledger that has lost commits, because readers would see publications that a person has
    withdrawn, or miss decisions. Restore the directory of the ledger from a backup, if there is one. This command
    accepts the loss: what the lost commits recorded has not happened, and current tables no longer show it. Run
    `hindcast status` and `hindcast verify` then. The ledger uses the versions of the lost commits again: if you have
    kept one of them for `hindcast changes --since`, begin again with 0.
    """
    name = work.pipeline.name
    restored = work.ledger.restore_commits(who=options.who(), reason=reason)
    if restored:
        told = (
            f"{name}: the ledger's commit files of versions {', '.join(map(str, restored))} were written again from "
            "their data files, whose hashes prove them. Nothing is lost"
        )
    else:
        lost = work.ledger.recover(who=options.who(), reason=reason)
        told = (
            f"{name}: the ledger goes on at version {work.ledger.view().version}; the commits up to version "
            f"{lost.version} that were lost have not happened. Look at `hindcast status {name}`"
        )
    options.say(told)
    move_current_tables(work)
    return options.OK
