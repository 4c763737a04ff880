"""Two views compared, as the report and the pages show them: their names, and some rows side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.comparing.differences import Change, Differences, TableDifference
from jobs.comparing.partitions import Limits
from jobs.comparing.views import Sides
from jobs.plain_text import shortened

CHEAP_ROWS = 100_000
"""The report and the pages compare two views at once if they differ in at most this many rows."""
MEMORY = Limits(part_rows=100_000, memory_mb=256)
"""The api-server and the task that writes a report have other work, so a comparison takes little of their memory."""
_CIRCUMSTANCES = frozenset(
    {
        "pane_index", "timing", "is_first", "is_last", "mode", "kind", "nonspeculative_index", "pane_time_ms",
        "watermark_ms", "fired_rank", "slice_id", "run_id", "attempt_id", "rank", "record_hash",
    }
)  # fmt: skip
"""Columns that are not shown of a row that only one view has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two views. `found` is None if the comparison was not made: it reads about `rows` rows."""

    before: str
    after: str
    slices: tuple[str, ...]
    rows: int
    found: Differences | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLine:
    """A row of both views side by side. `values` has (column, before, after); None where a view has no such row.

    `match` has the columns by which the rows were matched, as texts; `place` has them as they are stored.
    """

    change: Change
    match: tuple[tuple[str, str], ...]
    place: Mapping[str, object]
    values: tuple[tuple[str, str | None, str | None], ...]


def compared(sides: Sides, found: Differences | None) -> Compared:
    """Return two views with their differences; `found` is None if the comparison was not made."""
    return Compared(
        before=sides.before.name, after=sides.after.name, slices=sides.slices, rows=rows_to_read(sides), found=found
    )


def rows_to_read(sides: Sides) -> int:
    """Return about how many rows a comparison reads: all rows of the slices that differ, in both views."""
    runs = [run for side in (sides.before, sides.after) for name in sides.slices if (run := side.runs.get(name))]
    counts = [run.result.counts for run in runs]
    return sum(one.panes + one.late + one.unassigned + one.invalid for one in counts)


def sample_lines(table: TableDifference) -> tuple[SampleLine, ...]:
    """Return the sample rows of a table, the changed values of each side by side."""
    return tuple(
        SampleLine(
            change=one.change,
            match=tuple((name, _text(value)) for name, value in one.match.items()),
            place=one.match,
            values=tuple(
                (
                    name,
                    None if one.before is None else _text(one.before.get(name)),
                    None if one.after is None else _text(one.after.get(name)),
                )
                for name in (one.differs or _names(one.before, one.after, one.match))
            ),
        )
        for one in table.samples
    )


def _names(*rows: Mapping[str, object] | None) -> list[str]:
    before, after, match = rows
    hidden = {*(match or {}), *_CIRCUMSTANCES}
    return [name for name in {**(before or {}), **(after or {})} if name not in hidden]


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return shortened("null" if value is None else str(value), 120)
