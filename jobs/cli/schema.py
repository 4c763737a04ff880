"""The command `hindcast schema`."""

import json
from pathlib import Path

import click

from jobs.cli import options
from jobs.new_file import write_new
from jobs.pipeline.json_schema import file_schema


@click.command(
    "schema",
    short_help="Print the JSON Schema of a pipeline file.",
    epilog="Example: hindcast schema --output pipeline.schema.json",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Write it into a file, in place of one that exists.  [default: print it]",
)
def schema_command(*, output: Path | None) -> int:
    """Print the JSON Schema (draft 2020-12) of a pipeline file, for editors and programs.

    It has the keys, their values and limits, and descriptions. Rules about several keys are not in it; `hindcast plan`
    tells them.
    """
    schema = file_schema()
    if output is None:
        options.print_json(schema)
        return options.OK
    write_new(output, json.dumps(schema, indent=2, sort_keys=True) + "\n", replaces=True)
    options.say(f"wrote {output}")
    return options.OK
