"""Sessions that no record of a block joins any more: first pane and cleanup along the steps of the block."""

from typing import NamedTuple

import numpy as np

from windowlib.bounds import MAX_TIME_MS
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.block import added
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import ON_TIME_CODE, Panes
from windowlib.kernels.step_search import StepSearch
from windowlib.kernels.windows import BlockOutcome, Frame
from windowlib.records.tallies import FIRED


class Settled(NamedTuple):
    """What settling leaves open: places of the windows, the windows at these places, and which of them have fired.

    The windows do not have the marks of their pane yet (`session_contents.marked`).
    """

    places: Int64s
    opened: OpenWindows
    has_fired: Bools


def settle(
    frame: Frame,
    windows: OpenWindows,
    places: Int64s,
    *,
    search: StepSearch,
    slice_start_ms: int,
    outcome: BlockOutcome,
) -> Settled:
    """Fire and clean up sessions along the steps of a block.

    Args:
        frame: the frame of the bucket.
        windows: sessions. A session that has fired before has shown all its edges.
        places: which of the windows to settle, ascending.
        search: finds the steps that the block takes.
        slice_start_ms: the start of the slice of the block.
        outcome: gets the panes and edges.
    """
    lateness_ms = frame.spec.allowed_lateness_ms
    last_ms = windows.end_ms[places] - 1
    complete_step = search.step_of(last_ms)
    is_complete = complete_step < search.until_step
    fires = is_complete & (windows.pane_index[places] == 0)
    _fire(frame, windows, places[fires], step=complete_step[fires], slice_start_ms=slice_start_ms, outcome=outcome)
    is_gone = is_complete
    if lateness_ms:
        cleanup_ms = added(last_ms, lateness_ms)
        is_gone = (cleanup_ms < MAX_TIME_MS) & (search.step_of(cleanup_ms) < search.until_step)
    # Discarding empties a session when it fires. Otherwise its edges are closed at its cleanup.
    outcome.add_edges(FIRED, windows.edges.take(places[fires if frame.discards else is_gone]))
    frame.touched.add(windows.key_code[places[is_gone]])
    left = np.flatnonzero(~is_gone)
    opened = windows if len(left) == len(windows) else windows.take(places[left], frame.aggregates)
    return Settled(left, opened, fires[left])


def _fire(
    frame: Frame, windows: OpenWindows, places: Int64s, *, step: Int64s, slice_start_ms: int, outcome: BlockOutcome
) -> None:
    """Emit the first pane of sessions whose last instant the watermark reaches at a step."""
    lateness_ms = frame.spec.allowed_lateness_ms
    end_ms = windows.end_ms[places]
    watermark_ms = frame.clock.after_each(step + 1)
    outcome.add_panes(
        Panes(
            key_code=windows.key_code[places],
            start_ms=windows.start_ms[places],
            end_ms=end_ms,
            results=frame.results(frame.taken(windows.states, places)),
            record_count=windows.edges.count[places],
            pane_index=0,
            nonspeculative_index=0,
            timing=ON_TIME_CODE,
            is_last=watermark_ms >= added(end_ms - 1, lateness_ms) if lateness_ms else True,
            watermark_ms=watermark_ms,
            fired_rank=frame.clock.fired_rank(step, slice_start_ms),
        )
    )
