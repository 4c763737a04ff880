"""Which published windows a reader asks for: values of key columns, a range of window starts, and columns."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.ledger.view import LedgerView
from jobs.plain_text import shortened
from jobs.reading.published import BOUNDS, HIDDEN, published_runs, read_published, read_published_table, runs_by_keys
from jobs.reading.stored_tables import reader_columns
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import RequestError
from windowlib.libraries import pa
from windowlib.records.column_types import Node, spell_type
from windowlib.records.tables import RECORD_TABLES, SIDE_OUTPUTS, WINDOW_OUTPUTS

When = datetime | date | str
"""An instant. One without an offset is in UTC, and a date is its midnight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The published rows that a reader asks for.

    Only windows can be chosen by keys and starts. `keys` maps a key column to the values to return, of any collection
    but a text. Windows start in [from_, to), in which a global window is not; None is no bound. `columns` are returned;
    None: all.
    """

    table: str = WINDOW_OUTPUTS
    keys: Mapping[str, Collection[Any]] = field(default_factory=dict)
    from_: When | None = None
    to: When | None = None
    columns: Sequence[str] | None = None

    def checked(self, lake: Lake, pipeline: str, view: LedgerView) -> "RowFilter | None":
        """Return the filter of the rows; None if it chooses all.

        Raises:
            RequestError: a column is unknown, a key is no key column, a value is not of the column's type, or the range
                is empty.
            StoreError: the table cannot be read.
        """
        stored = reader_columns(lake, pipeline, self.table, view=view)
        known_tables = readable_tables(view)
        if self.table not in known_tables:
            raise RequestError(
                f"pipeline {pipeline} has no published table {self.table!r}; it has {', '.join(known_tables)}"
            )
        hidden = HIDDEN if self.table == WINDOW_OUTPUTS else ()
        shown = [name for name in stored if name not in hidden]
        if isinstance(self.columns, str):
            raise RequestError(f"columns must be a list, such as [{self.columns!r}]; found {self.columns!r}")
        for name in self.columns or ():
            if name not in shown:
                raise RequestError(f"table {self.table} has no column {name!r} to read; it has {', '.join(shown)}")
        if not (self.keys or self.from_ is not None or self.to is not None):
            return None
        if self.table != WINDOW_OUTPUTS:
            raise RequestError(f"only rows of {WINDOW_OUTPUTS} are chosen by keys and window starts, not {self.table}")
        known = [key for group in runs_by_keys(view) for key in group.keys]
        values = {name: _allowed(name, given, stored, keys=known) for name, given in self.keys.items()}
        kind = arrow_type(stored[BOUNDS[0]])
        start, end = (_instant(name, given, kind) for name, given in (("from_", self.from_), ("to", self.to)))
        if start is not None and end is not None and start.as_py() >= end.as_py():
            raise RequestError(f"the range of window starts [{start}, {end}) is empty: `to` must be later than `from_`")
        return RowFilter(values=values, time=BOUNDS[0], from_=start, to=end)


def readable_tables(view: LedgerView) -> tuple[str, ...]:
    """Return the tables that readers may ask for: the windows, the record tables and the side outputs."""
    written = {name for run in published_runs(view) for name in run.result.digests}
    named = (WINDOW_OUTPUTS, *RECORD_TABLES)
    side_outputs = sorted(name for name in written if name.startswith(SIDE_OUTPUTS))
    return (*(name for name in named if name in written or name == WINDOW_OUTPUTS), *side_outputs)


def read_selected(lake: Lake, pipeline: str, wanted: Selection, *, view: LedgerView) -> "pa.Table":
    """Return the published rows that a reader asks for; of the windows, in their order.

    Raises:
        RequestError: as `Selection.checked` raises.
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    chosen = wanted.checked(lake, pipeline, view)
    if wanted.table != WINDOW_OUTPUTS:
        return read_published_table(lake, pipeline, wanted.table, view=view, columns=wanted.columns)
    return read_published(lake, pipeline, view, chosen=chosen, columns=wanted.columns)


def instant_of_ms(at_ms: int) -> datetime:
    """Return an instant of epoch ms as a datetime in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def _allowed(name: str, given: object, stored: Mapping[str, Node], *, keys: Sequence[str]) -> "pa.Array":
    if name not in keys or name not in stored:
        raise RequestError(f"{name!r} is no key column; the key columns are {', '.join(dict.fromkeys(keys))}")
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise RequestError(f"the values of key {name!r} must be a list, such as [{given!r}]; found {given!r}")
    kind, values = arrow_type(stored[name]), list(given)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError) as error:
        raise RequestError(
            f"key {name!r} is a {spell_type(stored[name])}, and {shortened(repr(values))} has another value"
        ) from error


def _instant(name: str, given: "When | None", kind: "pa.DataType") -> Any:  # noqa: ANN401 - a pa.Scalar, or None
    if given is None:
        return None
    try:
        at = datetime.fromisoformat(given.strip()) if isinstance(given, str) else given
    except ValueError:
        at = None
    if isinstance(at, date) and not isinstance(at, datetime):
        at = datetime.combine(at, time())
    if not isinstance(at, datetime):
        raise RequestError(
            f"{name} must be a datetime, or a text such as 2013-02-08 or 2013-02-08T05:15 (UTC); found {given!r}"
        )
    return pa.scalar(at if at.tzinfo else at.replace(tzinfo=UTC), kind)
