"""A model of the published view, computed from the outputs of the operator in the order of their emission."""

from collections.abc import Sequence
from typing import Any

from tests.matrix.one_process import Answer
from tests.matrix.pipelines import Case
from tests.matrix.rows import Row, pane_row, plain
from windowlib.records.records import Emitted, Pane


def published_rows(case: Case, answer: Answer) -> list[Row]:
    """Return the rows of the published view, each with the number of its slice.

    A firing that repeats the one before replaces all its rows; one that holds nothing of it stands beside it. What was
    superseded or taken back is gone.
    """
    windows: dict[Any, list[tuple[int, Pane]]] = {}
    seen: list[Row] = []
    for number, hour in enumerate(answer.hours):
        for output in hour.outputs:
            if isinstance(output, Pane):
                windows.setdefault((plain(output.key), output.window), []).append((number, output))
            elif isinstance(output, Emitted):
                seen.append({"slice_no": number, **pane_row(case, output)})
    for emitted in windows.values():
        seen += [{"slice_no": number, **pane_row(case, pane)} for number, pane in _visible(emitted)]
    return seen


def _visible(emitted: Sequence[tuple[int, Pane]]) -> list[tuple[int, Pane]]:
    """Return the visible rows of one window, from all its outputs in the order of their emission."""
    standing: list[list[tuple[int, Pane]]] = []
    for number, pane in emitted:
        latest = standing[-1] if standing else []
        if pane.kind != "result":
            latest.clear()
        elif latest and latest[0][1].pane_index == pane.pane_index:
            latest.append((number, pane))  # one firing may say several things
        elif standing and pane.mode == "accumulating":
            standing[-1] = [(number, pane)]
        else:
            standing.append([(number, pane)])
    return [row for rows in standing for row in rows]
