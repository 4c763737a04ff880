"""The details of `checked` events that a fold began after: they stay in the ledger's table until somebody reads one.

A snapshot of the fold holds the verdict of each run, and a hash of the details instead of their text: a year of slices
has 5 MB of it, and most readers need no single check.
"""

import hashlib
from dataclasses import MISSING, fields
from threading import Lock
from typing import Any, Final

from typing_extensions import override

from jobs.lake.arrow_types import arrow_table
from jobs.lake.damage import one_line, table_errors
from jobs.lake.delta_tables import open_delta
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import open_parquet
from jobs.ledger.events import EventKind, LedgerEvent, checks_fingerprint_of
from jobs.ledger.plain_codec import Codec
from jobs.ledger.stored_details import EventPlace, StoredDetails
from jobs.storage import file_system
from windowlib.errors import LedgerError
from windowlib.libraries import pc

_LAST: Final = "checks_fingerprint"
_DEFAULTS: Final = {column.name: column.default for column in fields(LedgerEvent) if column.default is not MISSING}


class CheckedDetails:
    """The texts of all `checked` events of a ledger, read once, when the first of them is needed."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._lock = Lock()
        self._texts: dict[tuple[int, int], Any] | None = None

    def text(self, seq: int, ordinal: int, digest: str) -> str:
        """Return the text of an event.

        Raises LedgerError: the table cannot be read, or has another text than the fold has read.
        """
        with self._lock:
            if self._texts is None:
                self._texts = self._read()
        stored = self._texts.get((seq, ordinal))
        text = None if stored is None else str(stored.as_py())
        if text is None or text_digest(text) != digest:
            what = "lost" if text is None else "changed"
            raise LedgerError(
                f"ledger {self.uri} is damaged at event {ordinal} of version {seq} (checked): its details were {what} "
                "after they were read for a snapshot. Restore the ledger's directory from a backup"
            )
        return text

    def _read(self) -> dict[tuple[int, int], Any]:
        with table_errors(self._unreadable, also=(ValueError, KeyError, TypeError)):
            table = open_delta(self.uri)
            system, root = file_system(table.table_uri)
            texts: dict[tuple[int, int], Any] = {}
            for path in arrow_table(table.get_add_actions(flatten=True))["path"].to_pylist():
                with system.open_input_file(place_of(root, path)) as data:
                    columns = ["seq", "ordinal", "event", "details"]
                    rows = open_parquet(data).read(columns=columns, use_threads=False)
                rows = rows.filter(pc.equal(rows["event"], EventKind.CHECKED.value))
                numbers = zip(rows["seq"].to_pylist(), rows["ordinal"].to_pylist(), strict=True)
                texts.update(zip(numbers, rows["details"], strict=True))
            return texts

    def _unreadable(self, error: BaseException) -> LedgerError:
        return LedgerError(f"ledger {self.uri} cannot be read: {one_line(error)}. Restore its directory from a backup")


class LaterDetails(StoredDetails):
    """The details of a `checked` event whose text is read later."""

    __slots__ = ("_digest", "_fingerprint", "_place", "_source")

    def __init__(self, source: CheckedDetails, place: tuple[int, int], *, digest: str, fingerprint: str | None) -> None:
        super().__init__("", EventPlace(source.uri, *place, EventKind.CHECKED.value))
        self._source = source
        self._place = place
        self._digest = digest
        self._fingerprint = fingerprint

    @property
    @override
    def text(self) -> str:
        if not self._text:
            self._text = self._source.text(*self._place, self._digest)
        return self._text

    @property
    def digest(self) -> str:
        return self._digest

    @override
    def last(self, name: str) -> Any:
        return self._fingerprint if name == _LAST else super().last(name)


def text_digest(text: str) -> str:
    """Return the hash of the text of details."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def event_codec(source: CheckedDetails) -> Codec:
    """Return the codec of the `checked` events of a fold. Their details are read from `source` later."""

    def encode(event: LedgerEvent) -> list[Any]:
        details = event.details
        if not isinstance(details, StoredDetails):
            raise TypeError(f"the details of event {event.ordinal} of version {event.seq} were not read from a table")
        digest = details.digest if isinstance(details, LaterDetails) else text_digest(details.text)
        columns = {name: getattr(event, name) for name, default in _DEFAULTS.items()}
        filled = {name: value for name, value in columns.items() if value != _DEFAULTS[name]}
        return [event.kind.value, filled, digest, checks_fingerprint_of(event)]

    def decode(plain: list[Any]) -> LedgerEvent:
        kind, columns, digest, fingerprint = plain
        place = columns["seq"], columns.get("ordinal", 0)
        details = LaterDetails(source, place, digest=digest, fingerprint=fingerprint)
        return LedgerEvent(kind=EventKind(kind), details=details, **columns)

    return Codec(encode, decode)
