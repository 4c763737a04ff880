"""The check that every operator makes when a driver advances its watermark."""

from windowlib.errors import InvariantBroken
from windowlib.records.records import Position


def check_watermark(current_ms: int, watermark_ms: int, position: Position) -> None:
    """Check that a new watermark is not lower than the current watermark.

    Raises InvariantBroken: it is lower; `position` is the record in the log that caused it.
    """
    if watermark_ms < current_ms:
        raise InvariantBroken(f"the driver let the watermark go back from {current_ms} to {watermark_ms} at {position}")
