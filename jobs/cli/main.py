"""`hindcast`, the command line."""

import sys

import click

from jobs.cli import common
from jobs.cli.decide import publish_command, resume_command, rollback_command, waive_command
from jobs.cli.look import explain_command, report_command, show_command, status_command
from jobs.cli.run import load_flights_command, plan_command, run_command
from jobs.cli.verify import verify_command
from jobs.console import log_to_stderr
from jobs.spark.child_env import clean_environment

HELP = """Replay an append-only Delta table of events through event-time windows, and publish only what passed.

\b
A day's work:
  hindcast plan flights --from 2013-02-01 --to 2013-02-08    what would be replayed, and why
  hindcast run flights --from 2013-02-01 --to 2013-02-08     replay, check, publish
  hindcast show flights --limit 5                            what readers see
  hindcast status flights                                    what is open, and what holds it
  hindcast waive flights 2013-02-08 --reason "a blizzard"    let a failed slice pass
  hindcast publish flights                                   show what was staged
  hindcast explain flights RECORD_ID                         one record's fate
  hindcast verify flights                                    whether all that is stored is what was written

Ranges are half-open everywhere: [from, to) holds `from` and ends before `to`. PIPELINE is a name from the pipelines
directory or the path of a file. Exit status: 0 done, 1 a check failed or the request was refused, 2 usage or pipeline
file.
"""


@click.group(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def hindcast() -> None:
    """Group the commands."""


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
    """Entry point of the `hindcast` script."""
    clean_environment()
    log_to_stderr()
    sys.exit(common.run_cli(hindcast))


if __name__ == "__main__":
    main()
