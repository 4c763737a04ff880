"""Files of copies that nothing needs any more: replaced files of current tables, and files of the cache of a log.

Both can be made again, so no ledger records their removal. The files are listed before the ledgers and the tables are
read: a file that is written meanwhile is not among them.
"""

import logging
from collections.abc import Sequence
from typing import Final

from jobs.durations import UNIT_MS
from jobs.lake.lake import CURRENT
from jobs.lake.leftover_files import UPSTREAM, LakeFiles, LeftoverFile
from jobs.planning.request_context import RequestContext, holders
from jobs.publishing.current_tables import left_tables
from jobs.reading.upstream_place import UpstreamPlace
from windowlib.errors import HindcastError

log = logging.getLogger(__name__)

WRITING_MS: Final = UNIT_MS["d"]
"""A file that is younger may belong to a process that commits or reads it next, whatever age a person gives."""


def replaced_files(
    work: RequestContext, files: LakeFiles, *, older_than_ms: int, writing_ms: int = WRITING_MS
) -> tuple[LeftoverFile, ...]:
    """Return the files of copies that nothing needs any more.

    Of a current table: a file that a commit of that age or older has replaced, and a file of a killed process, which no
    commit names; of one that the pipeline file does not name any more, all files, when the newest has that age. Of the
    cache of a log that is a table of another pipeline: a file of that age that the log has not had since that time.
    While a process works on a request of the pipeline, all files of the cache stay. A file of the cache, without a
    commit, or of a table that the pipeline file does not name, stays for `writing_ms` in any case.

    Raises:
        StoreError: the lake or a table cannot be read.
        LedgerError: the ledger of the pipeline cannot be read.
    """
    listed, now_ms = files.listed_copies(), work.ledger.now_ms()
    left = {f"{CURRENT}{table}" for table in left_tables(work)}
    listed = [file for file in listed if file.table not in left]
    tables = sorted({file.table for file in listed} - {UPSTREAM})
    named, expired = files.named(tables), files.expired(tables, older_than_ms=older_than_ms)
    limit_ms = now_ms - max(older_than_ms, writing_ms)
    old = [file for file in listed if file.modified_ms <= limit_ms]
    cached = [file for file in old if file.table == UPSTREAM]
    unneeded = {file.path for file in old if file.table != UPSTREAM and file.path not in named}
    unneeded |= expired | {file.path for file in _unneeded(work, cached, since_ms=limit_ms)}
    whole = files.listed_below(left)
    young = {file.table for file in whole if file.modified_ms > limit_ms}
    return (*(file for file in listed if file.path in unneeded), *(file for file in whole if file.table not in young))


def _unneeded(work: RequestContext, cached: Sequence[LeftoverFile], *, since_ms: int) -> list[LeftoverFile]:
    """Return the cached files that the log has not had since an instant; none if that is not known."""
    if not cached or any(holders(work, request) for request in work.ledger.view().open_requests()):
        return []
    needed: frozenset[str] = frozenset()
    if work.pipeline.log.pipeline is not None:
        try:
            needed = UpstreamPlace(lake=work.lake, pipeline=work.pipeline).files_since(since_ms)
        except HindcastError as error:
            log.warning("the cached files of the log stay, because the log cannot be opened: %s", error)
            return []
    return [file for file in cached if file.path not in needed]
