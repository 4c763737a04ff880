"""The command `hindcast clean`."""

from collections.abc import Sequence

import click

from jobs.cli import options
from jobs.durations import format_duration
from jobs.lake.lake import Lake
from jobs.lake.leftover_files import LakeFiles
from jobs.ledger.view import LedgerView, StagedRun
from jobs.plain_text import counted
from jobs.publishing.cleaning import CheckRows, Leftovers, clean
from jobs.reading.verify import Span, verify
from windowlib.errors import StoreError

AGE = "7d"


@click.command(
    "clean",
    short_help="Remove the files that killed replays have left.",
    epilog="Examples: hindcast clean flights; hindcast clean flights --older-than 1d --remove",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option(
    "--older-than",
    "age",
    default=AGE,
    show_default=True,
    metavar="AGE",
    help="Keep files that were written later than this time ago, such as 12h.",
)
@click.option("--remove/--dry-run", "is_real", default=False, help="Remove the files.  [default: only list them]")
@options.json_option
@options.existing_place_options
def clean_command(*, pipeline_name: str, age: str, is_real: bool, as_json: bool, places: options.Places) -> int:
    """Remove what killed replays have left in the lake: files that no commit names, and shuffle files.

    Committed rows stay, and so do the files of requests on which a process works. Before the first file of an attempt
    that was never staged is removed, the ledger condemns the attempt, so that no run of it can be staged any more.
    """
    older_than_ms = options.duration_ms(age, "--older-than", least_ms=0)
    work = places.request_context(places.pipeline(pipeline_name))
    files = LakeFiles(lake=places.lake, pipeline=work.pipeline.name)
    leftovers = clean(
        work,
        files,
        older_than_ms=older_than_ms,
        who=options.who(),
        check_rows=rows_checker(places.lake, work.pipeline.name),
        dry_run=not is_real,
    )
    if as_json:
        options.print_json(leftovers.to_json())
    else:
        options.say(*_lines(leftovers, older_than_ms))
    return options.OK


def rows_checker(lake: Lake, pipeline: str) -> CheckRows:
    """Return a function that compares the stored rows of runs with the ledger, as `hindcast verify` does."""

    def check(view: LedgerView, runs: Sequence[StagedRun]) -> None:
        for run in runs:
            slice_ = run.result.slice
            findings = verify(lake, pipeline, view, span=Span(from_ms=slice_.start_ms, to_ms=slice_.end_ms)).findings
            if findings:
                raise StoreError(
                    f"the rows of slice {slice_.slice_id} are not those that the ledger names ({findings[0]}), so its "
                    f"other files may be needed, and nothing was removed. Run `hindcast verify {pipeline}`"
                )

    return check


def _lines(leftovers: Leftovers, older_than_ms: int) -> list[str]:
    size, count, name = counted(leftovers.bytes, "byte"), counted(len(leftovers.files), "file"), leftovers.pipeline
    what = f"that no commit names, older than {format_duration(older_than_ms)}"
    if leftovers.is_removed:
        lines = [f"{name}: removed {count} ({size}) {what}; condemned: {counted(len(leftovers.condemned), 'attempt')}"]
    else:
        lines = [f"{name}: {count} ({size}) {what}"]
        lines += [f"next: hindcast clean {name} --remove"] if leftovers.files else []
    if leftovers.held:
        held = counted(len(leftovers.held), "attempt")
        lines.append(f"kept: the files of {held} of requests on which a process works")
    if leftovers.young:
        lines.append(f"kept: {counted(leftovers.young, 'younger file')}")
    return lines
