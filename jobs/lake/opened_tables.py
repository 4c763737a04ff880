"""The Delta tables that a piece of work has opened. It opens each table once and then reads the new commits only.

Opening a table reads its newest checkpoint and all commits after it, 3 to 10 ms. Reading the new commits takes 1 ms.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jobs.lake.delta_tables import MOST_KEPT, drop_kept, keep, read_new_commits

if TYPE_CHECKING:
    from deltalake import DeltaTable

Listing = TypeVar("Listing")


@dataclass(slots=True)
class OpenedTables:
    """Tables by their place; None if there was no table. Those in `behind` may have new commits."""

    found: "dict[str, DeltaTable | None]" = field(default_factory=dict)
    behind: set[str] = field(default_factory=set)

    def get(self, uri: str, open_new: "Callable[[], DeltaTable | None]") -> "DeltaTable | None":
        """Return a table as it was at its first read, or at the last `expect_commits`."""
        table = self.found.get(uri)
        if uri in self.behind and table is not None:
            del self.found[uri]  # if the new commits cannot be read, the next call opens it again
            drop_kept(uri)
            read_new_commits(uri, table)
            keep(uri, table)
            self.found[uri] = table
        elif uri not in self.found or uri in self.behind:
            table = self.found[uri] = open_new()
        self.behind.discard(uri)
        return table


_OPENED: "ContextVar[OpenedTables | None]" = ContextVar("opened tables", default=None)


@contextmanager
def opening_tables_once() -> Iterator[None]:
    """Let readers of this thread open each table once.

    Inside, `open_table` returns a table as it was at its first read, with the commits that this thread has made since.
    """
    token = _OPENED.set(OpenedTables())
    try:
        yield
    finally:
        _OPENED.reset(token)


def opened_table(uri: str, open_new: "Callable[[], DeltaTable | None]") -> "DeltaTable | None":
    """Return a table: the opened one in `opening_tables_once`, else what `open_new` returns."""
    opened = _OPENED.get()
    return open_new() if opened is None else opened.get(uri, open_new)


class _Listings(threading.local):
    """What this thread has made of the file lists of tables, by `id` of the table, which has no hash."""

    def __init__(self) -> None:
        self.found: OrderedDict[int, tuple[DeltaTable, int, Any]] = OrderedDict()


_LISTINGS = _Listings()


def listing_of(table: "DeltaTable", make: "Callable[[DeltaTable], Listing]") -> "Listing":
    """Return what `make` makes of the file list of a table: once for a version of the table."""
    listings = _LISTINGS.found
    known = listings.pop(id(table), None)
    if known is None or known[1] != table.version():
        known = table, table.version(), make(table)
    listings[id(table)] = known
    while len(listings) > MOST_KEPT:
        listings.popitem(last=False)
    return cast("Listing", known[2])


def expect_commits(uri: str | None = None) -> None:
    """Let the next reader of a table (None: of each table) read the commits since it was opened."""
    opened = _OPENED.get()
    if opened is not None:
        opened.behind.update(opened.found if uri is None else [uri])


def forget_table(uri: str) -> None:
    """Let the next reader open a table again: a commit to it has failed, or has changed its columns."""
    drop_kept(uri)
    opened = _OPENED.get()
    if opened is not None:
        opened.found.pop(uri, None)
