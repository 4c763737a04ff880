"""A checksum of bytes that costs about as much as reading them from memory."""

import zlib
from typing import Final

import numpy as np
from typing_extensions import Buffer

_LANES: Final = 509
"""The words of a row. It is prime, so blocks of a disk that change places add their words to other lanes."""
_ROW: Final = 8 * _LANES


class LaneSum:
    """The checksum of bytes that come in pieces; how they are cut does not matter.

    The bytes are rows of 509 words of 64 bits. Each column of words, a lane, is summed up modulo 2**64. The value is
    the CRC-32 of the sums and of the bytes after the last whole row. If one bit changes, the value always changes.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(_LANES, dtype="<u8")
        self._begun = b""
        self.size = 0

    @classmethod
    def of(cls, data: Buffer) -> int:
        """Return the value for bytes that are in one piece."""
        whole = cls()
        whole.add(data)
        return whole.value()

    def add(self, data: Buffer) -> None:
        """Continue with a piece."""
        piece = memoryview(data).cast("B")
        self.size += len(piece)
        if self._begun:
            missing = _ROW - len(self._begun)
            self._begun += piece[:missing]
            piece = piece[missing:]
            if len(self._begun) < _ROW:
                return
            self._sums += np.frombuffer(self._begun, dtype="<u8")
        end = len(piece) - len(piece) % _ROW
        if end:
            self._sums += np.frombuffer(piece[:end], dtype="<u8").reshape(-1, _LANES).sum(axis=0)
        self._begun = bytes(piece[end:])

    def value(self) -> int:
        """Return the checksum of all pieces: 32 bits."""
        return zlib.crc32(self._begun, zlib.crc32(self._sums.tobytes()))
