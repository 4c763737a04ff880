"""The views of the ledgers, shared by all requests of the process.

Reading and folding a long ledger is the cost of a page. A `Ledger` reads only new events, so the process keeps one per
pipeline, and a view is made once per ledger version.
"""

from pathlib import Path
from threading import Lock

from cachetools import LRUCache

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.wall_clock import now_ms

MAX_LEDGERS = 32


class _Kept:
    """One ledger. It is for one thread, so the lock is held while it reads."""

    def __init__(self, uri: str) -> None:
        self._lock = Lock()
        self._uri = uri
        self._open()

    def view(self) -> LedgerView:
        with self._lock:
            if _directory_of(self._uri) != self._directory:
                self._open()  # the lake was removed, or made anew
            return self._ledger.view()

    def _open(self) -> None:
        self._directory = _directory_of(self._uri)
        self._ledger = Ledger(self._uri, now_ms=now_ms)


def _directory_of(uri: str) -> int | None:
    """Return the number of the ledger's directory; None if it does not exist, or is in an object store."""
    try:
        return Path(uri, "_delta_log").stat().st_ino
    except (OSError, ValueError):
        return None


class Views:
    """The newest views of up to `most` ledgers; the one that was used least recently is dropped first."""

    def __init__(self, most: int = MAX_LEDGERS) -> None:
        self._lock = Lock()
        self._kept: LRUCache[str, _Kept] = LRUCache(most)

    def view(self, lake: Lake, pipeline: str) -> LedgerView:
        """Return the newest view of a pipeline's ledger.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        uri = lake.ledger(pipeline)
        with self._lock:
            kept = self._kept.setdefault(uri, _Kept(uri))
        return kept.view()
