"""Dead letters: for each document that could not be processed, a document with the reason and the original."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from windowlib.atlas.documents.documents import Date, Document
from windowlib.atlas.documents.json_documents import to_text
from windowlib.atlas.stages.stage_forms import Failure
from windowlib.bounds import TimeWindow
from windowlib.errors import SpecError

DEAD_LETTERS: Final = "dead_letters"
"""The tag of the side output."""
LATE_REASON: Final = "Input document arrived late."
DEAD_LETTER_EDGE: Final = "closed:dead_letter"
"""The audit's term for a record in a window whose document failed before the pipeline grouped or emitted it."""
SOURCE_META: Final[Document] = {"source": {"type": "delta"}}
"""The source's part of the stream metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterWriter:
    """Writes dead letters with the names of a stream processor and its instance."""

    processor_name: str = "hindcast"
    instance_name: str = "hindcast"

    def __post_init__(self) -> None:
        if not self.processor_name or not self.instance_name:
            raise SpecError(
                f"processor_name and instance_name of dead letters must not be empty, got {self.processor_name!r} and "
                f"{self.instance_name!r}"
            )

    def write(
        self, failure: Failure, *, meta: Document, clock_ms: int, missed: Sequence[TimeWindow] = ()
    ) -> dict[str, str]:
        """Return the row of a dead letter: one column with its JSON text.

        The document is as it was when it failed. `meta` is the stream's metadata, with the window if the document was
        in a window. `clock_ms` is the replay's clock or, in a log without a clock, the start of the slice. `missed` are
        the closed windows of a late document.
        """
        letter: Document = {
            "_stream_meta": meta,
            "errInfo": {"reason": failure.reason},
            "operatorName": failure.stage,
            "doc": failure.item.document,
            "processorName": self.processor_name,
            "instanceName": self.instance_name,
            "dlqTime": Date(clock_ms),
        }
        if missed:
            letter["missedWindowStartTimes"] = [Date(window.start_ms) for window in missed]
        return {"document": to_text(letter)}
