"""What operators have in common that collect their outputs and tallies themselves, and the check of a watermark."""

from windowlib.errors import InvariantBroken
from windowlib.records.records import Output, Position, Tally
from windowlib.records.tallies import EdgeTallies


def check_watermark(current_ms: int, watermark_ms: int, position: Position) -> None:
    """Check that a new watermark is not lower than the current watermark.

    Raises InvariantBroken: it is lower; `position` is the record in the log that caused it.
    """
    if watermark_ms < current_ms:
        raise InvariantBroken(f"the driver let the watermark go back from {current_ms} to {watermark_ms} at {position}")


class CollectingOperator:
    """The base class of operators that put outputs into `_outputs`, always the same list, and edges into `_tallies`."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._tallies = EdgeTallies()

    def begin(self, first_arrival_ms: int) -> None:
        """Do nothing. Operators override this if windows or ticks depend on the log's first arrival."""

    def drain(self) -> list[Output]:
        outputs = self._outputs.copy()
        self._outputs.clear()
        return outputs

    def take_tallies(self) -> dict[str, Tally]:
        return self._tallies.take()
