"""What a reader must see, derived from the operator's emissions alone: of each window the last word, in their order."""

from collections.abc import Sequence
from typing import Any

from tests.matrix.one_process import Answer
from tests.matrix.pipelines import Case
from tests.matrix.rows import Row, pane_row, plain
from windowlib.records import Emitted, Pane


def published_rows(case: Case, answer: Answer) -> list[Row]:
    """Return the rows of the published view, each with the number of its slice.

    A window whose last word is that it was superseded or taken back shows nothing. One whose panes are disjoint shows
    them all, and any other what its last firing said: all rows of that firing.
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
    _, last = emitted[-1]
    if last.kind != "result":
        return []
    results = [(number, pane) for number, pane in emitted if pane.kind == "result"]
    if last.mode == "discarding":
        return results
    firing = [(number, pane) for number, pane in results if pane.pane_index == last.pane_index]
    assert all(pane.position == last.position for _, pane in firing), "one firing has one index"
    return firing
