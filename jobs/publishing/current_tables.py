"""Plain Delta tables of exactly what readers see (`publish.current_tables`), for readers without Hindcast.

A table is a projection of the ledger. Each commit stores which publication or rollback it shows, and moves the table
from there to the newest one in one step (`jobs.publishing.table_move`). So a move that a killed process has left out is
made up for by the next one, and a second move to the same publication does nothing. A table that shows a publication
that the ledger has lost is written anew.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from jobs.lake.damage import ADVICE, reading, refuse_outage
from jobs.lake.durable_commits import sync_newest
from jobs.lake.lake import CURRENT
from jobs.lake.store import table_columns
from jobs.ledger.publications import PublicationId, newest_id
from jobs.planning.request_context import RequestContext
from jobs.storage import names_in
from windowlib.errors import HindcastError, StoreError

MADE_AGAIN: Final = "Remove its directory; the next run, publication or rollback writes the table again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """A current table: what it shows, and what it is to show by the view of the ledger (`newest`).

    `problem` tells why the log of the table cannot be read, and what to do; empty if it can. It shows nothing then.
    `is_left` tells that the pipeline file does not name the table any more, so that no publication moves it.
    """

    table: str
    uri: str
    shows: PublicationId
    newest: PublicationId
    problem: str = ""
    is_left: bool = False

    @property
    def is_behind(self) -> bool:
        """Whether it does not show the newest publication or rollback, or will not show the next one."""
        return bool(self.problem) or self.is_left or self.shows != self.newest

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "uri": self.uri, "shows": self.shows.seq or None, "behind": self.is_behind}

    def __str__(self) -> str:
        if self.is_left:
            return (
                f"current table {self.table} is not in the pipeline file any more, so no publication moves it, and its "
                f"readers see old rows: it shows {self.shows}. `hindcast clean` removes it later; or name it in "
                "publish.current_tables again"
            )
        if self.problem:
            return f"current table {self.table} cannot be read: {self.problem}"
        if not self.is_behind:
            return f"current table {self.table} shows {self.shows}, the newest"
        other = "another " if self.shows.seq == self.newest.seq else ""
        return (
            f"current table {self.table} is behind: it shows {self.shows}, and readers of the ledger see "
            f"{other}{self.newest}. The next run, publication or rollback moves it"
        )


def damaged(uri: str, error: StoreError) -> str:
    """Return why a current table cannot be read. It can be made again, so it needs no copy and no `hindcast mend`.

    Raises StoreError: the object store does not answer.
    """
    refuse_outage(uri, error)
    return str(error).replace(ADVICE, MADE_AGAIN)


def current_tables(work: RequestContext) -> tuple[Current, ...]:
    """Return which publication each current table of the pipeline file shows, and each that has left the file.

    Raises StoreError: the object store does not answer.
    """
    left = (replace(_current(work, name), is_left=True) for name in left_tables(work))
    return (*(_current(work, name) for name in _names(work)), *left)


def left_tables(work: RequestContext) -> tuple[str, ...]:
    """Return the tables of which there is a current table that the pipeline file does not name any more.

    What a person has put there, such as a copy of a current table with another name, is no current table.
    Raises StoreError: the object store does not answer.
    """
    place = work.lake.ledger(work.pipeline.name).rpartition("/")[0]
    with reading(place):
        stored = {*names_in(place)}
        left = sorted(name for name in stored.difference(_names(work)) if f"{CURRENT}{name}" in stored)
        return tuple(name for name in left if names_in(f"{place}/{CURRENT}{name}/_delta_log"))


def _names(work: RequestContext) -> tuple[str, ...]:
    return () if work.pipeline.publish is None else work.pipeline.publish.current_tables


def _current(work: RequestContext, table: str) -> Current:
    from jobs.lake.plain_table import open_plain

    uri = work.lake.table(work.pipeline.name, f"{CURRENT}{table}")
    plain, problem = None, ""
    try:
        plain = open_plain(uri)
    except StoreError as error:
        problem = damaged(uri, error)
    view = work.ledger.view()  # is read after the table, so it has the publication that the table shows
    shows = PublicationId() if plain is None else PublicationId(*plain.shows)
    try:
        is_written = bool(table_columns(work.lake.table(work.pipeline.name, table)))
    except StoreError as error:  # its log is damaged, which `verify` tells
        refuse_outage(uri, error)
        is_written = True
    newest = newest_id(view.publications) if is_written else shows
    return Current(table=table, uri=uri, shows=shows, newest=newest, problem=problem)


def move_current_tables(work: RequestContext) -> None:
    """Move each current table of the pipeline file to the newest publication or rollback of the ledger.

    A table that is there already is awaited, because the process that has moved it may have been killed before the disk
    had its commit.
    Raises StoreError: a table could not be moved. The message tells that the ledger has the publication.
    """
    if not _names(work):
        return
    from jobs.publishing.table_move import move_table  # imports Arrow

    errors: list[HindcastError] = []
    for name in _names(work):
        try:
            current = _current(work, name)
            if current.problem:
                raise StoreError(current.problem)
            if current.is_behind:
                move_table(work, current.table, uri=current.uri)
            else:
                sync_newest(current.uri)
        except HindcastError as error:
            errors.append(error)  # the other tables are moved all the same
    if errors:
        raise StoreError(
            f"readers of the ledger of pipeline {work.pipeline.name} see its newest publication, but a current table "
            f"was not moved to it: {'; '.join(map(str, errors))}. Run the same command again when the cause is gone"
        ) from errors[0]
