"""The command `hindcast export`."""

import click

from jobs.cli import options
from jobs.plain_text import counted
from jobs.planning.event_range import EventRange
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import RequestContext
from windowlib.errors import RequestError
from windowlib.records.tables import WINDOW_OUTPUTS

FORMATS = ("parquet", "csv", "delta")


@click.command(
    "export",
    short_help="Write what readers see to a file or a Delta table.",
    epilog="Examples: hindcast export flights --format parquet --to flights.parquet; hindcast export flights --format "
    "csv --to late.csv --table late_records --at 12",
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), required=True, help="A Parquet or CSV file, or a Delta table."
)
@click.option("--to", "target", required=True, metavar="PATH", help="The new file, or the directory of the new table.")
@options.at_option("Write what was published at this ledger version.  [default: the newest]")
@click.option(
    "--table",
    default=WINDOW_OUTPUTS,
    show_default=True,
    metavar="TABLE",
    help="The table, such as late_records. Of window_outputs, only the last pane of each window is written.",
)
@click.option(
    "--windows",
    "windows_text",
    default=None,
    metavar="A..B",
    help="Write only the windows that start in [A, B). A and B are dates or times in the time zone of the slices.",
)
@options.json_option
@options.pipeline_options
def export_command(
    *, form: str, target: str, at_version: int | None, table: str, windows_text: str | None,
    as_json: bool, work: RequestContext,
) -> int:  # fmt: skip
    """Write what readers see at one ledger version. The file or directory appears when it is complete.

    An existing file or table is not overwritten. The rows are compared with the ledger while they are read. The memory
    is that of about 250,000 rows, or of the rows of a slice.
    """
    work, _ = on_published_spec(work)
    name, view = work.pipeline.name, work.ledger.view(at_version)
    if not view.published:
        raise RequestError(f"pipeline {name} has published nothing at ledger version {view.version}")
    from jobs.reading.blocks import published_blocks, published_schema
    from jobs.reading.export import Format, export
    from jobs.reading.selection import Selection, instant_of_ms

    span = None if windows_text is None else EventRange.parse(work.pipeline, windows_text)
    wanted = Selection(
        table=table,
        from_=None if span is None else instant_of_ms(span.from_ms),
        to=None if span is None else instant_of_ms(span.to_ms),
    )
    wanted.checked(work.lake, name, view)
    written = export(
        published_blocks(work.lake, name, wanted, view=view),
        target,
        Format(form),
        schema=published_schema(work.lake, name, wanted, view=view),
        notes={"hindcast.pipeline": name, "hindcast.table": table, "hindcast.ledger_version": str(view.version)},
    )
    return options.answer(
        as_json,
        {"pipeline": name, "table": table, "ledger_version": view.version, **written.to_json()},
        f"{name}: {counted(written.rows, 'row')} of {table} (ledger version {view.version}) in {written.path}, "
        f"{counted(written.bytes, 'byte')}",
    )
