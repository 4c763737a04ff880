"""The counts of a chunk: what the tasks and the driver counted, by slice, equation and term."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from jobs.engine.fingerprints import state_of
from jobs.replay.chunk.driver_rows import identified
from jobs.runs import OPTIONAL_FATES, Counts
from windowlib.records import tables
from windowlib.records.named_rows import tally_content
from windowlib.records.row_ids import IdSum

Sums = dict[tuple[int, str, str], IdSum]
"""(slice number, equation, term) -> count, XOR and sum of ids."""

FATES, ROWS, CLOCK, STATE = "fates", "rows", "clock", "state"


@dataclass(frozen=True)
class ChunkTallies:
    """The counts of all slices of a chunk, complete: those of the tasks and those of the driver."""

    sums: Mapping[tuple[int, str, str], IdSum]

    def term(self, slice_no: int, equation: str, term: str) -> IdSum:
        """Return the ids that were counted under a term; empty if there are none."""
        return self.sums.get((slice_no, equation, term), IdSum())

    def emitted(self, slice_no: int, table: str) -> IdSum:
        """Return the ids of the rows that a slice has in a table."""
        return self.term(slice_no, ROWS, table)

    def state(self, slice_no: int, table: str) -> IdSum:
        """Return the ids of the rows that the state after a slice has in a checkpoint table."""
        return self.term(slice_no, STATE if table in tables.INCREMENTAL_TABLES else ROWS, table)

    def counts(self, slice_no: int) -> Counts:
        """Return how many records of a slice had which fate, and how many panes it emitted."""
        terms = ("read", "assigned", "late", "unassigned", "invalid", *OPTIONAL_FATES)
        fates = {term: self.term(slice_no, FATES, term).count for term in terms}
        return Counts(**fates, panes=self.emitted(slice_no, tables.WINDOW_OUTPUTS).count)

    def rows(self, slice_no: int) -> list[dict[str, object]]:
        """Return the rows of table `tallies` for a slice."""
        return self._rows.get(slice_no, [])

    @cached_property
    def _rows(self) -> Mapping[int, list[dict[str, object]]]:
        rows: dict[int, list[dict[str, object]]] = {}
        for (number, equation, term), ids in self.sums.items():
            rows.setdefault(number, []).append(identified(tables.tallies(), tally_content(equation, term, ids)))
        return rows

    def digest(self, slice_no: int) -> str:
        """Return the digest of the rows of table `tallies` for a slice."""
        return IdSum.of(int(str(row[tables.ROW_ID])) for row in self.rows(slice_no)).digest()


def state_fingerprint(parts: Mapping[str, IdSum]) -> str:
    """Return the fingerprint of a checkpoint from the ids of its tables; the order of rows does not matter."""
    return state_of({name: ids.digest() for name, ids in parts.items()})
