"""The command `hindcast clean`."""

import click

from jobs.cli import options
from jobs.durations import format_duration
from jobs.lake.lake import CURRENT
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext
from jobs.publishing.cleaning import OLDER_THAN_MS, Leftovers, clean_lake


@click.command(
    "clean",
    short_help="Remove rows past their retention, and the files that killed replays have left.",
    epilog="Examples: hindcast clean flights; hindcast clean flights --older-than 1d --remove",
)
@click.option(
    "--older-than",
    "age",
    default=format_duration(OLDER_THAN_MS),
    show_default=True,
    metavar="AGE",
    help="Keep files that were written, or whose rows were deleted, later than this time ago, such as 12h.",
)
@click.option("--remove/--dry-run", "is_real", default=False, help="Remove them.  [default: only list them]")
@options.json_option
@options.pipeline_options
def clean_command(*, age: str, is_real: bool, as_json: bool, work: RequestContext) -> int:
    """Remove what nothing needs any more from the tables of a pipeline.

    The rows of runs that readers do not see, and old states, past the `retention` of the pipeline file: without it, all
    rows stay. What is removed is recorded in the ledger first. The files of these rows are removed by a later clean-up,
    when no reader of an older version of the table can be at work (--older-than).

    Files that no commit names, and shuffle files, of killed replays. Those of requests on which a process works stay.

    Files of current tables that publications have replaced, and cached files of a log that is a table of another
    pipeline, if the log has not had them since that time.

    Snapshots of the ledger that are not the newest of this version of Hindcast. They are a cache, and are made again.
    """
    older_than_ms = options.duration_ms(age, "--older-than", least_ms=0)
    leftovers = clean_lake(work, older_than_ms=older_than_ms, who=options.who(), dry_run=not is_real)
    return options.answer(as_json, leftovers.to_json(), *_lines(leftovers, older_than_ms))


def _lines(leftovers: Leftovers, older_than_ms: int) -> list[str]:
    size, count, name = counted(leftovers.bytes, "byte"), counted(len(leftovers.files), "file"), leftovers.pipeline
    what = f"that no commit names, older than {format_duration(older_than_ms)}"
    verb = "removed " if leftovers.is_removed else ""
    condemned = f"; condemned: {counted(len(leftovers.condemned), 'attempt')}" if leftovers.is_removed else ""
    lines = [f"{name}: {verb}{count} ({size}) {what}{condemned}"]
    lines += [
        f"{name}: {verb}rows of {rows.table}, {counted(rows.attempts, 'attempt')} ({counted(rows.bytes, 'byte')}): "
        f"{rows.why.value}"
        for rows in leftovers.rows
    ]
    if leftovers.expired:
        size = counted(sum(file.bytes for file in leftovers.expired), "byte")
        lines.append(f"{name}: {verb}{counted(len(leftovers.expired), 'file')} ({size}) of rows removed before")
    for table in sorted({file.table for file in leftovers.replaced}):
        own = [file.bytes for file in leftovers.replaced if file.table == table]
        what = "replaced" if table.startswith(CURRENT) else "that the log does not have any more"
        if any("/_delta_log/" in file.path for file in leftovers.replaced if file.table == table):
            what = "which the pipeline file does not name any more"
        lines.append(f"{name}: {verb}{counted(len(own), 'file')} ({counted(sum(own), 'byte')}) of {table}, {what}")
    if leftovers.snapshots:
        lines.append(f"{name}: {verb}{counted(len(leftovers.snapshots), 'snapshot')} of the ledger")
    if not (leftovers.is_removed or leftovers.is_empty):
        lines.append(f"next: hindcast clean {name} --remove")
    if leftovers.held:
        held = counted(len(leftovers.held), "attempt")
        lines.append(f"kept: the files of {held} of requests on which a process works")
    if leftovers.young:
        lines.append(f"kept: {counted(leftovers.young, 'younger file')}")
    return lines
