"""The command line `hindcast`: its help, its commands and its entry point."""

import gc
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from typing_extensions import override

from jobs.cli import NO_PLUGINS, options
from jobs.cli.arrow_start import keep_pandas_out, leave_help_out
from jobs.console import end_process, log_to_stderr
from jobs.replay.process_memory import share_one_heap
from jobs.spark.child_env import clean_environment
from jobs.streams import lose_unwritable_messages, open_missing_streams

COMMANDS: Mapping[str, str] = {
    "doctor": "jobs.cli.doctor:doctor_command",
    "init": "jobs.cli.init:init_command",
    "schema": "jobs.cli.schema:schema_command",
    "plan": "jobs.cli.plan:plan_command",
    "run": "jobs.cli.run:run_command",
    "follow": "jobs.cli.follow:follow_command",
    "adopt": "jobs.cli.adopt:adopt_command",
    "repair": "jobs.cli.repair:repair_command",
    "status": "jobs.cli.status:status_command",
    "show": "jobs.cli.inspect:show_command",
    "diff": "jobs.cli.diff:diff_command",
    "changes": "jobs.cli.changes:changes_command",
    "export": "jobs.cli.export:export_command",
    "publish": "jobs.cli.decide:publish_command",
    "waive": "jobs.cli.decide:waive_command",
    "cancel": "jobs.cli.decide:cancel_command",
    "comment": "jobs.cli.comment:comment_command",
    "rollback": "jobs.cli.decide:rollback_command",
    "resume": "jobs.cli.decide:resume_command",
    "accept-rewrite": "jobs.cli.accept_rewrite:accept_rewrite_command",
    "explain": "jobs.cli.explain:explain_command",
    "report": "jobs.cli.inspect:report_command",
    "verify": "jobs.cli.verify:verify_command",
    "mend": "jobs.cli.mend:mend_command",
    "clean": "jobs.cli.clean:clean_command",
    "recover": "jobs.cli.recover:recover_command",
    "suite": "jobs.cli.suite:suite_command",
    "load-flights": "jobs.cli.load_flights:load_flights_command",
    "metrics": "jobs.cli.metrics:metrics_command",
    "setup": "jobs.cli.setup:setup_command",
}
"""Name of a command -> its module and function. A module is imported when its command is used."""

READERS = frozenset(
    {"doctor", "init", "plan", "repair", "show", "diff", "changes", "export", "explain", "verify", "report", "clean"}
)
"""Commands that read rows and need no pandas."""

REPLAYERS = frozenset({"run", "follow", "adopt", "repair"})
"""Commands that may replay many chunks."""

HELP = """Replay an append-only Delta table of events through event-time windows, and publish only checked results.

\b
Examples:
  hindcast doctor event_logs/flights                         is this log fit for replay?
  hindcast init event_logs/flights                           write a first pipeline file for it
  hindcast plan flights --from 2013-02-01 --to 2013-02-08    list the slices to replay, and why
  hindcast run flights --from 2013-02-01 --to 2013-02-08     replay, check and publish
  hindcast show flights --limit 5                            print published windows
  hindcast status flights                                    list open requests, and why they are open
  hindcast diff flights                                      compare an open request with what readers see
  hindcast waive flights 2013-02-08 --run 8c1f --reason …    accept a failed slice, after a look at that run
  hindcast publish flights                                   publish a staged request
  hindcast explain flights RECORD_ID                         print the fate of one record
  hindcast explain flights --window JFK 2013-02-04T13:45     print why a window has its numbers
  hindcast verify flights                                    check all stored rows against the ledger

PIPELINE is a name in the pipelines directory, or the path of a pipeline file. Ranges are half-open: [from, to)
includes `from` and excludes `to`. Exit status: 0 done, 1 a check failed or the request was refused, 2 wrong usage or a
wrong pipeline file.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used; the help of the group imports all."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        command: Any = getattr(import_module(module), function)
        assert isinstance(command, click.Command), f"{COMMANDS[cmd_name]} is a command"
        return command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments; raise NoSuchCommand with the commands that have similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None


@click.group(
    cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="hindcast", message="%(prog)s %(version)s")
def hindcast() -> None:
    """The group of all commands; its help is HELP."""


def collect_rarely() -> None:
    """Let the garbage collector not look at the modules again and again while a large ledger is read."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def main() -> None:
    """Run the command line and exit: the entry point of the `hindcast` script."""
    open_missing_streams()
    lose_unwritable_messages()
    clean_environment()
    if sys.modules.get(NO_PLUGINS.__name__) is NO_PLUGINS:
        del sys.modules[NO_PLUGINS.__name__]  # users' functions may have models with plugins
    leave_help_out()
    log_to_stderr()
    if sys.argv[1:2] and sys.argv[1] in READERS:
        keep_pandas_out()
    if sys.argv[1:2] and sys.argv[1] in REPLAYERS:
        share_one_heap()
    collect_rarely()
    end_process(options.run_cli(hindcast))


if __name__ == "__main__":
    main()
