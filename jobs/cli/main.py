"""The command line `hindcast`: its help, its commands and its entry point."""

import sys

import click

from jobs.cli import common
from jobs.cli.decide import publish_command, resume_command, rollback_command, waive_command
from jobs.cli.look import explain_command, report_command, show_command, status_command
from jobs.cli.run import load_flights_command, plan_command, run_command
from jobs.cli.verify import verify_command
from jobs.console import log_to_stderr
from jobs.spark.child_env import clean_environment

HELP = """Replay an append-only Delta table of events through event-time windows, and publish only checked results.

\b
Examples:
  hindcast plan flights --from 2013-02-01 --to 2013-02-08    list the slices to replay, and why
  hindcast run flights --from 2013-02-01 --to 2013-02-08     replay, check and publish
  hindcast show flights --limit 5                            print published windows
  hindcast status flights                                    list open requests, and why they are open
  hindcast waive flights 2013-02-08 --reason "a blizzard"    accept a failed slice
  hindcast publish flights                                   publish a staged request
  hindcast explain flights RECORD_ID                         print the fate of one record
  hindcast verify flights                                    check all stored rows against the ledger

PIPELINE is a name in the pipelines directory, or the path of a pipeline file. Ranges are half-open: [from, to)
includes `from` and excludes `to`. Exit status: 0 done, 1 a check failed or the request was refused, 2 wrong usage or a
wrong pipeline file.
"""


@click.group(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def hindcast() -> None:
    """The group of all commands; its help is HELP."""


for _command in (
    plan_command,
    run_command,
    status_command,
    show_command,
    publish_command,
    waive_command,
    rollback_command,
    resume_command,
    explain_command,
    report_command,
    verify_command,
    load_flights_command,
):
    hindcast.add_command(_command)


def main() -> None:
    """Run the command line and exit: the entry point of the `hindcast` script."""
    clean_environment()
    log_to_stderr()
    sys.exit(common.run_cli(hindcast))


if __name__ == "__main__":
    main()
