"""Stored rows against what the ledger says of them: digests of runs, ids and checks of rows (law L9).

Sums of ids cost next to nothing and are always compared. To compute ids from content costs about 20 microseconds a
row; readers do so by default where there are at most CONTENT_ROWS, and on request elsewhere.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np

from jobs.lake.damage import ADVICE, reading
from jobs.lake.lake import Lake
from jobs.lake.store import Attempt, read_attempts
from jobs.ledger.view import LedgerView, StagedRun
from jobs.reading.stored_tables import Columns, spec_of, stored_table
from jobs.runs import CheckResult
from windowlib.errors import StoreError
from windowlib.records import tables
from windowlib.records.named_rows import content_id
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.spark.row_identity import UNREADABLE, RowIdentity

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT_ROWS = 50_000
"""Up to so many rows, a reader computes their ids from their content without being asked to."""
IDS = (tables.ROW_ID, *tables.PARTITION_COLUMNS)
"""The columns that sums of ids are made of."""
TALLIES_DIGEST = "tallies_digest"
"""Where a run's extras keep the digest of its rows in tallies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something stored that is not what was written."""

    table: str
    slice_id: str | None
    attempt_id: str | None
    file: str | None
    what: str

    def __str__(self) -> str:
        where = f"table {self.table}"
        where += f", slice {self.slice_id}" if self.slice_id else ""
        where += f", attempt {self.attempt_id}" if self.attempt_id else ""
        where += f", file {self.file}" if self.file else ""
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The rows of some attempts of one table: their runs, and the digests in the ledger (None: it has none)."""

    uri: str
    table: Table
    run_ids: Mapping[Attempt, str]
    digests: Mapping[Attempt, str | None]

    def findings(self, rows: "pa.Table", *, with_content: bool) -> Iterator[Finding]:
        """Compare rows with what the ledger says; `rows` have all columns `with_content`, else the ids and slices."""
        needed = {*IDS, "run_id"} if with_content else {*IDS}
        missing = sorted(needed - set(rows.column_names)) if rows.column_names else []
        if missing:
            yield self._finding(None, f"has no column {', '.join(missing)}")
            return
        try:
            yield from self._sums(rows)
            if with_content and rows.num_rows:
                yield from self._content(rows)
        except UNREADABLE as error:
            yield self._finding(None, f"a value cannot be read: {type(error).__name__}: {error}")

    def _sums(self, rows: "pa.Table") -> Iterator[Finding]:
        found = id_sums(rows) if rows.num_rows else {}
        for attempt, digest in self.digests.items():
            ids = found.get(attempt, IdSum())
            if digest is not None and (ids is None or ids.digest() != digest):
                count = "rows without an id" if ids is None else f"{ids.count:,} rows"
                what = (
                    f"has {count}, and their ids do not add up to the run's digest: rows were lost, doubled or changed"
                )
                yield self._finding(attempt, what)

    def _content(self, rows: "pa.Table") -> Iterator[Finding]:
        pairs = attempts_of(rows)
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        seen: set[Attempt] = set()
        for damage in RowIdentity(self.table).damage(columns):
            if damage.row is None and len(set(pairs)) > 1:  # which of them, shows each by itself
                for attempt in sorted(set(pairs)):
                    yield from self._content(of_attempts(rows, {attempt}))
                return
            attempt = pairs[damage.row or 0]
            if attempt not in seen:
                seen.add(attempt)
                which = "" if damage.row is None else f"row {tables.ROW_ID} {columns[tables.ROW_ID][damage.row]}: "
                yield self._finding(attempt, f"{which}{damage.what}")
        yield from self._placed(columns, pairs)

    def _placed(self, columns: "Mapping[str, pa.Array]", pairs: Sequence[Attempt]) -> Iterator[Finding]:
        """Check that rows belong to their run, and that columns of other specs are empty."""
        wrong = {
            pair for pair, run_id in zip(pairs, columns["run_id"].to_pylist(), strict=True)
            if run_id != self.run_ids.get(pair)
        }  # fmt: skip
        for attempt in sorted(wrong):
            yield self._finding(attempt, f"has rows of another run than {self.run_ids.get(attempt)}")
        known = self.table.stored_columns().keys() | {tables.ROW_CHECK}
        for name, column in columns.items():
            if name not in known and column.null_count < len(column):
                row = column.is_valid().to_pylist().index(True)
                yield self._finding(pairs[row], f"has a value in column {name!r}, which the run's spec does not have")

    def _finding(self, attempt: Attempt | None, what: str) -> Finding:
        if attempt is None and len(self.run_ids) == 1:
            attempt = next(iter(self.run_ids))
        slice_id, attempt_id = attempt or (None, None)
        file = None if attempt is None else file_of(self.uri, attempt)
        return Finding(table=self.table.name, slice_id=slice_id, attempt_id=attempt_id, file=file, what=what)


def id_sums(rows: "pa.Table") -> dict[Attempt, IdSum | None]:
    """Sum up the ids of rows by attempt; None where a row has no id."""
    pairs = attempts_of(rows)
    if rows[tables.ROW_ID].null_count:
        holes = {pair for pair, one in zip(pairs, rows[tables.ROW_ID].is_valid().to_pylist(), strict=True) if not one}
    else:
        holes = set()
    codes: dict[Attempt, int] = {}
    numbers = np.fromiter((codes.setdefault(pair, len(codes)) for pair in pairs), dtype=np.int64, count=len(pairs))
    order = np.argsort(numbers, kind="stable")
    ids = rows[tables.ROW_ID].fill_null(0).to_numpy()[order]
    starts = np.searchsorted(numbers[order], np.arange(len(codes)))
    counts = np.diff([*starts, len(ids)])
    xors, totals = np.bitwise_xor.reduceat(ids, starts), np.add.reduceat(ids, starts)  # the sum wraps, as digests do
    return {
        pair: None if pair in holes else IdSum(int(counts[code]), int(xors[code]), int(totals[code]))
        for pair, code in codes.items()
    }


def attempts_of(rows: "pa.Table") -> list[Attempt]:
    """Return the attempt of each row."""
    return list(zip(rows["slice_id"].to_pylist(), rows["attempt_id"].to_pylist(), strict=True))


def file_of(uri: str, attempt: Attempt) -> str | None:
    """Return the files of an attempt in a table as the log names them, mostly one; None where there is none."""
    from deltalake import DeltaTable

    place = "/slice_id={}/attempt_id={}/".format(*attempt)
    try:
        with reading(uri):
            # Delta quotes partition values in paths, and quotes the paths once more in URIs.
            found = [one for one in DeltaTable(uri).file_uris() if place in unquote(unquote(one))]
    except StoreError:
        return None
    return ", ".join(found) or None


def columns_of(uri: str) -> Columns:
    """Return the columns of a stored table; none where it is not there.

    Raises:
        StoreError: the table's log cannot be read.
    """
    from deltalake import DeltaTable

    with reading(uri):
        if not DeltaTable.is_deltatable(uri):
            return {}
        schema = json.loads(DeltaTable(uri).schema().to_json())
    return {field["name"]: field["type"] for field in schema["fields"]}


def digest_of(run: StagedRun, table: str) -> str | None:
    """Return the digest of a run's rows in a table, as the ledger has it; None where an older Hindcast wrote it."""
    if table == tables.QUALITY_RESULTS:
        return quality_digest(run.result.checks, run.checks_fingerprint)
    if table == tables.TALLIES:
        return run.result.extras.get(TALLIES_DIGEST)
    return run.result.digests.get(table, IdSum().digest())


def quality_digest(checks: Iterable[CheckResult], checks_fingerprint: str | None) -> str | None:
    """Return the digest of the rows of quality_results of these checks; the ledger keeps the checks themselves."""
    if checks_fingerprint is None:
        return None
    return IdSum.of(quality_id(check, checks_fingerprint) for check in checks).digest()


def quality_id(check: CheckResult, checks_fingerprint: str) -> int:
    """Return the id of a row of quality_results."""
    content = {
        "table_name": check.table,
        "check": check.check,
        "column_name": check.column,
        "severity": check.severity,
        "verdict": check.verdict.value,
        "observed": check.observed,
        "arguments": check.arguments,
        "message": check.message,
        "checks_fingerprint": checks_fingerprint,
    }
    return content_id(tables.quality_results(), content)


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """Reads the rows of runs of one pipeline, and checks them.

    `content_rows`: ids are computed from the content of at most so many rows; None for any number of them.
    """

    lake: Lake
    pipeline: str
    view: LedgerView
    content_rows: int | None = CONTENT_ROWS

    def read(self, table: str, runs: Iterable[StagedRun], columns: Sequence[str] | None = None) -> "pa.Table":
        """Return the rows of some runs in a table, checked; all columns unless some are named.

        Raises:
            StoreError: a file cannot be read, or something is not what was written; the message names table, slice,
                attempt and file.
        """
        runs = list(runs)
        uri = self.lake.table(self.pipeline, table)
        rows, findings = self.checked(table, runs, columns)
        first = next(findings, None)
        if first is not None:
            raise StoreError(f"{first}. What is stored in {uri} is not what was written. {ADVICE}")
        return rows.select(list(columns)) if columns is not None and rows.column_names else rows

    def checked(
        self, table: str, runs: Sequence[StagedRun], columns: Sequence[str] | None = None
    ) -> "tuple[pa.Table, Iterator[Finding]]":
        """Return the rows, and what is wrong with them."""
        uri = self.lake.table(self.pipeline, table)
        by_attempt = {run_attempt(run, table): run for run in runs}
        few = self.content_rows is None or self._count(uri, by_attempt) <= self.content_rows
        needed = None if few or columns is None else tuple(dict.fromkeys((*columns, *IDS)))
        rows = read_attempts(uri, by_attempt, needed)
        return rows, self._findings(rows, uri, by_attempt, table=table, with_content=few)

    def _count(self, uri: str, attempts: Iterable[Attempt]) -> int:
        return int(read_attempts(uri, attempts, ("slice_id",)).num_rows)

    def _findings(
        self, rows: "pa.Table", uri: str, runs: Mapping[Attempt, StagedRun], *, table: str, with_content: bool
    ) -> Iterator[Finding]:
        """Compare the rows of each spec by themselves; most of the time there is one spec."""
        specs: dict[str, list[Attempt]] = {}
        for attempt, run in runs.items():
            specs.setdefault(run.result.spec_fingerprint, []).append(attempt)
        stored = columns_of(uri)
        for attempts in specs.values():
            pipeline = spec_of(self.view, runs[attempts[0]])
            part = rows
            if len(specs) > 1 and rows.num_rows:
                part = of_attempts(rows, set(attempts))
            found = Stored(
                uri=uri,
                table=stored_table(pipeline, table, stored, log=self._log_columns),
                run_ids={attempt: runs[attempt].result.run_id for attempt in attempts},
                digests={attempt: digest_of(runs[attempt], table) for attempt in attempts},
            )
            yield from found.findings(part, with_content=with_content)

    def _log_columns(self) -> Columns:
        node = columns_of(self.lake.table(self.pipeline, tables.LATE_RECORDS)).get("record", "string")
        return {} if isinstance(node, str) else {field["name"]: field["type"] for field in node["fields"]}


def run_attempt(run: StagedRun, table: str = tables.WINDOW_OUTPUTS) -> Attempt:
    """Return which rows of a table are a run's."""
    attempt_id = run.checks_attempt_id if table == tables.QUALITY_RESULTS else run.result.attempt_id
    return run.result.slice.slice_id, attempt_id


def of_attempts(rows: "pa.Table", attempts: set[Attempt]) -> "pa.Table":
    """Return the rows of these attempts."""
    import pyarrow as pa

    return rows.filter(pa.array([pair in attempts for pair in attempts_of(rows)], pa.bool_()))
