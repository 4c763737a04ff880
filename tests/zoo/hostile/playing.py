"""Plays a hostile log through the commands, and judges what came out."""

import io
import json
import random
import re
import shutil
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn
from unittest import mock

import pyarrow as pa

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import StagedRun
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.files import load_file
from jobs.pipeline.slices import parse_bound
from jobs.planning.request_context import Asked
from jobs.readers import published_table
from jobs.replay.computed import compute
from jobs.replay.orders import ReplayOrder
from jobs.replay.pinned import pin
from jobs.replay.replayer import replay_chunk
from jobs.replay.sizes import Sizes
from jobs.runs import Counts, RunResult, by_fate
from jobs.spark.lazy_session import LazySession
from tests.support.delta_logs import commits_of
from tests.support.replays import NOW_MS, context_in, order_of, run_range
from tests.support.spark_session import SparkSession
from tests.zoo.entries import BOUNDS, DAY_MS, DAYS, FIRST_DAY
from tests.zoo.hostile.expected import DoesNotFit, Expected, expected, plain, records_in_order
from tests.zoo.hostile.logs import BY_DELTA_RS, HostileLog, Row, draw
from tests.zoo.hostile.tables import arrow_table, write_table
from tests.zoo.hostile.values import Broken
from windowlib.errors import HindcastError
from windowlib.execution import bucket

USUAL: Final = Sizes(local_records=10**9)


def random_sizes(chance: random.Random) -> Sizes:
    """Return sizes that a few records pass, or do not pass, each by chance. All tasks run in this process."""
    among = chance.choice
    return Sizes(
        local_records=10**9, threads=among((1, 2, 8)), ordered_bytes=among((1, 2_000, 10**7)),
        run_records=among((1, 3, 10**6)), run_steps=among((0, 2, 16)), sorted_rows=among((1, 3, 10**6)),
        records_per_bucket=among((1, 5, 10**6)), records_per_columnar_bucket=among((1, 5, 10**6)),
        state_bytes_per_bucket=among((1, 5_000, 10**9)), records_per_task=among((1, 7, 10**6)),
        least_records=among((1, 10**6)), combined_records=among((0, 10**9)),
        combined_cells=among((0.125, 1, 10**9)), rows_per_read=among((1, 3, 10**6)),
        rows_per_file=among((1, 4, 10**6)), rows_from=among((1, 2, 10**6)), rows_per_encoding=among((1, 5, 10**6)),
        buckets=among((1, 3, 64)), constant_rows=among((1, 2, 10**6)), content_rows=among((0, 10**6)),
        audited_rows=among((0, 10**6)), full_state_rows=among((0, 10**6)), checkpoint_parts=among((1, 2, 3, 16)),
        staying_rows=among((0, 10**6)), staying_share=among((0, 2)),
    )  # fmt: skip


class NeedsSpark(BaseException):
    """Only Spark reads the files of the log."""


@dataclass(slots=True)
class Outcome:
    """What became of a log: `accounted`, `refused` with a reason, `unwritable`, or `wrong`."""

    kind: str
    reason: str = ""
    details: list[str] = field(default_factory=list)


def play(log: HostileLog, root: Path) -> Outcome:
    """Write a log, run `plan` and `run` over it, replay it in a second way, and judge the results."""
    root.mkdir(parents=True, exist_ok=True)
    write_table(log, root / "log")
    file = root / "zoo.yaml"
    file.write_text(log.yaml, "utf-8")
    first, second = _lake(root, "first"), _lake(root, "second")
    try:
        other = _otherwise(log, file, second)
    except NeedsSpark:
        return Outcome("in Spark")
    status, text = _command(first, "run", file)
    planned = _command(second, "plan", file) if status or log.seed % PART == 1 else (0, "")
    wrong = [*_unclear(planned), *_unclear((status, text))]
    if status:
        return _refused(log, text, planned, other, first, wrong)
    if planned[0]:
        wrong.append(f"plan refuses, run does not: {planned[1]}")
    wrong += _differences(log, first, other)
    return Outcome("wrong" if wrong else "accounted", details=wrong)


def _differences(log: HostileLog, lake: Path, other: Mapping[str, "Contents"] | str) -> Iterator[str]:
    """Yield how the published result differs from that of the other way, and from the expected one."""
    runs = _runs(lake)
    contents = {slice_id: Contents.of(run.result) for slice_id, run in runs.items()}
    if isinstance(other, str):
        yield f"the other way is refused: {other}"
    elif (difference := _difference(contents, other)) is not None:
        yield f"the other way differs: {difference}"
    try:
        yield from _misses(log, expected(log), lake, runs)
    except DoesNotFit:
        yield "a sum does not fit, and the run was not refused"
    except HindcastError as error:
        yield f"a reader is refused: {error}"


def play_in_spark(log: HostileLog, root: Path, spark: SparkSession) -> Outcome:
    """Write a log, replay it with all tasks in Spark, and compare the results with those of this process."""
    root.mkdir(parents=True)
    write_table(log, root / "log")
    file = root / "zoo.yaml"
    file.write_text(log.yaml, "utf-8")
    lake = _lake(root, "spark")
    sizes = replace(random_sizes(random.Random(log.seed)), local_records=0)
    try:
        run_range(spark, lake, load_file(file), BOUNDS, sizes=sizes)
    except HindcastError as error:
        return Outcome("refused", shortened(str(error), log))
    try:
        other: dict[str, Contents] | str = _otherwise(log, file, _lake(root, "here"))
    except NeedsSpark:
        other = {slice_id: Contents.of(run.result) for slice_id, run in _runs(lake).items()}
    wrong = [*_differences(log, lake, other)]
    return Outcome("wrong" if wrong else "accounted", details=wrong)


def _lake(root: Path, name: str) -> Path:
    lake = root / name
    lake.mkdir()
    (lake / "log").symlink_to(root / "log")
    return lake


def _command(lake: Path, name: str, file: Path) -> tuple[int, str]:
    """Run a command over all days. Return its status and what it printed on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run_cli(hindcast, [name, str(file), "--from", BOUNDS[0], "--to", BOUNDS[1], "--lake", str(lake)])
    lines = err.getvalue().strip().splitlines()
    return status, "\n".join(lines[next((n for n, line in enumerate(lines) if line.startswith("error")), 0) :])


def _unclear(result: tuple[int, str]) -> Iterator[str]:
    """Yield what is wrong with a message of an error."""
    status, text = result
    if status not in {0, 1, 2}:
        yield f"status {status}: {text}"
    if status and ("bug" in text.lower() or "Traceback" in text or "panicked" in text or not text):
        yield f"no clear message: {text}"
    if status and len([line for line in text.splitlines() if line.startswith("error")]) != 1:
        yield f"not one paragraph: {text}"


def _no_session(*_: object) -> NoReturn:
    raise NeedsSpark


ONCE: Final = (*BY_DELTA_RS, "v2 checkpoint", "deletion vector", "added column", "Parquet")
"""Forms of logs whose earlier versions have no prefix of the commits, or lack a column of the pipeline."""
PART: Final = 2
"""One log of so many is replayed a second time with all steps, and another one is planned."""


@contextmanager
def _operator() -> Iterator[None]:
    """Let the operator run all windows, record by record."""
    with mock.patch.object(bucket, "why_not", return_value="a test"):
        yield


def _replayed(chance: random.Random, order: ReplayOrder) -> list[RunResult]:
    """Replay a chunk with random sizes and cores, by the operator or the columnar executor."""
    with _otherwise_executed(chance) as (session, sizes):
        return replay_chunk(session, order, sizes=sizes)


@contextmanager
def _otherwise_executed(chance: random.Random) -> Iterator[tuple[LazySession, Sizes]]:
    session = LazySession(_no_session, is_local=True, cores=chance.choice((1, 2, 8)))
    sizes = random_sizes(chance) if chance.random() < 0.8 else USUAL
    if chance.random() < 0.5:
        yield session, sizes
    else:  # no operator takes records that are combined
        with _operator():
            yield session, replace(sizes, combined_records=10**9)


class Contents(NamedTuple):
    """All that must be equal between two ways to run a slice."""

    run_id: str
    input_fingerprint: str
    state_after: str
    counts: Counts
    digests: dict[str, str]

    @classmethod
    def of(cls, run: RunResult) -> "Contents":
        """Return the contents of a run."""
        return cls(run.run_id, run.input_fingerprint, run.state_after, run.counts, {**run.digests})


def _otherwise(log: HostileLog, file: Path, lake: Path) -> dict[str, Contents] | str:
    """Replay in a second way, which the seed chooses. Return slice -> contents, or the error.

    A part of the logs is replayed with all steps, in one or two requests, of which each chunk has other sizes and
    another executor. The first request meets the log as it was then. Of the others, the rows are only computed.
    """
    chance = random.Random(f"ways of {log.seed}")
    try:
        pipeline = load_file(file)
        if log.seed % PART:
            with _otherwise_executed(chance) as (session, sizes):
                return _computed(session, order_of(lake, pipeline, BOUNDS), sizes)
        bounds = [parse_bound(pipeline, text) for text in BOUNDS]
        cut_ms = bounds[0] + chance.randrange(1, DAYS) * DAY_MS
        work = context_in(lake, pipeline)
        for from_ms, to_ms in pairwise([bounds[0], *chance.choice(([], [cut_ms])), bounds[1]]):
            asked = Asked(from_ms=from_ms, to_ms=to_ms, who="a test", reason="")
            staging = Staging(chunk=chance.choice((None, 1, 1, 2)))
            with _as_it_was(log, file.parent / "log", before=FIRST_DAY + timedelta(days=(to_ms - bounds[0]) // DAY_MS)):
                run_request(work, asked, partial(_replayed, chance), staging=staging)
        return {slice_id: Contents.of(run.result) for slice_id, run in _runs(lake).items()}
    except HindcastError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - the judge tells about any error
        return f"Traceback: {''.join(traceback.format_exception(error)[-5:])}"


@contextmanager
def _as_it_was(log: HostileLog, table: Path, *, before: date) -> Iterator[None]:
    """Take the commits out of a log that are after the last record of the days before a day, if a prefix has these."""
    if log.order or log.form in ONCE:
        yield
        return
    day = log.of("day").name
    needed = [number for number, rows in enumerate(log.commits, start=1) if any(row[day] < before for row in rows)]
    commits = commits_of(table)[max(needed, default=1) + (log.writer != "deltalake") :]
    with TemporaryDirectory() as directory:
        for commit in commits:
            shutil.move(commit, directory)
        try:
            yield
        finally:
            for commit in commits:
                shutil.move(Path(directory) / commit.name, commit)


def _computed(session: LazySession, order: ReplayOrder, sizes: Sizes) -> dict[str, Contents]:
    """Compute a chunk, and write nothing."""
    computed = compute(session, pin(order, sizes=sizes))
    computed.run.rows.close()
    tallies, names = computed.tallies, computed.pinned.tables.digested()
    return {
        run.slice.slice_id: Contents(
            run.run_id,
            run.input_fingerprint,
            run.state_after,
            tallies.counts(number),
            {name: tallies.state(number, name).digest() for name in names},
        )
        for number, run in enumerate(computed.runs)
    }


def _runs(lake: Path) -> dict[str, StagedRun]:
    view = Ledger(Lake(root=str(lake)).ledger("zoo"), now_ms=lambda: NOW_MS).view()
    return {slice_id: view.runs[run_id] for slice_id, run_id in view.published.items()}


def _difference(runs: Mapping[str, Contents], others: Mapping[str, Contents]) -> str | None:
    """Return the first difference of the contents of runs."""
    if runs.keys() != others.keys():
        return f"slices {sorted(runs)} and {sorted(others)}"
    for slice_id, run in runs.items():
        for name, own, other in zip(Contents._fields, run, others[slice_id], strict=True):
            if own != other:
                return f"{slice_id}: {name} {own} and {other}"
    return None


def _refused(
    log: HostileLog,
    text: str,
    planned: tuple[int, str],
    other: Mapping[str, Contents] | str,
    lake: Path,
    wrong: list[str],
) -> Outcome:
    """Judge a refusal: it names what is wrong, the other way is refused as well, and nothing was written."""
    if isinstance(other, str) and other.startswith("Traceback"):
        wrong.append(other)
    if not isinstance(other, str):
        wrong.append(f"the other way is not refused: {text}")
    if planned[0] and planned[1] != text and shortened(planned[1]) != shortened(text):
        wrong.append(f"plan and run use other words: {planned[1]} / {text}")
    rows = [path for path in lake.rglob("*.parquet") if "/log/" not in str(path) and "/ledger/" not in str(path)]
    suffix = "" if planned[0] else " (by the run only)"
    if rows:
        suffix += f" (after {sorted({path.relative_to(lake).parts[1] for path in rows})})"
    return Outcome("wrong" if wrong else "refused", shortened(text, log) + suffix, wrong)


def shortened(text: str, log: HostileLog | None = None) -> str:
    """Return a message without what differs from log to log: names, values, numbers, paths."""
    text = re.sub(r"/tmp/\S+", "PATH", text)  # noqa: S108 - a part of a message
    for column in sorted(log.columns, key=lambda one: -len(one.name)) if log is not None else ():
        if len(column.name) > 2:
            text = text.replace(column.name, "COLUMN")
    text = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "'X'", text)
    return re.sub(r"-?\d[\d,.]*", "N", text)[:220]


def _misses(log: HostileLog, answer: Expected, lake: Path, runs: Mapping[str, StagedRun]) -> Iterator[str]:
    """Yield what differs between the published result and the expected one."""
    for slice_id, run in runs.items():
        counts = {name: count for name, count in by_fate(run.result.counts).items() if count}
        own = next((fates for day, fates in answer.fates.items() if str(day) == slice_id), Counter())
        if counts != dict(own):
            yield f"{slice_id}: fates {counts}, expected {dict(own)}"
    if sum(sum(fates.values()) for fates in answer.fates.values()) != sum(
        run.result.counts.read for run in runs.values()
    ):
        yield "not every record was read"
    if not runs:
        return
    records = {row[log.of("seq").name]: row for row in records_in_order(log)}
    names = [*log.keys, "window_start", *(one.name for one in log.aggregates)]
    rows = published_table(str(lake), "zoo")
    published: dict[object, object] = {}
    starts = rows["window_start"].cast(pa.int64()).to_pylist()
    columns = [rows[name].to_pylist() for name in names if name != "window_start"]
    for start, *values in zip(starts, *columns, strict=True):
        key = tuple(map(plain, values[: len(log.keys)]))
        published[repr((key, start // 1000))] = [plain(value) for value in values[len(log.keys) :]]
    wanted: dict[object, object] = {repr(window): [*values] for window, values in answer.windows.items()}
    if published != wanted:
        odd = [window for window in (*published, *wanted) if published.get(window) != wanted.get(window)]
        yield f"{len(odd)} windows: {odd[0]}: {published.get(odd[0])!r:.600}, expected {wanted.get(odd[0])!r:.600}"
    yield from _side_misses(log, answer, lake, records)


def _side_misses(
    log: HostileLog, answer: Expected, lake: Path, records: Mapping[int, Row]
) -> Iterator[str]:  # fmt: skip
    """Compare the records of the side tables with those of the log, value by value."""
    seq = log.of("seq").name
    of_distinct = [] if log.distinct is None else [("duplicate_records", answer.duplicates)]
    for name, numbers in (
        *of_distinct,
        ("late_records", answer.late),
        ("unassigned_records", answer.unassigned),
        ("invalid_records", {*answer.invalid}),
    ):
        rows = published_table(str(lake), "zoo", table=name)
        stored = {one[_field(one, seq)]: one for one in rows["record"].to_pylist()}
        if stored.keys() != numbers or rows.num_rows != len(numbers):
            yield f"{name}: records {sorted(stored)}, expected {sorted(numbers)}"
            continue
        own = _stored_records([records[number] for number in sorted(numbers)], log)
        for number, row in zip(sorted(numbers), own, strict=True):
            other = stored[number]
            if (odd := _odd_column(row, other)) is not None:
                yield f"{name}: record {number}: {odd}"
        if name == "invalid_records":
            for record, reason in zip(rows["record"].to_pylist(), rows["reason"].to_pylist(), strict=True):
                number = record[_field(record, seq)]
                if answer.invalid[number] != reason:
                    yield f"record {number} is {reason}, expected {answer.invalid[number]}"


def _stored_records(rows: Sequence[Row], log: HostileLog) -> list[Row]:
    """Return records as Arrow stores them: floats of 32 bits are rounded, texts that are not UTF-8 are null."""
    without = [{name: None if isinstance(one, Broken) else one for name, one in row.items()} for row in rows]
    stored: list[Row] = arrow_table(without, log.schema).to_pylist()
    return stored


def _field(record: Row, name: str) -> str:
    return name if name in record else re.sub(r"[ ,;{}()\n\t=]", "_", name)


def _odd_column(row: Row, stored: Row) -> str | None:
    """Return the first column whose stored value differs, bit by bit but for NaNs."""
    for name, value in row.items():
        other = stored.get(_field(stored, name), "no such field")
        if repr(plain(value)) != repr(plain(other)) or repr(value) != repr(other):
            return f"column {name!r:.50}: {other!r:.200}, expected {value!r:.200}"
    return None


def play_many(first: int, count: int) -> int:
    """Play the logs of so many seeds, and print a line for each. Return the number of those with a wrong outcome."""
    outcomes: Counter[tuple[str, str]] = Counter()
    for seed in range(first, first + count):
        with TemporaryDirectory() as root:
            outcome = play(draw(seed), Path(root))
        outcomes[outcome.kind, outcome.reason] += 1
        print(json.dumps([seed, outcome.kind, outcome.reason, outcome.details]), flush=True)  # noqa: T201
    for (kind, reason), number in sorted(outcomes.items()):
        print(f"{number:6} {kind} {reason}")  # noqa: T201
    return sum(number for (kind, _), number in outcomes.items() if kind == "wrong")
