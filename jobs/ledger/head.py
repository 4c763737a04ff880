"""The head of a ledger: a file that names the version of its newest event and the hash of that event.

A Delta table whose newest commit file was removed looks like a table that never had this commit. So each write of the
ledger also writes a head file, after its commit, and each reader compares it with the table. The file is
`_head/<version>.json` in the ledger's directory; readers take the greatest version. The commit of a version has one
winner, so each head file has one writer, and no writer replaces a newer head by an older one.

If a writer is killed between its commit and its head file, the head is one version behind. The next write mends that.

The commits of a chunk store the head in their metadata, too (`heads_in_commits`), in case the head file is lost.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from jobs.durability import durable_files
from jobs.lake.damage import one_line, reading
from jobs.lake.delta_tables import open_newest
from jobs.lake.durable_commits import LAST_CHECKPOINT, UNAWAITED, added_paths, log_files, sync_commits
from jobs.ledger.chain import event_hash
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.storage import make_directory, names_in, read_bytes, remove_file, write_bytes
from windowlib.errors import LedgerError, StoreError
from windowlib.records.tables import TALLIES

DIRECTORY = "_head"
METADATA = "hindcast.ledger"
"""The name of the head in the metadata of commits."""
_NAME = re.compile(r"(\d{20})\.json")
RECENT_COMMITS = 20
"""So many commits of a table are searched for the newest one that stores a head."""
_NEVER_CHANGE = "Files of a ledger do not change after they were written, so nothing else is to be restored"
_READS = 20
"""A reader lists the directory again if another process has removed the file that it found, at most so many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The version of the newest event of a ledger, and its hash."""

    version: int
    tip: str

    def metadata(self) -> dict[str, str]:
        """Return what the next commit of a table stores of the head, so that the head has a third place."""
        return {METADATA: f"{self.version} {self.tip}"}

    def encoded(self) -> bytes:
        """Return the content of the head file, with a hash of itself."""
        content = asdict(self)
        return json.dumps(content | {"hash": event_hash(content)}, sort_keys=True).encode("ascii")


def head_of(metadata: Mapping[str, Any]) -> Head | None:
    """Return the head that the metadata of a commit stores; None if it stores none."""
    version, _, tip = str(metadata.get(METADATA, "")).partition(" ")
    return Head(version=int(version), tip=tip) if version.isascii() and version.isdigit() and tip else None


def recovered_event(lost: Head, *, who: str, reason: str) -> LedgerEvent:
    """Return the `recovered` event: the ledger goes on without its commits up to the head `lost`, which were lost."""
    details = {"lost_version": lost.version, "lost_hash": lost.tip}
    return LedgerEvent(kind=EventKind.RECOVERED, who=who, reason=reason, details=details)


def lost_head(event: LedgerEvent) -> Head | None:
    """Return the head of the lost commits that a `recovered` event names; None for other events.

    The versions from that of the event to that of the head were lost, and are written again by other commits.
    """
    if event.kind is not EventKind.RECOVERED:
        return None
    return Head(version=event.details["lost_version"], tip=event.details["lost_hash"])


def read_head(uri: str) -> Head | None:
    """Return the newest head of a ledger; None if it has none.

    Raises LedgerError: the file cannot be read, or its content is damaged.
    """
    path = f"{uri}/{DIRECTORY}"
    for left in reversed(range(_READS)):
        try:
            names = _names(uri)
            if not names:
                return None
            path = _path(uri, max(names))
            return _decoded(uri, path, read_bytes(path))
        except FileNotFoundError as error:
            if left:
                continue  # a newer head has replaced it
            raise LedgerError(
                f"head file {path} of ledger {uri} is listed, and cannot be opened. Run the command again"
            ) from error
        except OSError as error:
            raise LedgerError(f"the head file of ledger {uri} cannot be read: {one_line(error)}") from error
    raise AssertionError("the loop returns or raises")


def advice_without(uri: str, file: str | None = None) -> str:
    """Return what to do about a file of a ledger that has lost its content; None: about a commit file after all events.

    A command reports a commit after it has written its head. So most likely no command has reported a commit after the
    head. If the head could not be written, one has: the advice begins with a copy.
    """
    from jobs.ledger.lost_commits import lost_commits

    backup = "Restore the ledger's directory from a backup"
    if file is not None:
        backup = f"Put it back from any backup of the ledger's directory that has it. {_NEVER_CHANGE}"
    try:
        head = read_head(uri)
    except LedgerError:
        return backup
    lost = lost_commits(uri)
    if head is not None and lost and lost[-1] <= head.version:
        return (
            f"Lost or damaged commit files in _delta_log: {', '.join(map(str, lost))}. `hindcast recover PIPELINE "
            "--reason …` writes them again, if the data files of these commits are there. Otherwise, put both back "
            f"from any backup of the ledger's directory that has them. {_NEVER_CHANGE}"
        )
    later = [path for version, path in log_files(uri) if head is not None and version > head.version]
    files = {str(path) for path in later} | {str(later[0].with_name(LAST_CHECKPOINT)) for _ in later[:1]}
    for commit in later:
        with suppress(ValueError, OSError):
            files |= {f"{uri}/{path}" for path in added_paths(commit) if commit.suffix == ".json"}
    if head is None or not later or (file is not None and file not in files):
        return backup
    return (
        f"The head file names version {head.version}. It is written before a commit is reported, so most likely no "
        "command has reported the commits after this version. If the machine has lost power, copy the directory of the "
        f"ledger first; then remove {', '.join(sorted(path.name for path in later))} and {LAST_CHECKPOINT} from "
        "_delta_log, and run the command again"
    )


def heads_in_commits(uri: str) -> tuple[Head, ...]:
    """Return the heads that the newest `RECENT_COMMITS` commits of the pipeline's tallies store, the newest first.

    Raises StoreError: the table cannot be read.
    """
    from deltalake.exceptions import TableNotFoundError

    table = f"{uri.rpartition('/')[0]}/{TALLIES}"
    with reading(table):
        try:
            commits = open_newest(table).delta.history(RECENT_COMMITS)
        except TableNotFoundError:
            return ()
    return tuple(head for head in map(head_of, commits) if head is not None)


def write_head(uri: str, head: Head, *, instead_of: Head | None = None) -> None:
    """Write the head of a version when the disk has it, and remove the heads of earlier versions and `instead_of`.

    Raises:
        LedgerError: the file cannot be written.
        StoreError: the disk has not confirmed the commit.
    """
    sync_commits({uri: max(head.version - UNAWAITED - 1, -1)})
    name, directory = _name(head.version), f"{uri}/{DIRECTORY}"
    replaced = None if instead_of is None else _name(instead_of.version)
    try:
        make_directory(directory)
        with durable_files() as put:
            put(f"{directory}/{name}", partial(write_bytes, content=head.encoded()))
        for other in _names(uri):
            if other < name or (other == replaced and other != name):
                remove_file(_path(uri, other))
    except (OSError, StoreError) as error:
        raise LedgerError(
            f"ledger {uri} has version {head.version}, but its head file {name} was not written: {error}. Nothing is "
            "lost; until the next write, the loss of that version could not be noticed"
        ) from error


def _name(version: int) -> str:
    return f"{version:020}.json"


def _names(uri: str) -> list[str]:
    return [name for name in names_in(f"{uri}/{DIRECTORY}") if _NAME.fullmatch(name)]


def _path(uri: str, name: str) -> str:
    return f"{uri}/{DIRECTORY}/{name}"


def _decoded(uri: str, path: str, content: bytes) -> Head:
    damaged = LedgerError(
        f"head file {path} of ledger {uri} is damaged. Put it back from a copy; without a copy, remove it: the next "
        "write of the ledger makes a new one"
    )
    try:
        stored = json.loads(content)
        head = Head(version=stored["version"], tip=stored["tip"])
        is_whole = head.encoded() == content and path.endswith(f"/{_name(head.version)}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged from error
    if not is_whole:
        raise damaged
    return head
