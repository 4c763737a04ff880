"""A look at the log, its event, and the changed slices that a proposed restatement stores."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from jobs.ledger.events import EventKind, LedgerEvent, coordinates_of, slice_columns
from jobs.runs import LogCoordinates, RunResult, Sighting


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenInput:
    """The input of a slice as a look at the log found it. `removed` names a commit that removed records; else empty."""

    log: LogCoordinates
    removed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The newest comparison of the log with what the published runs read.

    At `version` of the log, every slice that was published in ledger version `seq` had the input of its run, except
    those in `changed`. `commit` is the digest of the commit file of that version. `names` maps each slice column to its
    name in the commits; it has no column in a look of an earlier version of Hindcast. `first` is `log.slice.first` of
    then: "" if there was none, and None in a look of an earlier version.
    """

    table_id: str
    version: int
    commit: str
    first: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, SeenInput] = field(default_factory=dict)
    seq: int = 0


def looked_event(look: Look, before: Look | None = None) -> LedgerEvent:
    """Return the `looked` event of a look at the log, as the difference from the newest look `before` in the ledger.

    So the ledger grows with the changes, and not with their square while nobody restates them.
    """
    known = {} if before is None else before.changed
    plain = {
        name: {"log": _plain(seen.log), "removed": seen.removed}
        for name, seen in look.changed.items()
        if known.get(name) != seen
    }
    content: dict[str, Any] = {"changed": plain}
    if before is not None:
        content = {"since": before.seq, "newly": plain, "gone": sorted(known.keys() - look.changed.keys())}
    own = {"table_id": look.table_id, "version": look.version, "commit": look.commit, "names": {**look.names}}
    return LedgerEvent(kind=EventKind.LOOKED, details=own | {"first": look.first} | content)


def look_of(event: LedgerEvent, before: Look | None) -> Look:
    """Return the look that a `looked` event records; `before` is the look of the newest such event before it."""
    details, changed = event.details, _kept(event.details, before)
    for name, seen in details["newly" if "since" in details else "changed"].items():
        changed[name] = SeenInput(log=coordinates_of(seen["log"]), removed=str(seen["removed"]))
    return Look(
        table_id=str(details["table_id"]),
        version=int(details["version"]),
        commit=str(details["commit"]),
        first=details.get("first"),
        names={**details.get("names", {})},
        changed=changed,
        seq=event.seq,
    )


def _kept(details: Mapping[str, Any], before: Look | None) -> dict[str, SeenInput]:
    """Return the changed slices of the look before that a look has, too; none if it is stored whole."""
    if "since" not in details:
        return {}
    if before is None or before.seq != details["since"]:
        raise ValueError("the look that it differs from is missing")
    gone = {*details["gone"]}
    return {name: seen for name, seen in before.changed.items() if name not in gone}


def changes_details(changes: Mapping[str, LogCoordinates]) -> dict[str, Any]:
    """Return the details by which a `requested` event stores the changed slices of a restatement."""
    return {"changes": {name: _plain(log) for name, log in changes.items()}}


def stored_changes(event: LedgerEvent) -> dict[str, LogCoordinates]:
    """Return the changed slices that a `requested` event stores; none if it opens no restatement."""
    return {name: coordinates_of(log) for name, log in (event.details.get("changes") or {}).items()}


def _plain(log: LogCoordinates) -> dict[str, Any]:
    """Return coordinates as plain data, without the digests of bytes: a look reads no byte of a data file."""
    return asdict(log) | {"file_digests": "", "log_digests": ""}


def verified_event(result: RunResult, sighting: Sighting, *, fingerprint: str, who: str) -> LedgerEvent:
    """Return the `verified` event of a run. `fingerprint` is that of the records that were read again."""
    return LedgerEvent(
        kind=EventKind.VERIFIED,
        **slice_columns(result.slice),
        run_id=result.run_id,
        attempt_id=result.attempt_id,
        who=who,
        input_fingerprint=fingerprint,
        details={"log": asdict(sighting.log), "equal": sighting.is_equal},
    )


def verified_sighting(event: LedgerEvent) -> Sighting:
    """Return the sighting that a `verified` event records."""
    return Sighting(log=coordinates_of(event.details["log"]), is_equal=bool(event.details["equal"]), seq=event.seq)
