"""Lakes in which one command is killed or gets errors at each of its writes, and what must be true afterwards.

The functions run in children of a `ForkServer`. A lake is the directory `lake` beside the pipeline file `late.yaml`.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs import wall_clock
from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake.lake import Lake
from jobs.lake.leftover_files import NO_TABLES, PROBE, SCRATCH, LakeFiles
from jobs.ledger.ledger import Ledger
from jobs.pipeline.files import load_file
from jobs.planning.request_context import open_request_context
from jobs.publishing.cleaning import clean_lake
from jobs.readers import published_table
from jobs.reading.verify import verify
from jobs.replay.pinned import Pinned
from windowlib.errors import LedgerError

DAY_MS: Final = 86_400_000
HERE: Final = __name__
PIPELINE: Final = """
pipeline: late
log:
  table: log
  key: [k]
  event_time: {column: at, unit: ms}
  record_id: seq
  slice: {by: day}
  order: [seq]
watermark: {kind: bounded, out_of_orderness: 6h}
windows: {tumbling: {size: 30h}}
aggregates: {n: {count: {}}, total: {sum: v}}
retention: {superseded: 1d, unpublished: 1d}
publish: {current_tables: [window_outputs]}
"""
SCHEMA: Final = pa.schema([(name, pa.int64()) for name in ("k", "at", "v", "seq")] + [("day", pa.date32())])
NEWEST: Final = "NEWEST"
"""Stands for the number of the publication that was the newest one when the lake was prepared."""
TABLES: Final = ("window_outputs", "late_records")
FIRST: Final = date(2024, 1, 1)
FIRST_MS: Final = (FIRST - date(1970, 1, 1)).days * DAY_MS


class Topology(NamedTuple):
    """A command over a prepared lake.

    Attributes:
        name: the name.
        before: the steps that prepare the lake: arguments of `hindcast`, or the name of a function of this module.
        command: the arguments of the command.
        later_days: how many days later than the preparation the command runs.
        done_already: what the command answers if it has been done before; empty if it succeeds again.
        function: the function of this module that runs the command. It runs again with `command`.
        killed_at: the preparation ends with the command itself, killed at this share of its calls. 0: it does not.
    """

    name: str
    before: Sequence[Sequence[str]]
    command: Sequence[str]
    later_days: int = 0
    done_already: str = ""
    killed_at: float = 0
    function: str = "command"


_RANGE: Final = ("--from", "2024-01-01", "--to", "2024-01-03")
_RUN: Final = ("run", *_RANGE)
TOPOLOGIES: Final = (
    Topology("fresh run", [("make_log",)], _RUN),
    Topology("resume", [("make_log",)], (*_RUN, "--chunk", "1"), killed_at=0.6),
    Topology("backfill", [("make_log",), _RUN, ("append_late",)], _RUN),
    Topology(
        "publish",
        [("make_log",), (*_RUN, "--no-publish")],
        ("publish",),
        done_already="The newest publication that readers see is",
    ),
    Topology(
        "rollback",
        [("make_log",), _RUN, ("append_late",), _RUN, ("note_newest",)],
        ("rollback", "--publication", NEWEST, "--reason", "a test"),
        done_already="was rolled back already, by a test",
    ),
    Topology(
        "clean",
        [("make_log",), _RUN, ("append_late",), _RUN, ("leave_files",)],
        ("clean", "--older-than", "12h", "--remove"),
        later_days=30,
    ),
)

IN_SPARK: Final = TOPOLOGIES[0]._replace(name="fresh run in Spark", function="command_in_spark")
"""The tasks of this command run in Python workers of a JVM. Its first lake is that of the first topology."""


def make_log(home: str) -> None:
    """Write the pipeline file and a log of two days."""
    Path(home).mkdir(parents=True, exist_ok=True)
    Path(home, "late.yaml").write_text(PIPELINE, encoding="utf-8")
    for day in range(2):
        _append(home, day, [(key, hour * 3_600_000) for key in range(2) for hour in (-20, 3, 20)])


def append_late(home: str) -> None:
    """Append records to the first day, so that its published slice and the next one are stale."""
    _append(home, 0, [(0, 4 * 3_600_000), (2, 5 * 3_600_000)])


def leave_files(home: str) -> None:
    """Leave files as killed attempts do: of a table, of the exchange between tasks, and of a first commit."""
    attempt = "0f" * 16
    for path in (
        f"{SCRATCH}/{attempt}/part-1.arrow",
        f"window_outputs/slice_id=2024-01-01/attempt_id={attempt}/part-1.parquet",
        f"{PROBE}/00ff/_delta_log/00000000000000000000.json",
    ):
        file = Path(home, "lake", "late", path)
        file.parent.mkdir(parents=True)
        file.write_bytes(b"left")


def note_newest(home: str) -> None:
    """Note the number of the newest publication, for commands that name it."""
    Path(home, NEWEST).write_text(str(_ledger(home).view().publications[-1].seq), encoding="utf-8")


def _append(home: str, day: int, records: Sequence[tuple[int, int]]) -> None:
    at = FIRST_MS + day * DAY_MS
    number = len(list(Path(home, "lake", "log").rglob("*.parquet"))) * 100
    rows = [
        {"k": key, "at": at + offset, "v": key + 1, "seq": number + place, "day": FIRST.replace(day=FIRST.day + day)}
        for place, (key, offset) in enumerate(records)
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    write_deltalake(str(Path(home, "lake", "log")), table, mode="append", partition_by=["day"])


def command(home: str, arguments: Sequence[str], later_days: int = 0) -> int:
    """Run `hindcast` with arguments in this process, as if it was started so many days later."""
    _move_clock(later_days)
    file = str(Path(home, "late.yaml"))
    words = [Path(home, NEWEST).read_text(encoding="utf-8") if word == NEWEST else word for word in arguments[1:]]
    return run_cli(hindcast, [arguments[0], file, *words, "--lake", str(Path(home, "lake"))])


def command_in_spark(home: str, arguments: Sequence[str], later_days: int = 0) -> int:
    """Run a command as `command` does; its tasks run in Spark, however small they are."""
    Pinned.threads = lambda _pinned, *, cores: 0  # type: ignore[assignment, method-assign]  # noqa: ARG005
    return command(home, [*arguments, "--master", "local[1]"], later_days)


def look(home: str) -> int:
    """Print what readers see."""
    print(json.dumps(_seen(home)))  # noqa: T201
    return 0


def run_again(home: str, arguments: Sequence[str], later_days: int, out: str) -> int:
    """Look, run the command again, and write what is there then into `out`. Return the command's status."""
    before = _seen(home)
    status = command(home, arguments, later_days)
    Path(out).write_text(json.dumps({"before": before, "after": _seen(home), **_kept(home)}), encoding="utf-8")
    return status


def _seen(home: str) -> dict[str, Any]:
    """Return what readers see: the published runs, and digests of the rows of each table without their attempts.

    `current` is the digest of the current table, which is moved after the ledger; None if it has no rows yet.
    """
    seen: dict[str, Any] = {"runs": dict(sorted(_ledger(home).view().published.items()))}
    for name in TABLES:
        with suppress(LedgerError):
            seen[name] = _digest(published_table(str(Path(home, "lake")), "late", table=name))
    plain = Path(home, "lake", "late", "current_window_outputs")
    is_there = DeltaTable.is_deltatable(str(plain))
    rows = DeltaTable(plain).to_pyarrow_table() if is_there else pa.table({})
    return {"ledger": seen, "current": _digest(rows) if len(rows) else None}


def _digest(table: pa.Table) -> list[Any]:
    rows = [{name: value for name, value in row.items() if name != "attempt_id"} for row in table.to_pylist()]
    return [len(rows), hashlib.sha256(repr(sorted(map(repr, rows))).encode()).hexdigest()]


def _kept(home: str) -> dict[str, Any]:
    """Return the findings of `verify`, the files that a clean-up a month later leaves, and the ledger's projection."""
    lake = Lake(root=str(Path(home, "lake")))
    findings = [str(finding) for finding in verify(lake, "late", _ledger(home).view()).findings]
    _move_clock(60)
    work = open_request_context(load_file(Path(home, "late.yaml")), lake, now_ms=wall_clock.now_ms)
    clean_lake(work, older_than_ms=DAY_MS, who="a test", dry_run=False)
    files = LakeFiles(lake=lake, pipeline="late")
    listed = files.listed()
    named = files.named(sorted({file.table for file in listed} - NO_TABLES))
    strange = sorted(
        str(path.relative_to(lake.root))
        for path in Path(lake.root).rglob("*")
        if path.is_file() and not path.name.endswith((".json", ".parquet", ".arrow"))
    )
    return {
        "findings": findings,
        "left": [file.path for file in listed if file.path not in named],
        "strange": strange,
        "cleaned": _seen(home),
    }


def _ledger(home: str) -> Ledger:
    return Ledger(Lake(root=str(Path(home, "lake"))).ledger("late"), now_ms=wall_clock.now_ms)


def _move_clock(days: int) -> None:
    """Let the clock of this process go so many days ahead."""
    real = vars(wall_clock)["time"]
    ahead = SimpleNamespace(time_ns=lambda: real.time_ns() + days * 86_400 * 10**9)
    vars(wall_clock)["time"] = ahead
