"""The zoo from the command line: `python -m tests.zoo list | run | freeze | table [NAME ...] | hostile FIRST COUNT`.

`run` compares replays with the frozen answers. `freeze` writes the answers of entries that have none. `table` prints
the table of docs/reference/logs.md. A NAME is that of an entry or of a table; without one, all entries are meant.
`hostile` plays the hostile logs of COUNT seeds from FIRST on.
"""

import os
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["TZ"] = "Asia/Kathmandu"  # as in the tests
time.tzset()

from jobs.spark.session import spark_session  # noqa: E402
from tests.zoo.answers import compared, difference, freeze, frozen  # noqa: E402
from tests.zoo.catalogue import entries_named  # noqa: E402
from tests.zoo.documented import table_lines  # noqa: E402
from tests.zoo.entries import Entry  # noqa: E402
from tests.zoo.hostile.playing import play_many  # noqa: E402
from tests.zoo.oracle import has_oracle, oracle  # noqa: E402
from tests.zoo.replaying import Refused, Zoo  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@cache
def _session() -> "SparkSession":
    options = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
    session = spark_session("hindcast zoo", "local[2]")
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.codegen.wholeStage", "false")  # a small query takes less time than its compilation
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def main(command: str, names: list[str]) -> int:
    """Run a command for the named entries, or for all; return the number of entries that differ."""
    if command == "table":
        print("\n".join(table_lines()))  # noqa: T201
        return 0
    if command == "hostile":
        return play_many(int(names[0]), int(names[1]))
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
    sys.exit(min(main(sys.argv[1], sys.argv[2:]), 1))
