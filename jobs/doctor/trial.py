"""Tries whether this version of Hindcast accepts a proposed pipeline file for its log. Nothing is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jobs.lake.lake import Lake
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.slices import slice_at, slice_grid, slices_between
from jobs.planning.log_pin import pin_input
from jobs.reading.log_places import tables_in_log
from windowlib.errors import HindcastError

MOST_SLICES: Final = 5_000
"""The log is tried with the newest slices, at most so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A file that was accepted, and the range of the slices with records (None without records)."""

    text: str
    range_ms: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The message with which a file was refused: by the grammar, or because of the log."""

    text: str
    by_grammar: bool


def try_file(text: str, path: Path, lake: Lake, *, instants_ms: Sequence[int]) -> Accepted | Refused:
    """Return the accepted file, or why it was refused.

    `text` is the YAML, and `path` where it will be. `instants_ms` are instants of the first and the last slice with
    records; none if the log has no records.
    """
    try:
        pipeline = parse_pipeline(text, source=str(path))
    except HindcastError as error:
        return Refused(text=str(error), by_grammar=True)
    if problem := tables_in_log(lake, pipeline):
        return Refused(text=problem, by_grammar=False)
    try:
        if not instants_ms:
            pin_input(pipeline, lake, ())
            return Accepted(text=text, range_ms=None)
        grid = slice_grid(pipeline)
        start_ms, end_ms = slice_at(grid, min(instants_ms)).start_ms, slice_at(grid, max(instants_ms)).end_ms
        tried_ms = max(start_ms, slice_at(grid, end_ms - MOST_SLICES * grid.every_ms).start_ms)
        pin_input(pipeline, lake, slices_between(pipeline, tried_ms, end_ms))
        return Accepted(text=text, range_ms=(start_ms, end_ms))
    except HindcastError as error:
        return Refused(text=str(error), by_grammar=False)
