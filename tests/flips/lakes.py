"""Lakes with every kind of stored file, and what is done with them after a flip. Without Spark.

The functions run in children of a `ForkServer`, each in a process of its own, as commands do. A lake is the directory
`lake` beside the pipeline files. Pipeline `late` reads a log, and pipeline `sums` reads what `late` has published.
"""

import hashlib
import json
import shutil
import signal
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake.lake import Lake
from jobs.ledger.history import REMEMBERED
from jobs.ledger.ledger import Ledger, LedgerLimits
from jobs.readers import published_table
from tests.support.log_files import Cover, cover_newest
from tests.support.replays import NOW_MS
from windowlib.errors import HindcastError
from windowlib.records import tables

HERE: Final = __name__
LONGEST_S: Final = 60
"""A call that takes longer is ended by a signal."""
LATE: Final = """
pipeline: late
log:
  table: log
  key: [k]
  event_time: {column: at, unit: ms}
  record_id: seq
  slice: {by: day}
  order: [seq]
  distinct: {by: [id], within: 3d}
watermark: {kind: bounded, out_of_orderness: 6h}
windows: {sliding: {size: 18h, slide: 20h}, allowed_lateness: 1h}
aggregates: {n: {count: {}}, total: {sum: v}, notes: {collect_list: note}}
quality: {suite: expectations/late.json}
publish: {current_tables: [window_outputs]}
"""
SUMS: Final = """
pipeline: sums
log:
  pipeline: late
  key: [k]
  event_time: {column: window_time}
watermark: {kind: ascending}
windows: {tumbling: {size: 1d}}
aggregates: {windows: {count: {}}, n: {sum: n}}
"""
SUITE: Final = {
    tables.WINDOW_OUTPUTS: {
        "name": "late.window_outputs",
        "expectations": [
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "n"}, "severity": "critical"}
        ],
    }
}
PIPELINES: Final = ("late", "sums")
FIRST: Final = date(2024, 1, 1)
READ_COMMITS: Final = 3
"""The runs of `make` have read the records of so many commits of the log. Further commits follow."""
DAY_MS: Final = 86_400_000
_TO: Final = ("--from", "2024-01-01", "--to")
READ: Final = (
    tables.WINDOW_OUTPUTS, tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS, tables.INVALID_RECORDS,
    tables.DUPLICATE_RECORDS,
)  # fmt: skip
OURS: Final = "error: "
"""Errors of Hindcast begin with it."""
CURRENT: Final = f"current_{tables.WINDOW_OUTPUTS}"
SCHEMA: Final = pa.schema(
    [("k", pa.string()), ("at", pa.int64()), ("v", pa.float64()), ("note", pa.string()), ("id", pa.int64()),
     ("seq", pa.int64()), ("day", pa.date32())]
)  # fmt: skip


class Outcome(NamedTuple):
    """What a reader or a command made of a lake: what it saw, or its error of one paragraph."""

    seen: Any = None
    error: str = ""


def make(home: str, cover: Cover) -> None:
    """Write the pipeline files and a lake: two published days, Delta checkpoints, a third published day.

    Then late records of the second day and the records of a fourth day arrive, which nobody has replayed yet.
    """
    place = Path(home)
    (place / "expectations").mkdir(parents=True)
    (place / "expectations/late.json").write_text(json.dumps(SUITE), encoding="utf-8")
    for name, text in (("late", LATE), ("sums", SUMS)):
        (place / f"{name}.yaml").write_text(text, encoding="utf-8")
    for day in range(3):
        _append(place, day, cover)
        if day == 1:
            _run(place, "late", 2)
            _make_checkpoints(place)
    _run(place, "late", 3)
    _run(place, "sums", 3)
    for day in (1, 3):
        _append(place, day, cover)


def forget_ledger(home: str) -> None:
    """Remove what was computed: the next run of `late` is the first reader of the log."""
    for name in PIPELINES:
        shutil.rmtree(Path(home, "lake", name))


def _append(place: Path, day: int, cover: Cover) -> None:
    """Append two files to a day of the log: records in time, late, between windows, invalid, and repeated ones."""
    log = place / "lake/log"
    first = len(list(log.glob("_delta_log/*.json"))) * 100
    start_ms = ((FIRST - date(1970, 1, 1)).days + day) * DAY_MS
    hours = (2.0, 20.5, 9.0, -30.0, 11.0, 15.0, 19.0, 23.0)
    rows = [
        {
            "k": None if number == 6 else "ab"[number % 2],
            "at": start_ms + int(hour * 3_600_000),
            "v": number / 7,
            "note": None if number % 3 else f"note {number}",
            "id": first + number % 7,
            "seq": first + number,
            "day": FIRST + timedelta(days=day),
        }
        for number, hour in enumerate(hours)
    ]
    write_deltalake(str(log), pa.Table.from_pylist(rows, SCHEMA), mode="append", partition_by=["day"])
    cover_newest(log, cover)


def _run(place: Path, pipeline: str, days: int, file: str | None = None) -> int:
    to = str(FIRST + timedelta(days=days))
    path = str(place / (file or f"{pipeline}.yaml"))
    return run_cli(hindcast, ["run", path, *_TO, to, "--lake", str(place / "lake")])


def _make_checkpoints(place: Path) -> None:
    """Write a checkpoint of Delta for each table, as deltalake does after 100 commits."""
    for commit in (place / "lake").glob("**/_delta_log/00000000000000000000.json"):
        DeltaTable(str(commit.parents[1])).create_checkpoint()


def make_snapshot(home: str) -> None:
    """Write the snapshot that a reader writes of a ledger with more events. It names the inodes of this copy."""
    uri = Lake(root=str(Path(home, "lake"))).ledger("late")
    REMEMBERED.forget_all()
    Ledger(uri, now_ms=lambda: NOW_MS, limits=LedgerLimits(snapshot_every=1)).view()


# --- what is done after a flip ----------------------------------------------------------------------------------------


def read(home: str, out: str) -> int:
    """Write into a file what readers get from each table, with Hindcast and from the current table. Then run `verify`.

    Return the status of `verify`.
    """
    signal.alarm(LONGEST_S)
    lake = str(Path(home, "lake"))
    seen = {f"{name}": _outcome(lambda name=name: _digest(published_table(lake, "late", table=name))) for name in READ}
    seen["sums"] = _outcome(lambda: _digest(published_table(lake, "sums")))
    seen["current"] = _outcome(lambda: _digest(_current(home)))
    Path(out).write_text(json.dumps(seen), encoding="utf-8")
    return max(run_cli(hindcast, ["verify", str(Path(home, f"{name}.yaml")), "--lake", lake]) for name in PIPELINES)


def run(home: str, out: str) -> int:
    """Replay the second to the fourth day: late records of the second have arrived, and the fourth is new.

    Write into a file what the run has made: the published runs, the digests of their rows, and the current table.
    """
    signal.alarm(LONGEST_S)
    return _write_runs(home, out, _run(Path(home), "late", 4))


def run_sums(home: str, out: str) -> int:
    """Replay all days of the other pipeline with another spec, which reads its log anew; write as `run` does."""
    signal.alarm(LONGEST_S)
    Path(home, "sums2.yaml").write_text(SUMS.replace("size: 1d", "size: 2d"), encoding="utf-8")
    return _write_runs(home, out, _run(Path(home), "sums", 3, "sums2.yaml"))


def _write_runs(home: str, out: str, status: int) -> int:
    if status == 0:
        seen = {name: _outcome(lambda name=name: _runs(home, name)) for name in PIPELINES}
        seen["current"] = _outcome(lambda: _digest(_current(home)))
        Path(out).write_text(json.dumps(seen), encoding="utf-8")
    return status


def _runs(home: str, pipeline: str) -> Mapping[str, Any]:
    view = Ledger(Lake(root=str(Path(home, "lake"))).ledger(pipeline), now_ms=lambda: NOW_MS).view()
    runs = {slice_id: view.runs[run_id].result for slice_id, run_id in view.published.items()}
    return {
        slice_id: [result.run_id, result.state_after, repr(result.digests), repr(result.counts)]
        for slice_id, result in sorted(runs.items())
    }


def _current(home: str) -> pa.Table:
    return DeltaTable(str(Path(home, "lake/late", CURRENT))).to_pyarrow_table()


def _outcome(reader: Any) -> Outcome:  # noqa: ANN401
    try:
        return Outcome(seen=reader())
    except HindcastError as error:
        return Outcome(error=f"{OURS}{error}")
    except Exception as error:  # noqa: BLE001 - of the current table's readers, which are not ours
        return Outcome(error=f"{type(error).__module__}.{type(error).__name__}: {error}")


def _digest(table: pa.Table) -> list[Any]:
    rows = [{name: value for name, value in row.items() if name != "attempt_id"} for row in table.to_pylist()]
    return [len(rows), hashlib.sha256(repr(sorted(map(repr, rows))).encode()).hexdigest()]
