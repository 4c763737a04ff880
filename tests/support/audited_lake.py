"""A small attempt as a replay commits it, made without Spark, and functions that damage it, for tests of the audit.

Slices have records with random 64-bit hashes. Each record gets a fate. An assigned record is in one or two windows,
which stay open into later slices or close. Open windows are rows of window_state. The tallies are those of the tasks.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from jobs.replay.equations import Audit
from jobs.runs import CheckpointRef
from windowlib.bounds import wrap_int64
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tallies import NO_EDGES, signed, together

Row = dict[str, Any]
ATTEMPT, EARLIER = "a" * 32, "b" * 32
SLICES = ("2024-01-01", "2024-01-02", "2024-01-03")
BEFORE = CheckpointRef(slice_id="2023-12-31", run_id="r", attempt_id=EARLIER, fingerprint="f")
SIDE = tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS, tables.INVALID_RECORDS
STORED = (tables.WINDOW_OUTPUTS, *SIDE, tables.WINDOW_STATE, tables.TIMERS, tables.WATERMARKS, tables.TALLIES)
_LONG, _TEXT, _FLAG = pa.int64(), pa.string(), pa.bool_()
_KEPT = {"slice_id": _TEXT, "attempt_id": _TEXT, "row_id": _LONG}
_SIDE = {**_KEPT, "record_hash": _LONG}
SCHEMAS = {
    tables.WINDOW_OUTPUTS: _KEPT,
    tables.LATE_RECORDS: {**_SIDE, "missed_all": _FLAG},
    tables.UNASSIGNED_RECORDS: _SIDE,
    tables.INVALID_RECORDS: _SIDE,
    tables.WINDOW_STATE: {**_KEPT, "edge_count": _LONG, "edge_xor": _LONG, "edge_sum": _LONG, "is_orphan": _FLAG},
    tables.TIMERS: _KEPT,
    tables.WATERMARKS: _KEPT,
    tables.TALLIES: {
        **_KEPT, "equation": _TEXT, "term": _TEXT, "record_count": _LONG, "id_xor": _LONG, "id_sum": _LONG,
    },
}  # fmt: skip


@dataclass
class Attempt:
    """The rows of an attempt by table. A test damages them and then runs the audit."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in STORED})
    slice_ids: tuple[str, ...] = SLICES
    before: CheckpointRef | None = BEFORE

    def of(self, table: str, slice_id: str) -> list[Row]:
        return [row for row in self.rows[table] if (row["slice_id"], row["attempt_id"]) == (slice_id, ATTEMPT)]


class Lakes:
    """Commits attempts. A table with the same rows as an earlier one is not written again.

    The audits keep small tables in turns: none, those with few rows, all. In turns, tasks read few or all rows.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._written: dict[str, Path] = {}
        self._kept_rows = itertools.cycle((-1, 12, 1_000))
        self._rows_per_task = itertools.cycle((1, 7, 1_000, 3, 2))
        self._rows_per_batch = itertools.cycle((1, 5, 1_000, 2))

    def audit(self, attempt: Attempt) -> Audit:
        """Commit the tables that have rows, and return the audit over them."""
        found = {name: self._table(name, rows) for name, rows in attempt.rows.items() if rows}
        return Audit(
            table_uri=lambda name: str(found.get(name, self._root / "absent")),
            slice_ids=attempt.slice_ids,
            attempt_id=ATTEMPT,
            before=attempt.before,
            kept_rows=next(self._kept_rows),
            rows_per_task=next(self._rows_per_task),
            rows_per_batch=next(self._rows_per_batch),
        )

    def _table(self, name: str, rows: list[Row]) -> Path:
        key = json.dumps([name, rows])
        if key not in self._written:
            self._written[key] = self._root / str(len(self._written))
            schema = pa.schema(list((SCHEMAS.get(name) or _KEPT).items()))
            write_deltalake(
                self._written[key], pa.Table.from_pylist(rows, schema=schema), partition_by=["slice_id", "attempt_id"]
            )
        return self._written[key]


class HonestReplay:
    """Creates an attempt whose equations close."""

    def __init__(self, rng: Random, *, records: int = 40) -> None:
        self._rng = rng
        self._records = records
        self._tallies: dict[tuple[str, str, str], IdSum] = {}
        self._attempt = Attempt()

    def attempt(self) -> Attempt:
        open_edges = [[self._word()] for _ in range(5)]
        self._state(BEFORE.slice_id, open_edges, attempt_id=EARLIER)
        for slice_id in SLICES:
            open_edges = self._slice(slice_id, open_edges)
        for slice_id in SLICES:
            # The audit must ignore a row of another attempt at the same slice.
            self._row(tables.WINDOW_OUTPUTS, slice_id, {}, attempt_id=EARLIER)
        for (slice_id, equation, term), ids in self._tallies.items():
            parts = dict(zip(("record_count", "id_xor", "id_sum"), ids.as_row(), strict=True))
            place = {"slice_id": slice_id, "attempt_id": ATTEMPT, "row_id": self._word()}
            self._attempt.rows[tables.TALLIES].append({**place, "equation": equation, "term": term, **parts})
        return self._attempt

    def _word(self) -> int:
        return self._rng.getrandbits(64) - 2**63

    def _slice(self, slice_id: str, open_edges: list[list[int]]) -> list[list[int]]:
        for number in range(self._records):
            record = self._word()
            fate = ("assigned", "assigned", "assigned", "late", "unassigned", "invalid")[number % 6]
            self._tally(slice_id, "fates", "read", record)
            self._tally(slice_id, "fates", fate, record)
            if fate == "assigned":
                self._assign(slice_id, record, open_edges)
            else:
                self._row(f"{fate}_records", slice_id, {"record_hash": record, "missed_all": True})
        for window in open_edges[:2]:
            term = self._rng.choice(["closed:fired", "closed:never_fired", "closed:evicted"])
            for one in window:
                self._tally(slice_id, "edges", term, one)
            self._row(tables.WINDOW_OUTPUTS, slice_id, {})
        left = [*open_edges[2:], [], []]
        self._state(slice_id, left)
        self._row(tables.WATERMARKS, slice_id, {})
        return left

    def _assign(self, slice_id: str, record: int, open_edges: list[list[int]]) -> None:
        edges = [record] * self._rng.choice([1, 2])
        for one in edges:
            self._tally(slice_id, "edges", "new", one)
            self._rng.choice(open_edges).append(one)
        if len(edges) == 1:  # it missed its other window: a row in late_records without a fate
            self._row(tables.LATE_RECORDS, slice_id, {"record_hash": record, "missed_all": False})

    def _state(self, slice_id: str, windows: list[list[int]], *, attempt_id: str = ATTEMPT) -> None:
        for window in windows:
            edges = NO_EDGES
            for one in window:
                edges = signed(together(edges, (1, one, one)))
            parts = dict(zip(("edge_count", "edge_xor", "edge_sum"), edges, strict=True))
            self._row(tables.WINDOW_STATE, slice_id, parts, attempt_id=attempt_id)
            self._row(tables.TIMERS, slice_id, {}, attempt_id=attempt_id)

    def _row(self, table: str, slice_id: str, content: Row, *, attempt_id: str = ATTEMPT) -> None:
        identity = self._word()
        place = {"slice_id": slice_id, "attempt_id": attempt_id, "row_id": identity}
        self._attempt.rows[table].append({**place, **content})
        if attempt_id == ATTEMPT:
            self._tally(slice_id, "rows", table, identity)

    def _tally(self, slice_id: str, equation: str, term: str, identity: int) -> None:
        self._tallies.setdefault((slice_id, equation, term), IdSum()).add(identity)


Harm = Callable[[Attempt, str, Random], None]


def pick(attempt: Attempt, table: str, rng: Random) -> Row:
    return rng.choice([row for row in attempt.rows[table] if row["attempt_id"] == ATTEMPT])


def lose(attempt: Attempt, table: str, rng: Random) -> None:
    attempt.rows[table].remove(pick(attempt, table, rng))


def double(attempt: Attempt, table: str, rng: Random) -> None:
    attempt.rows[table].append(dict(pick(attempt, table, rng)))


def triple(attempt: Attempt, table: str, rng: Random) -> None:
    """Add the same row twice, so that no XOR changes."""
    attempt.rows[table] += [dict(pick(attempt, table, rng))] * 2


def swap_for_another(attempt: Attempt, table: str, rng: Random) -> None:
    """Change the id of a row, so that no count changes."""
    row = pick(attempt, table, rng)
    row["row_id"] ^= 1 << rng.randrange(63)
    if table == tables.TALLIES:
        row["id_xor"] ^= 1 << rng.randrange(63)


def keep_the_sum(attempt: Attempt, table: str, rng: Random) -> None:
    """Add a number to one id and subtract it from another, so that no count and (with two rows) no sum changes."""
    rows = attempt.of(table, pick(attempt, table, rng)["slice_id"])
    change = rng.getrandbits(40)
    rows[0]["row_id"] = wrap_int64(rows[0]["row_id"] + change)
    if len(rows) > 1:
        rows[-1]["row_id"] = wrap_int64(rows[-1]["row_id"] - change)


def move_to_another_slice(attempt: Attempt, table: str, rng: Random) -> None:
    row = pick(attempt, table, rng)
    row["slice_id"] = next(slice_id for slice_id in SLICES if slice_id != row["slice_id"])


def give_to_another_attempt(attempt: Attempt, table: str, rng: Random) -> None:
    pick(attempt, table, rng)["attempt_id"] = EARLIER
