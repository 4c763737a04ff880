"""The audit of a chunk: do the three equations close over what was committed (DESIGN, section 7)?

It reads the committed tables back with another engine than the one that wrote them. The tallies say what the tasks
emitted (Storm's anchor); the rows that stand in the tables are the ack.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jobs.runs import CheckpointRef, CheckResult, Verdict
from jobs.store import query, read_attempts
from windowlib import tables
from windowlib.errors import AuditError
from windowlib.row_ids import IdSum

ROW_TABLES = (
    tables.WINDOW_OUTPUTS,
    tables.LATE_RECORDS,
    tables.UNASSIGNED_RECORDS,
    tables.INVALID_RECORDS,
    tables.WINDOW_STATE,
    tables.TIMERS,
    tables.WATERMARKS,
)
READ = "read"
ASSIGNED = "assigned"
FATES = {tables.LATE_RECORDS: "late", tables.UNASSIGNED_RECORDS: "unassigned", tables.INVALID_RECORDS: "invalid"}

Sums = Mapping[str, IdSum]
"""slice_id -> sum of ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is audited: the attempt's slices in order, where its tables stand, and the state that it started from."""

    table_uri: Callable[[str], str]
    slice_ids: tuple[str, ...]
    attempt_id: str
    before: CheckpointRef | None

    def close(self) -> tuple[CheckResult, ...]:
        """Check every equation of every slice.

        Returns:
            One passed check per slice and equation, for the report.

        Raises:
            AuditError: naming the slice, the equation and both of its sides.
        """
        told = self._tallies()
        for table in ROW_TABLES:
            self._compare_rows(table, told)
        self._fates(told)
        self._edges(told)
        return tuple(
            _passed(slice_id, equation) for slice_id in self.slice_ids for equation in ("fates", "edges", "rows")
        )

    def _tallies(self) -> dict[tuple[str, str, str], IdSum]:
        columns = ("slice_id", "equation", "term", "record_count", "id_xor", "id_sum")
        rows = read_attempts(self.table_uri(tables.TALLIES), self._attempts(), columns)
        told: dict[tuple[str, str, str], IdSum] = {}
        for slice_id, equation, term, count, xor, total in zip(
            *(rows[name].to_pylist() for name in columns), strict=True
        ):
            told.setdefault((slice_id, equation, term), IdSum()).merge(IdSum(count, xor, total))
        return told

    def _attempts(self) -> list[tuple[str, str]]:
        return [(slice_id, self.attempt_id) for slice_id in self.slice_ids]

    def _compare_rows(self, table: str, told: Mapping[tuple[str, str, str], IdSum]) -> None:
        committed = self._committed(table, "row_id")
        for slice_id in self.slice_ids:
            emitted = told.get((slice_id, "rows", table), IdSum())
            self._close(
                slice_id,
                f"rows of {table}",
                left={"emitted by the tasks": emitted},
                right={"committed": committed.get(slice_id, IdSum())},
            )

    def _fates(self, told: Mapping[tuple[str, str, str], IdSum]) -> None:
        committed = {fate: self._committed(table, "record_hash") for table, fate in FATES.items()}
        for slice_id in self.slice_ids:
            read = told.get((slice_id, "fates", READ), IdSum())
            assigned = told.get((slice_id, "fates", ASSIGNED), IdSum())
            others = {fate: sums.get(slice_id, IdSum()) for fate, sums in committed.items()}
            self._close(slice_id, "fates", left={READ: read}, right={ASSIGNED: assigned, **others})

    def _edges(self, told: Mapping[tuple[str, str, str], IdSum]) -> None:
        after = self._committed_edges(self._attempts())
        start = self.before
        before = (
            self._committed_edges([(start.slice_id, start.attempt_id)]).get(start.slice_id, IdSum())
            if start
            else IdSum()
        )
        for slice_id in self.slice_ids:
            left = {"state before": before, "new": told.get((slice_id, "edges", "new"), IdSum())}
            closed = {
                term: found
                for (one, equation, term), found in told.items()
                if (one, equation) == (slice_id, "edges") and term != "new"
            }
            before = after.get(slice_id, IdSum())
            self._close(slice_id, "edges", left=left, right={"state after": before, **closed})

    def _committed(self, table: str, column: str) -> dict[str, IdSum]:
        condition = "missed_all" if (table, column) == (tables.LATE_RECORDS, "record_hash") else "true"
        columns = ("slice_id", column, *(("missed_all",) if condition != "true" else ()))
        rows = read_attempts(self.table_uri(table), self._attempts(), columns)
        if not rows.num_rows:
            return {}
        sql = (
            f'SELECT slice_id, count(*), bit_xor("{column}"), sum("{column}"::HUGEINT) '  # noqa: S608 - our own names
            f"FROM committed WHERE {condition} GROUP BY slice_id"
        )
        return {
            slice_id: IdSum(count, xor, int(total)) for slice_id, count, xor, total in query(sql, {"committed": rows})
        }

    def _committed_edges(self, attempts: Sequence[tuple[str, str]]) -> dict[str, IdSum]:
        rows = read_attempts(
            self.table_uri(tables.WINDOW_STATE), attempts, ("slice_id", "edge_count", "edge_xor", "edge_sum")
        )
        if not rows.num_rows:
            return {}
        sql = "SELECT slice_id, sum(edge_count), bit_xor(edge_xor), sum(edge_sum::HUGEINT) FROM state GROUP BY slice_id"
        return {
            slice_id: IdSum(int(count), xor, int(total)) for slice_id, count, xor, total in query(sql, {"state": rows})
        }

    def _close(self, slice_id: str, equation: str, *, left: Sums, right: Sums) -> None:
        if _total(left).as_row() != _total(right).as_row():
            raise AuditError(
                f"slice {slice_id}, attempt {self.attempt_id}: the equation of the {equation} does not close: "
                f"{_spell(left)} = {_spell(right)}. What was emitted is not what was committed; nothing of this "
                "attempt will be published. Run the slice again; if it happens twice, the store or Hindcast is at fault"
            )


def _total(side: Sums) -> IdSum:
    whole = IdSum()
    for part in side.values():
        whole.merge(part)
    return whole


def _spell(side: Sums) -> str:
    texts = (
        f"{name} {count:,} (xor {xor & (2**64 - 1):016x}, sum {total & (2**64 - 1):016x})"
        for name, (count, xor, total) in _rows(side)
    )
    return " + ".join(texts)


def _rows(side: Sums) -> list[tuple[str, tuple[int, int, int]]]:
    return [(name, part.as_row()) for name, part in side.items()]


def _passed(slice_id: str, equation: str) -> CheckResult:
    return CheckResult(
        slice_id=slice_id,
        table="laws",
        check=f"audit_{equation}",
        severity="critical",
        verdict=Verdict.PASS,
        message=f"the equation of the {equation} closes over the committed tables",
    )
