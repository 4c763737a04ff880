"""The command `hindcast changes`."""

from collections.abc import Mapping
from typing import Any

import click

from jobs.cli import options
from jobs.cli.export import FORMATS
from jobs.comparing.views import version_sides
from jobs.plain_text import counted, escaped_json
from jobs.planning.request_context import RequestContext
from windowlib.errors import RequestError

SHOWN = 20


@click.command(
    "changes",
    short_help="Print the windows that publications have changed since a ledger version.",
    epilog="Examples: hindcast changes flights --since 12 --json; hindcast changes flights --since 12 --until 17 "
    "--format parquet --to changes.parquet",
)
@click.option(
    "--since",
    type=click.IntRange(min=0),
    required=True,
    metavar="VERSION",
    help="The ledger version whose windows you have. 0: none.",
)
@click.option(
    "--until",
    type=click.IntRange(min=0),
    default=None,
    metavar="VERSION",
    help="The ledger version whose windows you want.  [default: the newest]",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default=None, help="Write the changes in this format.")
@click.option("--to", "target", default=None, metavar="PATH", help="Where to write them: a new file or directory.")
@options.json_option
@options.pipeline_options
def changes_command(
    *, since: int, until: int | None, form: str | None, target: str | None, as_json: bool,
    work: RequestContext,
) -> int:  # fmt: skip
    """Print what leads from the windows of one ledger version to those of another: insert, update and delete.

    Each change has the key, the bounds, and the values before and after. The changes are complete, also over rollbacks:
    applied to the windows at --since, they give those at --until. Use the version that is printed as the next --since.
    """
    if (form is None) != (target is None):
        raise click.UsageError("--format and --to go together")
    pipeline = work.pipeline
    view = work.ledger.view()
    sides = version_sides(view, since, until)
    until = view.version if until is None else until
    if until < since:
        raise RequestError(f"--until {until} is before --since {since}; changes go forward in the ledger")
    from jobs.comparing.changes import OPERATION, window_changes

    changes = window_changes(work.lake, pipeline.name, sides)
    facts: dict[str, Any] = {"pipeline": pipeline.name, "since": since, "until": until}
    counts = {name: changes.rows[OPERATION].to_pylist().count(name) for name in ("insert", "update", "delete")}
    if form is not None and target is not None:
        from jobs.reading.export import Format, export

        notes = {f"hindcast.{name}": str(value) for name, value in facts.items()}
        written = export([changes.rows], target, Format(form), schema=changes.rows.schema, notes=notes)
        facts |= written.to_json()
    elif as_json:
        facts["changes"] = changes.to_json()
    if as_json:
        options.print_json(facts | {"counts": counts})
        return options.OK
    options.say(
        f"{pipeline.name}: from ledger version {since} to {until}: {counted(counts['insert'], 'insert')}, "
        f"{counted(counts['update'], 'update')}, {counted(counts['delete'], 'delete')}"
    )
    if target is not None:
        options.say(f"written to {target}, {counted(facts['bytes'], 'byte')}")
        return options.OK
    options.say(*map(_line, changes.to_json(most=SHOWN)))
    if changes.rows.num_rows > SHOWN:
        options.say(f"and {changes.rows.num_rows - SHOWN:,} more; --json prints all")
    return options.OK


def _line(change: Mapping[str, Any]) -> str:
    """Return a change as one line; of an update, the columns that differ."""
    window = ", ".join(f"{name} {value}" for name, value in change["window"].items())
    before, after = change["before"], change["after"]
    if before is None or after is None:
        return f"  {change['operation']} {window}: {escaped_json(after or before)}"
    differing = [name for name in before if before[name] != after[name]]
    return f"  update {window}: " + ", ".join(f"{name} {before[name]} → {after[name]}" for name in differing)
