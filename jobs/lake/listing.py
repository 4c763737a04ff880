"""The data files of attempts, from the file list of one version of a Delta table.

An attempt is a pair of (slice_id, attempt_id): the partition of a table that one attempt at a slice wrote.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from jobs.lake.arrow_types import arrow_table
from jobs.lake.opened_tables import listing_of
from windowlib.records.tables import PARTITION_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

FEW_ATTEMPTS = 24
"""The files of so many attempts are looked up one by one, before an index of all files of a table is made."""
_LISTED = ("path", "num_records", "size_bytes", *(f"partition.{name}" for name in PARTITION_COLUMNS))


class ListedFile(NamedTuple):
    """A file of a table: its path as in Delta's log, its attempt, its rows (None without statistics) and bytes."""

    path: str
    attempt: tuple[str, str]
    records: int | None
    bytes: int


def listed_files(table: "DeltaTable", attempts: Iterable[tuple[str, str]]) -> list[ListedFile]:
    """Return the files of attempts, in the order of the table's own list."""
    return listing_of(table, Listing).of(set(attempts))


class Listing:
    """All files of a table at a version.

    The files of a few attempts are found by comparing columns. If many are asked for, an index of all files is made.
    """

    def __init__(self, table: "DeltaTable", *, few: int = FEW_ATTEMPTS) -> None:
        actions = arrow_table(table.get_add_actions(flatten=True)).combine_chunks()
        self._columns = actions.select(_LISTED)
        self._left = few
        self._index: tuple[list[ListedFile], dict[tuple[str, str], list[int]]] | None = None

    def of(self, attempts: AbstractSet[tuple[str, str]]) -> list[ListedFile]:
        """Return the files of attempts, in the order of the table's own list."""
        if self._index is None:
            self._left -= len(attempts)
            if self._left >= 0:
                return self._found(attempts)
            self._index = self._indexed()
        files, places = self._index
        return [files[place] for place in sorted(place for one in attempts for place in places.get(one, ()))]

    def _found(self, attempts: AbstractSet[tuple[str, str]]) -> list[ListedFile]:
        import pyarrow as pa
        import pyarrow.compute as pc

        ids = pa.array([attempt_id for _, attempt_id in attempts], pa.string())
        own = self._columns.filter(pc.is_in(pc.cast(self._columns[_LISTED[-1]], pa.string()), ids))
        return [one for one in _as_files(own) if one.attempt in attempts]

    def _indexed(self) -> tuple[list[ListedFile], dict[tuple[str, str], list[int]]]:
        files = _as_files(self._columns)
        places: dict[tuple[str, str], list[int]] = {}
        for place, file in enumerate(files):
            places.setdefault(file.attempt, []).append(place)
        return files, places


def _as_files(listed: "pa.Table") -> list[ListedFile]:
    columns = (column.to_pylist() for column in listed.columns)
    return [
        ListedFile(path, (*attempt,), records, size) for path, records, size, *attempt in zip(*columns, strict=True)
    ]
