"""A snapshot of what a process has read of a ledger: its fold, the hash of the last event, and the files read.

A snapshot is a cache on disk, and can be deleted at any time. Readers use it as they use what their own process
remembers (jobs.ledger.history): only if the table still has each data file that was read, with the same size, times and
inode, and events of earlier versions in no other file. An object store shows no inode: there, the list of files must
have each file with the same size and time. The events after the snapshot continue its chain of hashes, and the head of
the ledger names the last one. `hindcast verify` uses no snapshot.

The file is `_snapshot/<version>-<code>.zst` in the ledger's directory: the SHA-256 of all that follows, a line of JSON
(`Header`), and blocks that zstd has compressed: first the fold as JSON, then the lines of its mappings
(jobs.ledger.plain_codec). `code` is a hash of the source of the fold, so a Hindcast whose rules may differ ignores the
file. A damaged snapshot is ignored, too: the whole file is compared with its hash before it is used. A line is decoded
when its value is first read.
"""

import gc
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from jobs.ledger.checked_details import CheckedDetails, event_codec
from jobs.ledger.events import LedgerEvent
from jobs.ledger.history import EventHistory
from jobs.ledger.plain_codec import Codec, Codecs, plain_json
from jobs.ledger.projection import Projection
from jobs.ledger.run_slots import SLOTS_CODEC, RunSlot
from jobs.storage import FileStamp, hidden_file, make_directory, names_in, read_bytes, remove_file, write_bytes
from windowlib.libraries import pa

DIRECTORY: Final = "_snapshot"
RECENT_TIPS: Final = 200
"""So many versions of a snapshot keep the hash of their last event, for heads that are a little older."""
_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{16})\.zst")
_UNFINISHED: Final = re.compile(rf"\.({_NAME.pattern})\.[0-9a-f]{{32}}")
"""The name of a file that `hidden_file` has begun. A killed process leaves it."""
BLOCK_LINES: Final = 250
"""A block of a snapshot has so many lines."""
_DIGEST_BYTES: Final = 64
_READS: Final = 3
"""A reader lists the directory again if another process has removed the file that it found, at most so many times."""
_SOURCES: Final = ("jobs/ledger", "jobs/runs.py", "jobs/lake/rewrites.py")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a snapshot is of. `blocks` are the numbers of bytes of each block, compressed and before."""

    table_id: str
    version: int
    events: int
    tip: str
    tips: Mapping[str, str]
    given_up: Mapping[str, tuple[int, int]]
    files: Mapping[str, FileStamp]
    blocks: Sequence[tuple[int, int]]


def read_snapshot(uri: str) -> EventHistory | None:
    """Return what the newest usable snapshot of a ledger holds; None if there is none, or if it is damaged.

    The caller decides whether the table still has its files.
    """
    for _ in range(_READS):
        try:
            names = _own_names(uri)
            if not names:
                return None
            return _decoded(read_bytes(f"{uri}/{DIRECTORY}/{max(names)}"), uri)
        except FileNotFoundError:
            continue  # a newer one has replaced it
        except Exception as error:  # noqa: BLE001 - a damaged file may raise anything, and the events tell the same
            _log.info("the snapshot of ledger %s is ignored, and will be made again: %r", uri, error)
            return None
    return None


def write_snapshot(uri: str, history: EventHistory) -> None:
    """Store what was read of a ledger, and remove the other snapshots of this version of Hindcast.

    If the file cannot be written, nothing is lost: the next reader reads the events.
    """
    try:
        make_directory(f"{uri}/{DIRECTORY}")  # first, because it fails in a lake that nobody may write to
        content = _encoded(history, uri)
        name = f"{history.known:020}-{code_digest()}.zst"
        with hidden_file(f"{uri}/{DIRECTORY}/{name}") as hidden:
            write_bytes(hidden, content)
        for other in _own_names(uri):
            if other != name:  # one of a later version is of commits that the ledger has lost
                remove_file(f"{uri}/{DIRECTORY}/{other}")
    except (OSError, UnicodeEncodeError) as error:  # a text may have half a character
        _log.info("the snapshot of ledger %s was not written: %s", uri, error)


def remove_old_snapshots(uri: str, *, dry_run: bool) -> tuple[str, ...]:
    """Remove all snapshots but the newest of this version of Hindcast, and unfinished older ones; return their names.

    Raises OSError: the directory cannot be listed, or a file cannot be removed.
    """
    newest = max(_own_names(uri), default="")
    unfinished = filter(_UNFINISHED.fullmatch, names_in(f"{uri}/{DIRECTORY}"))
    old = tuple(
        sorted([*(name for name in _names(uri) if name != newest), *(name for name in unfinished if name[1:] < newest)])
    )
    if not dry_run:
        for name in old:
            remove_file(f"{uri}/{DIRECTORY}/{name}")
    return old


@cache
def code_digest() -> str:
    """Return a hash of the source of the fold: a snapshot is used by no other code than that which wrote it."""
    root = Path(__file__).parents[2]
    files = (
        file for place in _SOURCES for file in ([root / place] if place.endswith(".py") else _modules(root / place))
    )
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _modules(package: Path) -> list[Path]:
    return sorted(package.glob("*.py"))


def _codecs(uri: str, line_at: Callable[[int], bytes] | None = None) -> Codecs:
    own: dict[Any, Codec] = {LedgerEvent: event_codec(CheckedDetails(uri)), dict[str, RunSlot]: SLOTS_CODEC}
    return Codecs(own, source=f"a snapshot in {uri}/{DIRECTORY}", line_at=line_at)


def _encoded(history: EventHistory, uri: str) -> bytes:
    codecs = _codecs(uri)
    encode = codecs.of(Projection).encode
    assert encode is not None, "a dataclass is no plain data"
    history.project.runs.settle()
    fold, lines = plain_json(encode(history.project)), codecs.lines
    blocks = [fold, *(b"\n".join(lines[at : at + BLOCK_LINES]) for at in range(0, len(lines), BLOCK_LINES))]
    compressed = [pa.Codec("zstd").compress(block, asbytes=True) for block in blocks]
    header = Header(
        table_id=history.table_id or "",
        version=history.known,
        events=history.count,
        tip=history.tip,
        tips={str(version): history.tips[version] for version in sorted(history.tips)[-RECENT_TIPS:]},
        given_up={tip: (lost.start, lost.stop) for tip, lost in history.given_up.items()},
        files=history.files,
        blocks=[(len(small), len(block)) for small, block in zip(compressed, blocks, strict=True)],
    )
    rest: bytes = b"".join([json.dumps(asdict(header), sort_keys=True).encode("utf-8"), b"\n", *compressed])
    return hashlib.sha256(rest).hexdigest().encode("ascii") + rest


def _decoded(content: bytes, uri: str) -> EventHistory:
    """Return the history of a file's content.

    Raises:
        ValueError, KeyError, TypeError and others: the content is damaged.
    """
    digest, rest = content[:_DIGEST_BYTES], memoryview(content)[_DIGEST_BYTES:]
    if hashlib.sha256(rest).hexdigest().encode("ascii") != digest:
        raise ValueError("its content does not have the hash that it stores")
    end = content.index(b"\n", _DIGEST_BYTES)
    header = Header(**json.loads(content[_DIGEST_BYTES:end]))
    blocks = _Blocks(content, end + 1, header.blocks)
    with _collector_paused():
        decode = _codecs(uri, blocks.line_at).of(Projection).decode
        assert decode is not None, "a dataclass is no plain data"
        projection: Projection = decode(json.loads(blocks.read(0)))
    tips = {int(version): tip for version, tip in header.tips.items()}
    return EventHistory(
        table_id=header.table_id,
        project=projection,
        tip=header.tip,
        known=header.version,
        count=header.events,
        begun_after=header.version,
        saved=header.events,
        tips=tips,
        given_up={tip: range(start, stop) for tip, (start, stop) in header.given_up.items()},
        files={path: (stamp[0], stamp[1], stamp[2], stamp[3]) for path, stamp in header.files.items()},
    )


class _Blocks:
    """The blocks of a snapshot. A block of lines is decompressed when the first of them is read."""

    def __init__(self, content: bytes, start: int, sizes: Sequence[tuple[int, int]]) -> None:
        self._content = content
        self._starts = [*accumulate((compressed for compressed, _ in sizes), initial=start)]
        self._sizes = sizes
        self._lines: dict[int, list[bytes]] = {}

    def read(self, number: int) -> bytes:
        start, (compressed, size) = self._starts[number], self._sizes[number]
        block: bytes = pa.Codec("zstd").decompress(self._content[start : start + compressed], size, asbytes=True)
        return block

    def line_at(self, place: int) -> bytes:
        number, at = divmod(place, BLOCK_LINES)
        if number not in self._lines:
            self._lines[number] = self.read(number + 1).split(b"\n")
        return self._lines[number][at]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector. Decoding makes many objects and no garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _own_names(uri: str) -> list[str]:
    return [name for name in _names(uri) if name.endswith(f"-{code_digest()}.zst")]


def _names(uri: str) -> list[str]:
    return [name for name in names_in(f"{uri}/{DIRECTORY}") if _NAME.fullmatch(name)]
