"""The runs of a chunk: one per slice."""

from dataclasses import dataclass

from jobs.runs import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRun:
    """The run of one slice within a chunk: its number there, its ids, and the states before and after it."""

    slice_no: int
    slice: Slice
    run_id: str
    attempt_id: str
    input_fingerprint: str
    state_before: str
    state_after: str

    def columns(self) -> dict[str, str]:
        """Return the columns that identify the run of a row."""
        return {"slice_id": self.slice.slice_id, "attempt_id": self.attempt_id, "run_id": self.run_id}
