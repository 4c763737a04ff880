"""The runs of a chunk: one per slice."""

from dataclasses import dataclass

from jobs.runs import CheckpointPart, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRun:
    """The run of one slice within a chunk: its number there, its ids, and the states before and after it.

    `earlier` has the parts of its checkpoint before its own; it is empty if the checkpoint is stored whole.
    """

    slice_no: int
    slice: Slice
    run_id: str
    attempt_id: str
    input_fingerprint: str
    state_before: str
    state_after: str
    earlier: tuple[CheckpointPart, ...] = ()

    @property
    def stores_whole_state(self) -> bool:
        """Whether the checkpoint of the run is stored whole, and not as changes."""
        return not self.earlier

    def columns(self) -> dict[str, str]:
        return {"slice_id": self.slice.slice_id, "attempt_id": self.attempt_id, "run_id": self.run_id}
