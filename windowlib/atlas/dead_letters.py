"""Dead letters: documents that could not be processed, each with the reason, as a document of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from windowlib.atlas.documents.documents import Date, Document
from windowlib.atlas.documents.json_documents import to_text
from windowlib.bounds import TimeWindow
from windowlib.errors import SpecError

DEAD_LETTERS: Final = "dead_letters"
"""The tag of the side output."""
LATE_REASON: Final = "Input document arrived late."
DEAD_LETTER_EDGE: Final = "closed:dead_letter"
"""The audit's term for a record in a window whose document failed before it could be grouped or emitted."""
SOURCE_META: Final[Document] = {"source": {"type": "delta"}}
"""What the stream's metadata say of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterWriter:
    """Writes dead letters in the name of a processor."""

    processor_name: str = "hindcast"
    instance_name: str = "hindcast"

    def __post_init__(self) -> None:
        """Check the names."""
        if not self.processor_name or not self.instance_name:
            raise SpecError("a dead letter names its processor and instance; neither name may be empty")

    def write(
        self,
        document: Document,
        *,
        stage: str,
        reason: str,
        meta: Document,
        clock_ms: int,
        missed: Sequence[TimeWindow] = (),
    ) -> dict[str, str]:
        """Return the row of a dead letter: one column with its JSON text.

        Args:
            document: as it was when it failed.
            stage: the stage that could not process it.
            reason: why.
            meta: the stream's metadata; with the window if it was in one.
            clock_ms: the replay's clock, or what stands for it.
            missed: the windows that a late document came too late for.
        """
        letter: Document = {
            "_stream_meta": meta,
            "errInfo": {"reason": reason},
            "operatorName": stage,
            "doc": document,
            "processorName": self.processor_name,
            "instanceName": self.instance_name,
            "dlqTime": Date(clock_ms),
        }
        if missed:
            letter["missedWindowStartTimes"] = [Date(window.start_ms) for window in missed]
        return {"document": to_text(letter)}
