"""The zoo: logs as other writers make them, with the frozen answers of their replays.

A NAME is that of an entry or of a table; without one, all entries are meant.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tests.support.spark_session import SparkSession

os.environ["TZ"] = "Asia/Kathmandu"  # as in the tests
time.tzset()

import click  # noqa: E402

from jobs.spark.session import spark_session  # noqa: E402
from tests.zoo.answers import compared, difference, freeze, frozen  # noqa: E402
from tests.zoo.catalogue import entries_named  # noqa: E402
from tests.zoo.documented import table_lines  # noqa: E402
from tests.zoo.entries import Entry  # noqa: E402
from tests.zoo.hostile.playing import play_many  # noqa: E402
from tests.zoo.oracle import has_oracle, oracle  # noqa: E402
from tests.zoo.replaying import Refused, Zoo  # noqa: E402


@cache
def _session() -> SparkSession:
    options = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
    session = spark_session("hindcast zoo", "local[2]")
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.codegen.wholeStage", "false")  # a small query takes less time than its compilation
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


@click.group(help=__doc__)
def main() -> None:
    """Is the group of the commands."""


@main.command("list")
@click.argument("names", nargs=-1)
def list_entries(names: tuple[str, ...]) -> None:
    """Print the names of entries."""
    for entry in entries_named(names):
        click.echo(f"{entry.name}{f' (refused: {entry.refused})' if entry.refused else ''}")


@main.command()
@click.argument("names", nargs=-1)
def run(names: tuple[str, ...]) -> None:
    """Compare replays with the frozen answers; exit with 1 if one differs."""
    _play(names, compared)


@main.command("freeze")
@click.argument("names", nargs=-1)
def freeze_answers(names: tuple[str, ...]) -> None:
    """Write the answers of entries that have none, and compare the others."""
    _play(names, _frozen_now)


@main.command()
def table() -> None:
    """Print the table of docs/reference/logs.md."""
    click.echo("\n".join(table_lines()))


@main.command()
@click.argument("first", type=int)
@click.argument("count", type=click.IntRange(min=1))
def hostile(first: int, count: int) -> None:
    """Play the hostile logs of COUNT seeds from FIRST on; exit with 1 if one is answered wrongly."""
    sys.exit(min(play_many(first, count), 1))


def _play(names: Sequence[str], play: Callable[[Zoo, Entry], str | None]) -> None:
    """Play the named entries, or all; exit with 1 if one differs."""
    wrong = 0
    with tempfile.TemporaryDirectory() as root:
        zoo = Zoo(Path(root), _session)
        for entry in entries_named(names):
            started = time.monotonic()
            problem = play(zoo, entry)
            wrong += problem is not None
            click.echo(f"{time.monotonic() - started:6.1f} s  {entry.name}: {problem or 'as expected'}")
    sys.exit(min(wrong, 1))


def _frozen_now(zoo: Zoo, entry: Entry) -> str | None:
    """Freeze the answer of an entry, if it has none and that of the sorted log is equal; return what is wrong."""
    if entry.refused is not None or frozen(entry) is not None:
        return compared(zoo, entry)
    try:
        answer = zoo.replay(entry)
        if has_oracle(entry) and (found := difference(answer, oracle(zoo, entry))) is not None:
            return f"it differs from the sorted log: {found}"
    except Refused as error:
        return f"refused: {error}"
    freeze(entry, answer)
    return None


if __name__ == "__main__":
    main()
