"""The views of the ledgers, shared by all requests of the process.

Reading and folding a long ledger is the cost of a page. A `Ledger` reads only new events, so the process keeps one per
pipeline, and a view is made once per ledger version.
"""

from threading import Lock

from jobs.lake.delta_tables import commit_stamp
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.wall_clock import now_ms


class _Kept:
    """One ledger. It is for one thread, so the lock is held while it reads."""

    def __init__(self, uri: str) -> None:
        self._lock = Lock()
        self._uri = uri
        self._ledger = Ledger(uri, now_ms=now_ms)
        self._newest = 0, commit_stamp(uri, 0)

    def view(self) -> LedgerView:
        with self._lock:
            version, stamp = self._newest
            if commit_stamp(self._uri, version) != stamp:  # the lake was removed, or made anew
                self._ledger, version = Ledger(self._uri, now_ms=now_ms), -1
            view = self._ledger.view()
            if view.version != version:  # else the stamp is that of what was read: the stored one may be newer
                self._newest = view.version, commit_stamp(self._uri, view.version)
            return view


class Views:
    """The newest views of the ledgers that were asked for. Pages ask for those of pipeline files only."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[str, _Kept] = {}

    def view(self, lake: Lake, pipeline: str) -> LedgerView:
        """Return the newest view of a pipeline's ledger. Raises LedgerError: the ledger cannot be read."""
        uri = lake.ledger(pipeline)
        with self._lock:
            if uri not in self._kept:
                self._kept[uri] = _Kept(uri)
            kept = self._kept[uri]
        return kept.view()
