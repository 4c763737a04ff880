"""The command load-flights."""

from datetime import date, datetime

import click

from jobs.cli import options
from jobs.cli.progress import count_bar
from jobs.plain_text import counted


@click.command(
    "load-flights",
    short_help="Create or extend the event log of the demo.",
    epilog="Example: hindcast load-flights --from 2013-02-01 --to 2013-02-15",
)
@click.option(
    "--from", "from_day", type=click.DateTime(["%Y-%m-%d"]), default="2013-01-01", show_default=True, help="First day."
)
@click.option(
    "--to",
    "to_day",
    type=click.DateTime(["%Y-%m-%d"]),
    default="2014-01-02",
    show_default=True,
    help="The day after the last day.",
)
@options.master_option
@options.place_options
def load_flights_command(*, from_day: datetime, to_day: datetime, master: str | None, places: options.Places) -> int:
    """Create or extend the demo's event log, event_logs/flights: the flights that left New York in 2013.

    The command loads the flights that were reported in [from, to), in UTC days, with one commit for each day. Days that
    the log has already are skipped. All data is in 2013-01-01 to 2014-01-02.
    """
    from jobs.demo.flights import load_flights

    first, last = from_day.date(), to_day.date()
    days = max((last - first).days, 0)
    with count_bar() as bar:
        task = bar.add_task("flights", total=days)

        def advance(day: date, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"flights {day}")

        summary = load_flights(places.lake.root, first, last, progress=advance, master=master)
    skipped = f"; {counted(len(summary.skipped), 'day')} loaded before" if summary.skipped else ""
    options.say(
        f"{counted(summary.records, 'flight')} of {counted(len(summary.loaded), 'day')} in "
        f"[{first}, {last}) loaded into {summary.table}{skipped}"
    )
    return options.OK
