"""The zoo from the command line: `python -m tests.zoo list | run | freeze [NAME ...]`."""

import os
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["TZ"] = "Asia/Kathmandu"  # as in the tests
time.tzset()

from jobs.replay.sizes import Sizes  # noqa: E402
from jobs.spark.session import spark_session  # noqa: E402
from tests.zoo.answers import compared, difference, freeze, frozen  # noqa: E402
from tests.zoo.catalogue import entries_named  # noqa: E402
from tests.zoo.entries import Entry  # noqa: E402
from tests.zoo.replaying import Answer, Refused, Zoo  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAMES = Sizes(way="frames")


@cache
def _session() -> "SparkSession":
    os.environ.setdefault(
        "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    )
    session = spark_session("hindcast zoo", "local[2]")
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.codegen.wholeStage", "false")  # a small query takes less time than its compilation
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def main(command: str, names: list[str]) -> int:
    """Run a command for the named entries, or for all; return the number of entries that differ."""
    wrong = 0
    with tempfile.TemporaryDirectory() as root:
        zoo = Zoo(Path(root), _session)
        for entry in entries_named(names):
            if command == "list":
                print(f"{entry.name}{f' (refused: {entry.refused})' if entry.refused else ''}")  # noqa: T201
                continue
            started = time.monotonic()
            found = _frozen_now(zoo, entry) if command == "freeze" else compared(zoo, entry)
            wrong += found is not None
            print(f"{time.monotonic() - started:6.1f} s  {entry.name}: {found or 'as expected'}", flush=True)  # noqa: T201
    return wrong


def _frozen_now(zoo: Zoo, entry: Entry) -> str | None:
    """Freeze what DataFrames answer, after a comparison with the usual way and with the answer that is there."""
    if entry.refused is not None:
        return compared(zoo, entry)
    try:
        answer: Answer = zoo.replay(entry, sizes=FRAMES)
        usual = zoo.replay(entry) if "order: [" not in entry.log else answer
    except Refused as error:
        return f"refused: {error}"
    expected = frozen(entry)
    if (found := difference(usual, answer)) is not None:
        return f"the ways differ: {found}"
    if expected is not None:
        return difference(answer, expected)
    freeze(entry, answer)
    return None


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1], sys.argv[2:]), 1))
