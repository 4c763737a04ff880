"""The equations of the audit: Storm's acker over the committed rows of a chunk (docs/explanation/acker.md).

Every record of a slice is a root. Its fate, its windows and its rows are the edges of its tree. The tasks anchor the
edges: their tallies list them. The committed rows ack the edges. Another engine than the writer reads them back. All
trees of a slice share one ledger entry per equation. The strict profile of the acker applies: count, XOR and sum must
all be zero at the end, because an XOR alone does not detect a row that is stored three times. If an entry is not zero,
the tree failed, the attempt is void, and the chunk is replayed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.lake.arrow_sql import plain_rows
from jobs.lake.store import read_attempts
from jobs.lake.table_files import Attempt
from jobs.plain_text import first_of
from jobs.replay.committed_rows import EDGES, REMOVED_EDGES, REMOVED_IDS, ROWS_PER_BATCH, ROWS_PER_TASK, CommittedRows
from jobs.replay.tasks import LocalTasks, Tasks
from jobs.runs import LAWS, CheckpointRef, CheckResult, Verdict
from windowlib.columnar.row_identity import RowIdentity
from windowlib.errors import AuditError
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.records.tallies import NO_EDGES
from windowlib.storm.acker.acker import STRICT, Acker
from windowlib.storm.acker.messages import Ack, Init, Message, NoticeKind, RootId

ROW_TABLES = (
    tables.WINDOW_OUTPUTS,
    tables.LATE_RECORDS,
    tables.UNASSIGNED_RECORDS,
    tables.INVALID_RECORDS,
    tables.WINDOW_STATE,
    tables.TIMERS,
    tables.WATERMARKS,
)
EQUATIONS = ("fates", "edges", "rows")
READ = "read"
ASSIGNED = "assigned"
FILTERED = "filtered"
FATES = {
    tables.LATE_RECORDS: "late",
    tables.UNASSIGNED_RECORDS: "unassigned",
    tables.INVALID_RECORDS: "invalid",
    tables.DUPLICATE_RECORDS: "duplicate",
}
"""A table of records -> their fate. Not every pipeline has all tables."""
AUDITED_ROWS = 1_000_000
"""The audit computes row ids from the committed content if a table has at most this many rows."""
VOID = (
    "Nothing of this attempt will be published. A run replays it once by itself; if it happens again, the store or "
    "Hindcast is at fault"
)
KEPT_ROWS = 50_000
"""The audit reads a table with at most this many rows once, with all its columns, and keeps it until it ends."""
NAMED_AT_MOST = 5
"""The number of further open equations that an error names. A lost file can leave hundreds open."""

Sums = Mapping[str, IdSum]
"""Term or slice_id -> sum of ids."""
Tallies = Mapping[tuple[str, str, str], IdSum]
"""(slice_id, equation, term) -> sum of ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """An attempt to audit: its slices in order, the paths of its tables, and the checkpoint it started from.

    `state_before` has the ids of that checkpoint's rows by table. `changes` are the slices whose checkpoint is stored
    as changes.

    The committed rows of `row_tables`, and of every table that the tasks tallied, must be the rows that the tasks
    emitted. If a table of `contents` has at most `content_rows` rows, each row must also give its id again when it is
    read back. Tables with at most `kept_rows` rows are read once. `tasks` read the files of larger tables, about
    `rows_per_task` rows each, in batches of `rows_per_batch`.
    """

    table_uri: Callable[[str], str]
    slice_ids: tuple[str, ...]
    attempt_id: str
    before: CheckpointRef | None
    state_before: Sums = field(default_factory=dict)
    changes: frozenset[str] = frozenset()
    row_tables: tuple[str, ...] = ROW_TABLES
    contents: Mapping[str, Table] = field(default_factory=dict)
    content_rows: int = AUDITED_ROWS
    kept_rows: int = KEPT_ROWS
    tasks: Tasks = field(default_factory=LocalTasks)
    rows_per_task: int = ROWS_PER_TASK
    rows_per_batch: int = ROWS_PER_BATCH

    def close(self) -> tuple[CheckResult, ...]:
        """Check every equation of every slice.

        Returns one passed check per slice and equation.
        Raises AuditError: names the slice, the equation, both of its sides, and other equations that do not close.
        """
        tallied = self._tallies()
        forest = _Forest()
        committed = self._committed(tallied)
        self._rows(forest, tallied, committed)
        self._fates(forest, tallied, committed)
        self._edges(forest, tallied, committed)
        self._states(forest, tallied, committed)
        self._require_closed(forest)
        self._require_contents(committed)
        return tuple(_passed(slice_id, equation) for slice_id in self.slice_ids for equation in EQUATIONS)

    def _committed(self, tallied: Tallies) -> CommittedRows:
        counts = dict.fromkeys((*self.row_tables, *self.contents), 0)
        for (_, equation, table), ids in tallied.items():
            if equation == "rows":
                counts[table] = counts.get(table, 0) + ids.count
        return CommittedRows(
            table_uri=self.table_uri,
            own=self._attempts(),
            counts=counts,
            kept_rows=self.kept_rows,
            tasks=self.tasks,
            rows_per_task=self.rows_per_task,
            rows_per_batch=self.rows_per_batch,
        )

    def _tallies(self) -> Tallies:
        columns = ("slice_id", "equation", "term", "record_count", "id_xor", "id_sum")
        rows = read_attempts(self.table_uri(tables.TALLIES), self._attempts(), columns)
        tallied: dict[tuple[str, str, str], IdSum] = {}
        for slice_id, equation, term, count, xor, total in plain_rows(rows):
            tallied.setdefault((slice_id, equation, term), IdSum()).merge(IdSum(count, xor, total))
        return tallied

    def _attempts(self) -> list[Attempt]:
        return [(slice_id, self.attempt_id) for slice_id in self.slice_ids]

    def _rows(self, forest: "_Forest", tallied: Tallies, committed: CommittedRows) -> None:
        """For each table, the committed rows are the rows that the tasks emitted."""
        emitted_to = {term for _, equation, term in tallied if equation == "rows"}
        for table in (*self.row_tables, *sorted(emitted_to - set(self.row_tables))):
            ids_of_slices = committed.ids(table, tables.ROW_ID)
            for slice_id in self.slice_ids:
                forest.grow(
                    _Tree(
                        slice_id=slice_id,
                        equation=f"rows of {table}",
                        anchored={"emitted by the tasks": tallied.get((slice_id, "rows", table), IdSum())},
                        acked={"committed": ids_of_slices.get(slice_id, IdSum())},
                    )
                )

    def _fates(self, forest: "_Forest", tallied: Tallies, committed: CommittedRows) -> None:
        """Every record read has one fate. For a fate with a side table, the tallies equal the committed rows.

        Filtered records have no rows. Their ids come from the scan, and `read` from the audit's own scan.
        """
        fates = {table: fate for table, fate in FATES.items() if table in self.row_tables}
        records = {fate: committed.ids(table, "record_hash") for table, fate in fates.items()}
        for slice_id in self.slice_ids:
            others = {fate: sums.get(slice_id, IdSum()) for fate, sums in records.items()}
            read = tallied.get((slice_id, "fates", READ), IdSum())
            inner = {
                term: ids
                for term in (ASSIGNED, FILTERED)
                if (ids := tallied.get((slice_id, "fates", term))) is not None
            }
            forest.grow(_Tree(slice_id=slice_id, equation="fates", anchored={READ: read}, acked={**inner, **others}))
            for fate, stored in others.items():
                said = tallied.get((slice_id, "fates", fate), IdSum())
                forest.grow(
                    _Tree(
                        slice_id=slice_id,
                        equation=f"{fate} records",
                        anchored={"tallied": said},
                        acked={"committed": stored},
                    )
                )

    def _edges(self, forest: "_Forest", tallied: Tallies, committed: CommittedRows) -> None:
        """Edges are (record, window) pairs: state before + new = state after + closed."""
        stored, removed = committed.by_slice(EDGES), committed.by_slice(REMOVED_EDGES)
        before = self._edges_before(committed)
        closed: dict[str, dict[str, IdSum]] = {}
        for (slice_id, equation, term), ids in tallied.items():
            if equation == "edges" and term != "new":
                closed.setdefault(slice_id, {})[term] = ids
        for slice_id in self.slice_ids:
            new = tallied.get((slice_id, "edges", "new"), IdSum())
            anchored = {"state before": before, "new": new}
            before = IdSum.together([*([before] if slice_id in self.changes else []), stored.get(slice_id, IdSum())])
            before.remove(removed.get(slice_id, IdSum()))
            acked = {"state after": before, **closed.get(slice_id, {})}
            forest.grow(_Tree(slice_id=slice_id, equation="edges", anchored=anchored, acked=acked))

    def _edges_before(self, committed: CommittedRows) -> IdSum:
        """Return the edges of the checkpoint that the attempt started from."""
        if self.before is None:
            return IdSum()
        attempts = self.before.attempts
        total = IdSum.together(committed.sums(EDGES.of_all_slices(), attempts).values())
        for removed in committed.sums(REMOVED_EDGES.of_all_slices(), attempts[1:]).values():
            total.remove(removed)
        return total

    def _states(self, forest: "_Forest", tallied: Tallies, committed: CommittedRows) -> None:
        """For each checkpoint table: committed rows = state after; of changes, with the state before and removals."""
        named = {term for _, equation, term in tallied if equation == "state"}
        removed = committed.sums(REMOVED_IDS) if named else {}
        for table in sorted(named):
            stored = committed.ids(table, tables.ROW_ID)
            before = self.state_before.get(table, IdSum())
            for slice_id in self.slice_ids:
                after, rows = tallied.get((slice_id, "state", table), IdSum()), stored.get(slice_id, IdSum())
                anchored, acked = {"committed": rows}, {"state after": after}
                if slice_id in self.changes:
                    anchored |= {"state before": before}
                    acked |= {"removed": removed.get((slice_id, table), IdSum())}
                forest.grow(_Tree(slice_id=slice_id, equation=f"state in {table}", anchored=anchored, acked=acked))
                before = after

    def _require_contents(self, committed: CommittedRows) -> None:
        """Every row, read back, gives the id that is stored with it."""
        for name, table in self.contents.items():
            if not 0 < committed.count(name) <= self.content_rows:
                continue
            rows = committed.rows(name)
            columns = {column: rows[column] for column in rows.column_names}
            for damage in RowIdentity(table).damage(columns):
                raise AuditError(
                    f"slice {rows['slice_id'][damage.row or 0]}, attempt {self.attempt_id}: a row of {name} is not "
                    f"what was emitted: {damage.what}. {VOID}"
                )

    def _require_closed(self, forest: "_Forest") -> None:
        open_trees = forest.open_trees()
        if not open_trees:
            return
        first, *others = open_trees
        raise AuditError(
            f"slice {first.slice_id}, attempt {self.attempt_id}: the equation of the {first.equation} does not close: "
            f"{_spell(first.anchored)} = {_spell(first.acked)}.{_name(others)} What was emitted is not what was "
            f"committed. {VOID}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """One equation of one slice: the anchored terms must sum up to the acked terms."""

    slice_id: str
    equation: str
    anchored: Sums
    acked: Sums


@dataclass(slots=True)
class _Forest:
    """The acker of one audit. Keeps the terms of each equation, because the balance cannot show which side is wrong."""

    _acker: Acker = field(default_factory=lambda: Acker(STRICT))
    _trees: dict[RootId, _Tree] = field(default_factory=dict)
    _complete: set[RootId] = field(default_factory=set)

    def grow(self, tree: _Tree) -> None:
        """Send an equation to the acker: one init, and one ack per table that was read back."""
        root_id = f"{tree.slice_id}/{tree.equation}"
        self._trees[root_id] = tree
        anchored = IdSum.together(tree.anchored.values())
        self._tell(Init(root_id=root_id, anchored=anchored.as_row(), task=0))
        for part in tree.acked.values():
            if part.as_row() != NO_EDGES:  # after the end of a tree, an empty ack would open an orphan entry
                self._tell(Ack(root_id=root_id, acked=part.as_row()))

    def open_trees(self) -> list[_Tree]:
        """Return the equations that do not close: not complete, or acked after completion, which leaves an orphan."""
        pending = {root_id for root_id, _ in self._acker.pending()}
        return [tree for root_id, tree in self._trees.items() if root_id in pending or root_id not in self._complete]

    def _tell(self, message: Message) -> None:
        notice = self._acker.receive(message)
        if notice is not None and notice.kind is NoticeKind.ACK:
            self._complete.add(notice.root_id)


def _spell(side: Sums) -> str:
    texts = (
        f"{name} {count:,} (xor {xor & (2**64 - 1):016x}, sum {total & (2**64 - 1):016x})"
        for name, (count, xor, total) in ((name, part.as_row()) for name, part in side.items())
    )
    return " + ".join(texts)


def _name(others: Sequence[_Tree]) -> str:
    if not others:
        return ""
    named = first_of([f"{tree.equation} of slice {tree.slice_id}" for tree in others], NAMED_AT_MOST)
    return f" Nor does that of the {named}."


def _passed(slice_id: str, equation: str) -> CheckResult:
    return CheckResult(
        slice_id=slice_id,
        table=LAWS,
        check=f"audit_{equation}",
        severity="critical",
        verdict=Verdict.PASS,
        message=f"the equation of the {equation} closes over the committed tables",
    )
