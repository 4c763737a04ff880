"""Compares stored rows with the ledger: the digests of runs, and the ids and checks of rows (law L9).

Readers always compare the sums of the stored ids with the run's digest, which is cheap. Computing the ids and checks of
rows from their content takes about 0.3 microseconds a row, and needs all columns in memory. Readers do it by default
for at most CONTENT_ROWS rows, and otherwise only on request.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from jobs.lake.damage import ADVICE, reading
from jobs.lake.delta_tables import open_delta
from jobs.lake.filtered_files import FilteredFiles, filtered_files
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.lake.store import attempt_batches, count_rows, read_attempts, table_columns
from jobs.lake.table_files import Attempt, StatisticsDigests
from jobs.ledger.view import LedgerView, StagedRun
from jobs.plain_text import counted
from jobs.reading.id_sums import add_sums, id_sums
from jobs.reading.quality_ids import quality_digest
from jobs.reading.stored_tables import Columns, log_columns, spec_of, stored_table
from jobs.runs import JUDGED
from windowlib.columnar.row_identity import UNREADABLE, RowIdentity
from windowlib.columnar.undecodable import readable
from windowlib.errors import StoreError
from windowlib.libraries import pa
from windowlib.records import tables
from windowlib.records.column_types import struct_fields
from windowlib.records.row_ids import NO_ROWS, IdSum
from windowlib.records.tables import Table

CONTENT_ROWS = 250_000
"""By default, a reader computes ids from content for at most this many rows."""
BATCH_ROWS = 65_536
"""The number of rows of a batch, for readers that take rows in batches."""
IDS = (tables.ROW_ID, *tables.PARTITION_COLUMNS)
"""The columns that the sums of ids need."""
TALLIES_DIGEST = "tallies_digest"
"""The key in a run's extras for the digest of its rows in tallies."""
STATISTICS_DIGEST = "statistics_digest"
"""The key in a run's extras for the digest of the statistics of its files of window_outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A difference between what is stored and what was written. The unknown places are None."""

    table: str
    slice_id: str | None = None
    attempt_id: str | None = None
    file: str | None = None
    what: str

    def __str__(self) -> str:
        where = f"table {self.table}"
        where += f", slice {self.slice_id}" if self.slice_id else ""
        where += f", attempt {self.attempt_id}" if self.attempt_id else ""
        where += f", file {self.file}" if self.file else ""
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the ledger has about some attempts in one table.

    `run_ids` maps an attempt to its run. `digests` maps it to the digest of its rows; None if the ledger has none.
    """

    uri: str
    table: Table
    run_ids: Mapping[Attempt, str]
    digests: Mapping[Attempt, str | None]

    def findings(self, rows: "pa.Table", *, with_content: bool) -> Iterator[Finding]:
        """Yield the differences between `rows` and the ledger.

        `rows` are those of all attempts: all columns if `with_content`, otherwise at least those of `IDS`.
        `with_content` computes ids and checks from the content of each row, too.
        """
        needed = {*IDS, "run_id"} if with_content else {*IDS}
        missing = sorted(needed - set(rows.column_names)) if rows.column_names else []
        if missing:
            yield self._finding(None, f"has no column {', '.join(missing)}")
            return
        try:
            yield from self.sum_findings(id_sums(rows) if rows.num_rows else {})
            if with_content and rows.num_rows:
                yield from self._content(rows)
        except UNREADABLE as error:
            yield self._unreadable(error)

    def content_findings(self, rows: "pa.Table") -> Iterator[Finding]:
        """Yield the rows whose content differs from their ids and checks. `rows` may be some rows, with all columns."""
        try:
            if rows.num_rows:
                yield from self._content(rows)
        except UNREADABLE as error:
            yield self._unreadable(error)

    def sum_findings(self, sums: "Mapping[Attempt, IdSum | None]") -> Iterator[Finding]:
        """Yield the attempts whose ids do not add up to the digest. `sums` has None if a row has no id."""
        for attempt, digest in self.digests.items():
            ids = sums.get(attempt, IdSum())
            if digest is not None and (ids is None or ids.digest() != digest):
                count = "rows without an id" if ids is None else counted(ids.count, "row")
                what = (
                    f"has {count}, and their ids do not add up to the run's digest: rows were lost, doubled or changed"
                )
                yield self._finding(attempt, what)

    def _content(self, rows: "pa.Table") -> Iterator[Finding]:
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        seen: set[Attempt] = set()
        for damage in RowIdentity(self.table).damage(columns):
            if damage.row is None and len(attempts := set(attempts_of(rows))) > 1:
                for read_attempt in sorted(attempts):  # check each attempt alone to find the damaged one
                    yield from self._content(of_attempts(rows, {read_attempt}))
                return
            attempt = _attempt_of(rows, damage.row or 0)
            if attempt not in seen:
                seen.add(attempt)
                which = "" if damage.row is None else f"row {tables.ROW_ID} {columns[tables.ROW_ID][damage.row]}: "
                yield self._finding(attempt, f"{which}{damage.what}")
        yield from self._placed(rows)

    def _placed(self, rows: "pa.Table") -> Iterator[Finding]:
        """Yield rows of another run, and values in columns that the run's spec does not have."""
        runs = rows.group_by([*tables.PARTITION_COLUMNS, "run_id"]).aggregate([]).to_pylist()
        run_ids = [((run["slice_id"], run["attempt_id"]), run["run_id"]) for run in runs]
        for attempt in sorted({pair for pair, run_id in run_ids if run_id != self.run_ids.get(pair)}):
            yield self._finding(attempt, f"has rows of another run than {self.run_ids.get(attempt)}")
        known = self.table.stored_columns().keys() | {tables.ROW_CHECK}
        for name in rows.column_names:
            column = rows[name]
            if name not in known and column.null_count < len(column):
                attempt = _attempt_of(rows, column.is_valid().index(True).as_py())
                yield self._finding(attempt, f"has a value in column {name!r}, which the run's spec does not have")

    def _unreadable(self, error: BaseException) -> Finding:
        return self._finding(None, f"a value cannot be read: {type(error).__name__}: {error}")

    def _finding(self, attempt: Attempt | None, what: str) -> Finding:
        if attempt is None and len(self.run_ids) == 1:
            attempt = next(iter(self.run_ids))
        slice_id, attempt_id = attempt or (None, None)
        file = None if attempt is None else file_of(self.uri, attempt)
        return Finding(table=self.table.name, slice_id=slice_id, attempt_id=attempt_id, file=file, what=what)


def _attempt_of(rows: "pa.Table", row: int) -> Attempt:
    return rows["slice_id"][row].as_py(), rows["attempt_id"][row].as_py()


def attempts_of(rows: "pa.Table") -> list[Attempt]:
    """Return the attempt of each row."""
    return list(zip(rows["slice_id"].to_pylist(), rows["attempt_id"].to_pylist(), strict=True))


def file_of(uri: str, attempt: Attempt) -> str | None:
    """Return the URIs of an attempt's files, joined by `, `; None without one, or if the table's log is damaged."""
    place = "/slice_id={}/attempt_id={}/".format(*attempt)
    try:
        with reading(uri):
            # Delta quotes a partition value once in the path, and the path once more in the URI.
            uris = [file_uri for file_uri in open_delta(uri).file_uris() if place in unquote(unquote(file_uri))]
    except StoreError:
        return None
    return ", ".join(uris) or None


def digest_of(run: StagedRun, table: str) -> str | None:
    """Return the ledger's digest of a run's rows in a table; None if the ledger of an older Hindcast has none."""
    if table == tables.QUALITY_RESULTS:
        stored = [check for check in run.result.checks if check.table not in JUDGED]
        return quality_digest(stored, run.checks_fingerprint)
    if table == tables.TALLIES:
        return run.result.extras.get(TALLIES_DIGEST)
    result = run.result
    return result.checkpoint.stored_digests.get(table) or result.digests.get(table, NO_ROWS)


def statistics_digests(runs: Iterable[StagedRun]) -> StatisticsDigests:
    """Return the digests of the statistics of window_outputs for some runs."""
    return {run_attempt(run): run.result.extras.get(STATISTICS_DIGEST) for run in runs}


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """Reads and checks the rows of runs of one pipeline.

    `content_rows`: compute ids from content if a table has at most this many rows to read; None: always.
    """

    lake: Lake
    pipeline: str
    view: LedgerView
    content_rows: int | None = CONTENT_ROWS

    def read(self, table: str, runs: Iterable[StagedRun], columns: Sequence[str] | None = None) -> "pa.Table":
        """Return the checked rows of some runs in a table; all columns when `columns` is None.

        Texts that are not UTF-8 are escaped: runs of an older Hindcast stored them.
        Raises StoreError: a file cannot be read, or the rows differ from those that were written. The message names
        table, slice, attempt and file.
        """
        rows, findings = self.checked(table, list(runs), columns)
        self._refuse(table, findings)
        return readable(rows.select(list(columns)) if columns is not None and rows.column_names else rows)

    def batches(
        self, table: str, runs: Sequence[StagedRun], columns: Sequence[str], *, rows: int = BATCH_ROWS
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the checked rows of some runs in batches. If there are many rows, the memory is that of a few batches.

        The sums of the ids are compared after the last batch, so a caller must take all batches before it uses any. A
        batch has at most so many `rows`. `columns` are in the order of the table; those that the table does not have
        are missing.
        Raises StoreError: as `read` does.
        """
        uri = self.lake.table(self.pipeline, table)
        by_attempt = {run_attempt(run, table): run for run in runs}
        if self.checks_content(table, runs):
            read_rows = self.read(table, runs)
            wanted = [name for name in columns if name in read_rows.column_names]
            yield from (batch for batch in read_rows.select(wanted).to_batches(max_chunksize=rows) if batch.num_rows)
            return
        needed = tuple(dict.fromkeys((*columns, *IDS)))
        sums: dict[Attempt, IdSum | None] = {}
        for batch in attempt_batches(uri, by_attempt, needed, rows=rows):
            add_sums(sums, batch)
            wanted = [name for name in columns if name in batch.schema.names]
            yield from readable(pa.Table.from_batches([batch.select(wanted)])).to_batches()
        self._refuse_sums(uri, by_attempt, table=table, sums=sums)

    def filtered(
        self, runs: Sequence[StagedRun], chosen: RowFilter, *, columns: Sequence[str] | None = None
    ) -> "pa.Table":
        """Return the chosen rows of some runs in window_outputs. Files without one are not read.

        The statistics in Delta's log tell which files have none, if they have their digest in the ledger. Of each
        attempt with a file that is read, all ids are read, and their sums are compared with the ledger. The content of
        the returned rows is compared with their ids, if there are at most `content_rows` of them. So only a value of a
        column of the filter that is damaged, has a right page checksum, and is in a row that the filter leaves out
        because of it, can hide a row. If the ledger has no digest, damaged statistics can hide rows as well.
        Raises StoreError: as `read` does.
        """
        table = tables.WINDOW_OUTPUTS
        uri = self.lake.table(self.pipeline, table)
        by_attempt = {run_attempt(run): run for run in runs}
        with filtered_files(uri, statistics_digests(runs), chosen) as files:
            rows, sums, is_whole = self._chosen(files, chosen, columns)
        if sums is None:
            sums = {}
            count = 0
            for batch in attempt_batches(uri, files.read, (*IDS, *chosen.columns), rows=BATCH_ROWS):
                add_sums(sums, batch)
                count += chosen.of(pa.Table.from_batches([batch])).num_rows
            if count != rows.num_rows:
                what = (
                    f"{counted(count, 'row')} chosen, and the statistics in the footers of its files hide some of them"
                )
                self._refuse(table, iter([Finding(table=table, what=what)]))
        own = {attempt: run for attempt, run in by_attempt.items() if attempt in files.read}
        self._refuse_sums(uri, own, table=table, sums=sums)
        for stored, part in self._by_spec(rows, uri, own, table=table) if is_whole else ():
            self._refuse(table, stored.content_findings(part))
        return readable(rows.select(list(columns)) if columns is not None and rows.column_names else rows)

    def _chosen(
        self, files: FilteredFiles, chosen: RowFilter, columns: Sequence[str] | None
    ) -> "tuple[pa.Table, Mapping[Attempt, IdSum | None] | None, bool]":
        """Return the chosen rows, the sums of all ids of their files if these were read, too, and if rows are whole.

        To open a file costs more than to read a few rows, so files with few rows are read once, and as a whole.
        """
        most = self.content_rows
        if files.dataset is None:
            return pa.table({}), {}, False
        if files.records <= (CONTENT_ROWS if most is None else most):
            rows = files.dataset.to_table()
            has_ids = rows.num_rows and {*IDS} <= {*rows.column_names}
            return chosen.of(rows), id_sums(rows) if has_ids else {}, True
        is_whole = most is None or chosen.read(files.dataset, ()).num_rows <= most
        return chosen.read(files.dataset, None if is_whole else columns), None, is_whole

    def _refuse_sums(
        self, uri: str, runs: Mapping[Attempt, StagedRun], *, table: str, sums: "Mapping[Attempt, IdSum | None]"
    ) -> None:
        if runs:
            stored = self.described(uri, runs, table=table, attempts=list(runs), columns=table_columns(uri))
            self._refuse(table, stored.sum_findings(sums))

    def checks_content(self, table: str, runs: Sequence[StagedRun]) -> bool:
        """Return whether the ids of the rows of these runs are computed from their content when they are read."""
        return self.content_rows is None or self.count(table, runs) <= self.content_rows

    def count(self, table: str, runs: Iterable[StagedRun]) -> int:
        """Return how many rows some runs have in a table, from the footers of its files.

        Raises StoreError: a file cannot be read.
        """
        return count_rows(self.lake.table(self.pipeline, table), {run_attempt(run, table) for run in runs})

    def _refuse(self, table: str, findings: Iterator[Finding]) -> None:
        """Raise a StoreError with the first finding, if there is one."""
        for finding in findings:
            uri = self.lake.table(self.pipeline, table)
            raise StoreError(f"{finding}. The rows stored in {uri} differ from those that were written. {ADVICE}")

    def checked(
        self, table: str, runs: Sequence[StagedRun], columns: Sequence[str] | None = None
    ) -> "tuple[pa.Table, Iterator[Finding]]":
        """Return the rows of some runs in a table, and an iterator over what is wrong with them."""
        uri = self.lake.table(self.pipeline, table)
        by_attempt = {run_attempt(run, table): run for run in runs}
        few = self.checks_content(table, runs)
        needed = None if few or columns is None else tuple(dict.fromkeys((*columns, *IDS)))
        rows = read_attempts(uri, by_attempt, needed)
        by_spec = self._by_spec(rows, uri, by_attempt, table=table)
        return rows, (finding for stored, part in by_spec for finding in stored.findings(part, with_content=few))

    def _by_spec(
        self, rows: "pa.Table", uri: str, runs: Mapping[Attempt, StagedRun], *, table: str
    ) -> "Iterator[tuple[Stored, pa.Table]]":
        """Yield the rows spec by spec, because each spec has its own columns. Usually there is one spec."""
        specs: dict[str, list[Attempt]] = {}
        for attempt, run in runs.items():
            specs.setdefault(run.result.spec_fingerprint, []).append(attempt)
        columns = table_columns(uri)
        for attempts in specs.values():
            part = of_attempts(rows, set(attempts)) if len(specs) > 1 and rows.num_rows else rows
            yield self.described(uri, runs, table=table, attempts=attempts, columns=columns), part

    def described(
        self, uri: str, runs: Mapping[Attempt, StagedRun], *, table: str, attempts: Sequence[Attempt], columns: Columns
    ) -> Stored:
        """Return what the ledger has about some attempts. Its `table` is that of the spec of the first attempt."""
        first = runs[attempts[0]]
        return Stored(
            uri=uri,
            table=stored_table(
                spec_of(self.view, first), table, columns, log=partial(self._log_columns, first.result.spec_fingerprint)
            ),
            run_ids={attempt: runs[attempt].result.run_id for attempt in attempts},
            digests={attempt: digest_of(runs[attempt], table) for attempt in attempts},
        )

    def _log_columns(self, spec: str) -> Columns:
        """Return the columns of the log that states of a spec were computed from.

        Runs of earlier versions stored none: then those that the stored records have, perhaps of another spec alone.
        """
        results = (run.result for run in self.view.runs.values() if run.result.spec_fingerprint == spec)
        fields = next((result.state_columns for result in results if result.state_columns is not None), None)
        return log_columns(self.lake, self.pipeline) if fields is None else struct_fields({"fields": fields})


def run_attempt(run: StagedRun, table: str = tables.WINDOW_OUTPUTS) -> Attempt:
    """Return the attempt under which a table has a run's rows."""
    attempt_id = run.checks_attempt_id if table == tables.QUALITY_RESULTS else run.result.attempt_id
    return run.result.slice.slice_id, attempt_id


def of_attempts(rows: "pa.Table", attempts: set[Attempt]) -> "pa.Table":
    """Return the rows of these attempts."""
    return rows.filter(pa.array([pair in attempts for pair in attempts_of(rows)], pa.bool_()))
