"""Standard input, output and error of a command, where its caller has closed them or they cannot be written."""

import io
import os
import sys
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _Lossy(io.FileIO):
    """An open file that loses what cannot be written. It raises no error."""

    @override
    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data) or len(memoryview(data))  # None: a pipe that does not block is full
        except OSError:
            return len(memoryview(data))


def lose_unwritable_messages() -> None:
    """Let no command end because its messages cannot be written: the disk of a log is full, or a terminal is closed."""
    if isinstance(sys.stderr, io.TextIOWrapper):
        raw = _Lossy(sys.stderr.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), sys.stderr.encoding, sys.stderr.errors, line_buffering=True
        )


def open_missing_streams() -> None:
    """Open the null device for standard input, output and error, where the caller of this process has closed them.

    Otherwise a file of the lake could get the number of one, and would get what a library or Spark's JVM prints.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - it has no keywords
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r", encoding="utf-8"))
