"""The details of a stored event: JSON that is decoded, and compared with the types of its names, when it is read."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple

from typing_extensions import override

from jobs.ledger.chain import CONTENT_ERRORS, Row
from jobs.runs import CheckpointForm, CheckResult, LogCoordinates, WarmUp
from windowlib.errors import LedgerError

_TYPES: Final[Mapping[str, Any]] = {
    # of a run
    "digests": Mapping[str, str],
    "log": LogCoordinates,
    "warnings": Sequence[str],
    "clamped": int,
    "extras": Mapping[str, str | None],
    "checkpoint": CheckpointForm,
    "state_columns": Sequence[Mapping[str, Any]],
    "filtered": int,
    "duplicate": int,
    "chain_start": bool,
    "warms_up": bool,
    "owns_checks": bool,
    "equal": bool,
    # of checks
    "checks": Sequence[CheckResult],
    "checks_fingerprint": str | None,
    "by_arguments": bool,
    "basis": str | None,
    "runs": Mapping[str, Sequence[CheckResult]],
    # of a request
    "kind": str,
    "from_ms": int | None,
    "to_ms": int | None,
    "fresh": bool,
    "spec": str,
    "unarrived": Mapping[str, str] | None,
    "changes": Mapping[str, LogCoordinates] | None,
    "warm_up": WarmUp | None,
    "compared_with": Mapping[str, str | None] | None,
    "repairs": Mapping[str, str] | None,
    "by": str | None,
    "slices": Sequence[str],
    "lease_id": str,
    "length_ms": int,
    "holder": Mapping[str, Any] | None,
    # of a publication
    "undoes": int,
    "publication": int,
    "published_by": str | None,
    "told_by": str | None,
    # of the log, and of lost commits
    "table_id": str,
    "version": int,
    "commit": str,
    "lost_version": int,
    "lost_hash": str,
}  # fmt: skip
"""The types of the names that events have. A name that is not here belongs to a newer Hindcast, or is checked by its
reader."""


@cache
def _check_of(name: str) -> Callable[[Any, str], None]:
    from jobs.ledger.typed_json import type_check  # readers that decode no details do not need it

    return type_check(_TYPES[name])


class EventPlace(NamedTuple):
    """The place of a stored event, for messages."""

    uri: str
    seq: int
    ordinal: int
    kind: str

    @classmethod
    def of(cls, uri: str, row: Row) -> "EventPlace":
        return cls(uri, row["seq"], row["ordinal"], row["event"])

    def wrong(self, what: str) -> LedgerError:
        """Return the error for an event whose hash is right, but whose content this Hindcast does not write."""
        return LedgerError(
            f"ledger {self.uri} has wrong content in event {self.ordinal} of version {self.seq} ({self.kind}): {what}. "
            "The hashes are right, so a program has written it so. If that was a newer Hindcast, use its version; "
            "otherwise, restore the ledger's directory from a backup"
        )


class StoredDetails(Mapping[str, Any]):
    """The details of a stored event, decoded when a value is read for the first time.

    A `checked` event has 10 kB of details. Most readers of a ledger need the verdict of a run, and no single check.
    """

    __slots__ = ("_event", "_found", "_text")

    def __init__(self, text: str, event: EventPlace) -> None:
        self._text = text
        self._event = event
        self._found: dict[str, Any] | None = None

    def _decoded(self) -> dict[str, Any]:
        if self._found is None:
            try:
                decoded = json.loads(self.text)
            except CONTENT_ERRORS as error:
                raise self.wrong(f"{error!r:.300}") from error
            if not isinstance(decoded, dict):
                raise self.wrong(f"its details are {decoded!r:.100}, and must be an object of JSON")
            self._check(decoded)
            self._found = _shared(decoded)
        return self._found

    def _check(self, values: Mapping[str, object]) -> None:
        try:
            for name, value in values.items():
                if name in _TYPES:
                    _check_of(name)(value, name)
        except TypeError as error:
            raise self.wrong(str(error)) from error

    def wrong(self, what: str) -> LedgerError:
        return self._event.wrong(what)

    @property
    def text(self) -> str:
        return self._text

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        return self._decoded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __repr__(self) -> str:
        return repr(self._decoded())

    @override
    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of `name`, or `default`. A text without the name (an identifier) is not decoded."""
        if self._found is None and name.isascii() and name.isidentifier() and f'"{name}":' not in self.text:
            return default
        return self._decoded().get(name, default)

    def last(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return the value of `name`, None if there is none. If it is the last name, no other value is decoded.

        The names of canonical JSON are sorted. A text inside a value has no `"` without an escape, so only a name can
        match, and only the last name of the outermost object is followed by nothing but its end.
        """
        if self._found is None and (place := self.text.rfind(quoted := f'"{name}":')) >= 0:
            with suppress(ValueError):  # of a text that is not canonical
                value, end = _DECODER.raw_decode(self.text, place + len(quoted))
                if self.text[end:] == "}":
                    self._check({name: value})
                    return value
        return self.get(name)


_DECODER = json.JSONDecoder()


def _shared(details: dict[str, Any]) -> dict[str, Any]:
    """Let the checks of all runs share equal texts. A check has the same description and arguments in every slice."""
    for check in details.get("checks", ()):
        for name, value in check.items():
            if type(value) is str:
                check[name] = sys.intern(value)
    return details
