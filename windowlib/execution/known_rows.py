"""The ids of the rows in the state of a bucket, and the difference between two sets of rows."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from windowlib.columnar.watermark_steps import Bools, Int64s
from windowlib.records import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRows:
    """Rows of one checkpoint table as columns, one element per row.

    `number` is the number of the row's key, `row_id` its id. Two rows with the same `word` are equal, also in their
    coordinates. The edge columns tally the edges of an open window; rows without edges have zeros.
    """

    number: Int64s
    row_id: Int64s
    word: Int64s
    edge_count: Int64s
    edge_xor: Int64s
    edge_sum: Int64s

    def __len__(self) -> int:
        return len(self.row_id)

    @classmethod
    def none(cls) -> "KnownRows":
        """Return no rows."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(**{field.name: nothing for field in fields(cls)})

    @classmethod
    def of(cls, rows: pa.Table, number: Int64s) -> "KnownRows":
        """Return the known rows of a table with ids and checks; `number` has the numbers of their keys."""
        row_id = rows[tables.ROW_ID].to_numpy()
        word = rows[tables.ROW_CHECK].to_numpy() if tables.ROW_CHECK in rows.column_names else row_id
        edges = dict.fromkeys(tables.EDGE_COLUMNS, np.broadcast_to(np.int64(0), len(row_id)))
        if tables.EDGE_COLUMNS[0] in rows.column_names:
            counts = ~rows["is_orphan"].to_numpy()  # an orphan has no edges (F1)
            edges = {name: rows[name].to_numpy() * counts for name in tables.EDGE_COLUMNS}
        return cls(number=number, row_id=row_id, word=word, **edges)

    def followed_by(self, other: "KnownRows") -> "KnownRows":
        """Return the rows of both."""
        if not len(self) or not len(other):
            return other if len(other) else self
        return self._mapped(lambda name: np.concatenate([getattr(self, name), getattr(other, name)]))

    def where(self, chosen: Bools) -> "KnownRows":
        """Return some of the rows."""
        if chosen.all():
            return self
        places = np.flatnonzero(chosen)
        return self._mapped(lambda name: getattr(self, name)[places])

    def _mapped(self, column: Callable[[str], Int64s]) -> "KnownRows":
        return KnownRows(**{field.name: column(field.name) for field in fields(self)})


def are_among(numbers: Int64s, wanted: Int64s) -> Bools:
    """Return which of some numbers of keys are among the wanted ones. Numbers are 0, 1, 2 .."""
    if not len(numbers) or not len(wanted):
        return np.zeros(len(numbers), dtype=np.bool_)
    table = np.zeros(1 + int(max(numbers.max(), wanted.max())), dtype=np.bool_)
    table[wanted] = True
    are_wanted: Bools = table[numbers]
    return are_wanted


def difference(before: KnownRows, after: KnownRows, *, by_key: bool) -> tuple[Bools, Bools]:
    """Return which rows of `before` are gone, and which rows of `after` are new.

    Removals name a row by its id. So if a row occurs more than once before or after, all of its copies are gone, and
    those of `after` are new.

    Args:
        before: rows of some keys.
        after: rows of the same keys.
        by_key: if one row of a key changed, all rows of the key are gone or new. The ids of rows with positions need
            that, because they depend on the other rows of the key.
    """
    repeated = np.concatenate([_repeated(before.word), _repeated(after.word)])
    is_gone = ~np.isin(before.word, after.word) | np.isin(before.word, repeated)
    is_new = ~np.isin(after.word, before.word) | np.isin(after.word, repeated)
    if by_key:
        changed = np.concatenate([before.number[is_gone], after.number[is_new]])
        is_gone, is_new = are_among(before.number, changed), are_among(after.number, changed)
    return is_gone, is_new


def _repeated(words: Int64s) -> Int64s:
    ordered = np.sort(words)
    repeated: Int64s = ordered[1:][ordered[1:] == ordered[:-1]]
    return repeated
