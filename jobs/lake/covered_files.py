"""Checks that the bytes of a log's files are those that were written, whatever wrote them (law L9).

Hadoop's local file system writes a checksum file `.NAME.crc` beside each file. It covers all bytes, and `check_file`
compares them. For other files, `check_file` returns a digest of the bytes that no checksum covers: of a Parquet file
with page checksums the footer, of any other file all bytes. The first run stores it in the ledger, and each later
reading of the same path compares it. Readers of Parquet compare the page checksums themselves. A checksum file tells
nothing about a file of `_delta_log` that was exchanged together with it, so each of these has a digest.

Sources: Hadoop, ChecksumFileSystem and DataChecksum; the Parquet format, PageHeader; Thrift's compact protocol.
"""

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from windowlib.errors import LogError
from windowlib.libraries import np, pa, pafs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]

PIECE_BYTES: Final = 1 << 22
"""With 512 bytes for each checksum, these are a power of 2 of pieces."""
_KEY_BYTES: Final = 7
_DIGEST_BYTES: Final = 8
_ENTRY_BYTES: Final = _KEY_BYTES + _DIGEST_BYTES
"""15 bytes are 20 characters in base 64, without padding. So joined texts are the text of all their entries."""
_CHECKSUM_HEADER: Final = struct.Struct(">4sI")
_CHECKSUM_MAGIC: Final = b"crc\0"
_SUM_BYTES: Final = 4
_PARQUET_MAGIC: Final = b"PAR1"
_TAIL: Final = struct.Struct("<I4s")
"""The end of a Parquet file: the length of the footer before it, and the magic."""
_HEAD_BYTES: Final = 64
_NEXT_INT: Final = 0x15
"""In Thrift's compact protocol: the field with the next number follows, an integer of 32 bits."""


class Cover(Enum):
    """What shows damage to a file that was done before anybody has read it."""

    CHECKSUM_FILE = "a checksum file"
    PAGES = "page checksums"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDigests:
    """The digests of files that earlier readings have stored, by a hash of the path."""

    by_key: Mapping[bytes, bytes]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Return the digests of texts that `digests_text` has made; of a file with several, the first one."""
        whole = base64.b64decode("".join(dict.fromkeys(texts)))
        entries = [whole[start : start + _ENTRY_BYTES] for start in range(0, len(whole), _ENTRY_BYTES)]
        return cls(by_key={entry[:_KEY_BYTES]: entry[_KEY_BYTES:] for entry in reversed(entries)})

    def of_path(self, path: str) -> bytes | None:
        """Return the digest of a file, by its path in the Delta log; None if none is stored."""
        return self.by_key.get(_key(path))


def digests_text(digests: Mapping[str, bytes]) -> str:
    """Return path -> digest as a text of 20 characters for each file, equal for equal digests."""
    entries = sorted(_key(path) + digest for path, digest in digests.items())
    return base64.b64encode(b"".join(entries)).decode("ascii")


class Stamp(NamedTuple):
    """The size and the time of modification of a file, which tell that it was not replaced."""

    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredFile:
    """A file of a log whose bytes are checked: a data file, or a file of `_delta_log`, which has no records.

    `path` is as in the Delta log, `place` in the file system of the log.

    `stored` is the digest that an earlier reading has stored, None without one. `stamp` is that of the listing, if the
    writer of the log may replace the file. For errors, `owner` tells what the file
    belongs to, such as "slice 2026-01-05", and `way_on` what to do if the file is right as it is.
    """

    uri: str
    path: str
    place: str
    owner: str
    way_on: str
    stored: bytes | None = None
    stamp: Stamp | None = None

    @property
    def named(self) -> str:
        return f"file {self.path} ({self.owner}) of event log {self.uri}"


def check_file(
    system: "pafs.FileSystem",
    file: CoveredFile,
    *,
    is_data: bool = True,
    footer_only: bool = False,
    piece_bytes: int = PIECE_BYTES,
) -> bytes | None:
    """Compare the bytes of a file with its checksum file, or with the stored digest.

    `is_data`: the caller's reader compares page checksums, so that they need no digest. A file of `_delta_log` always
    has a digest: it tells the history of the table from that of a restored copy. `footer_only`: of a file with page
    checksums, compare only the footer with the checksum file. About `piece_bytes` of a file are in memory at a time.
    Returns the digest that has to be stored; None if a checksum file covers the data file.

    Raises:
        LogError: the file is not as it was written, or its checksum file is damaged.
        OSError: the file cannot be read.
    """
    if file.stamp is not None:
        refuse_other_stamp(file, system.get_file_info(file.place))
    sums = _checksum_file(system, file.place)
    with _opened(system, file.place, piece_bytes) as data:
        start = _uncovered_from(data) if is_data and (footer_only or sums is None) else 0
        if sums is not None:
            _compare_sums(data, sums, file, start=start, piece_bytes=piece_bytes)
            if is_data:
                return None
        digest = _digest(data, start, piece_bytes)
    if file.stored is not None and digest != file.stored:
        raise LogError(
            f"{file.named} is not the file that an earlier run has read: the digest of its bytes is {digest.hex()} "
            f"now, and was {file.stored.hex()}. It was damaged or exchanged in place. Restore it from a backup. "
            f"{file.way_on}"
        )
    return digest


def refuse_other_stamp(file: CoveredFile, info: "pafs.FileInfo") -> None:
    """Compare what a file system tells of a file with the stamp of the file.

    Raises LogError: the file was removed or replaced after the listing.
    """
    from jobs.pipeline.slices import show_instant  # tasks import this module, and need no models of pipeline files

    if info.type != pafs.FileType.File:
        raise LogError(f"{file.named} does not exist any more. It was removed after the log was listed. Run again")
    stamp = Stamp(info.size, (info.mtime_ns or 0) // 1_000_000)
    if file.stamp is not None and stamp != file.stamp:
        raise LogError(
            f"{file.named} was replaced after the log was listed: it had {file.stamp.bytes:,} bytes, modified at "
            f"{show_instant(file.stamp.modified_ms)}; it has {stamp.bytes:,} bytes now, modified at "
            f"{show_instant(stamp.modified_ms)}. Run again when its writer has finished"
        )


def cover_of(system: "pafs.FileSystem", place: str) -> Cover:
    """Return what protects a file. Raises OSError: the file cannot be read."""
    if _checksum_file(system, place) is not None:
        return Cover.CHECKSUM_FILE
    with system.open_input_file(place) as data:
        return Cover.PAGES if has_page_checksums(data.read_at(_HEAD_BYTES, 0)) else Cover.NOTHING


def has_page_checksums(head: bytes) -> bool:
    """Return whether the first page of a Parquet file that begins with these bytes has a checksum.

    A page header begins with the integers type, uncompressed size, compressed size and, if it is there, the checksum.
    """
    if head[:4] != _PARQUET_MAGIC:
        return False
    place = 4
    for _ in range(3):
        if head[place : place + 1] != bytes((_NEXT_INT,)):
            return False
        place += 1
        while head[place : place + 1] >= b"\x80":  # more bytes of the integer follow
            place += 1
        place += 1
    return head[place : place + 1] == bytes((_NEXT_INT,))


def _key(path: str) -> bytes:
    return hashlib.blake2b(path.encode("utf-8", errors="surrogatepass"), digest_size=_KEY_BYTES).digest()


def _opened(system: "pafs.FileSystem", place: str, piece_bytes: int) -> "pa.NativeFile":
    """Open a file. A small one is read with one request."""
    data = system.open_input_file(place)
    if data.size() > piece_bytes:
        return data
    with data:
        return pa.BufferReader(data.read_buffer())


def _uncovered_from(data: "pa.NativeFile") -> int:
    """Return where the bytes begin that page checksums do not cover: the footer, or the whole file without them."""
    size = data.size()
    if size < len(_PARQUET_MAGIC) + _TAIL.size or not has_page_checksums(data.read_at(_HEAD_BYTES, 0)):
        return 0
    length, magic = _TAIL.unpack(data.read_at(_TAIL.size, size - _TAIL.size))
    start = size - _TAIL.size - length
    return start if magic == _PARQUET_MAGIC and start > 0 else 0


def _digest(data: "pa.NativeFile", start: int, piece_bytes: int) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for _, piece in _pieces(data, start, step=piece_bytes):
        digest.update(piece)
    return digest.digest()


def _pieces(data: "pa.NativeFile", start: int, *, step: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes from `start` to the end, in pieces, each with its place."""
    data.seek(start)
    while piece := memoryview(data.read_buffer(step)):
        yield start, piece
        start += len(piece)


def _checksum_path(place: str) -> Path:
    path = Path(place)
    return path.with_name(f".{path.name}.crc")


def _checksum_file(system: "pafs.FileSystem", place: str) -> bytes | None:
    """Return the content of the checksum file beside a file; None without one. Only disks have them."""
    if not isinstance(system, pafs.LocalFileSystem):
        return None
    try:
        return _checksum_path(place).read_bytes()
    except FileNotFoundError:
        return None


def _compare_sums(data: "pa.NativeFile", sums: bytes, file: CoveredFile, *, start: int, piece_bytes: int) -> None:
    """Compare the bytes from about `start` on with a checksum file: a CRC-32 of each piece of some hundred bytes."""
    magic, size = _CHECKSUM_HEADER.unpack(sums[: _CHECKSUM_HEADER.size].ljust(_CHECKSUM_HEADER.size, b"\0"))
    count = -(-data.size() // size) if size else 0
    if magic != _CHECKSUM_MAGIC or len(sums) != _CHECKSUM_HEADER.size + _SUM_BYTES * count:
        raise _differs(file, "the checksum file does not have a checksum for each part of the file")
    sums_of_pieces = np.frombuffer(sums, dtype=">u4", offset=_CHECKSUM_HEADER.size).astype(np.uint32)[start // size :]
    per_block = 1 << max((piece_bytes // size).bit_length() - 1, 0)
    joined = _joined(sums_of_pieces, size, per_block)
    for number, (place, block) in enumerate(_pieces(data, start // size * size, step=per_block * size)):
        if number < len(joined) and zlib.crc32(block) == joined[number]:
            continue
        wanted = sums_of_pieces[number * per_block :].tolist()
        for at, expected in zip(range(0, len(block), size), wanted, strict=False):
            if zlib.crc32(block[at : at + size]) != expected:
                raise _differs(file, f"the first difference is in the {size} bytes from {place + at:,} on")


def _joined(sums: "Words", size: int, per_block: int) -> list[int]:
    """Return the CRC-32 of each whole block of `per_block` pieces of `size` bytes, from the CRC-32 of the pieces.

    One checksum of a large block takes a fifth of the time of those of its pieces. A CRC-32 is linear: that of two
    pieces is the first one, shifted over the bytes of the second, XOR the second one. `per_block` is a power of 2.
    """
    blocks = sums[: len(sums) // per_block * per_block].reshape(-1, per_block)
    shift = _shift_over(size) if len(blocks) else None
    while shift is not None and blocks.shape[1] > 1:
        blocks = _shifted(shift, blocks[:, 0::2]) ^ blocks[:, 1::2]
        shift = _shifted(shift, shift)
    joined: list[int] = blocks[:, 0].tolist() if len(blocks) else []
    return joined


@cache
def _shift_over(size: int) -> "Words":
    """Return the shift of a CRC-32 over so many bytes, as a table: (byte of the checksum, its value) -> XOR term."""
    zeros = bytes(size)
    none = zlib.crc32(zeros)
    return np.array([[zlib.crc32(zeros, value << 8 * byte) ^ none for value in range(256)] for byte in range(4)], "u4")


def _shifted(shift: "Words", sums: "Words") -> "Words":
    """Return checksums after a shift, which `_shift_over` has made."""
    shifted: Words = (
        shift[0][sums & 255] ^ shift[1][sums >> 8 & 255] ^ shift[2][sums >> 16 & 255] ^ shift[3][sums >> 24]
    )
    return shifted


def _differs(file: CoveredFile, where: str) -> LogError:
    checksums = _checksum_path(file.path)
    return LogError(
        f"{file.named} and its checksum file {checksums} do not fit together: {where}. One of the two is damaged. "
        f"Restore both from a backup. If you know that {file.path} itself is right, remove {checksums.name}"
    )
