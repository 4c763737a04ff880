"""Two views compared, as the report and the pages show them: their names, and some rows side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.comparing.differences import Differences, Sample
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


def compared(sides: Sides, differences: Differences | None) -> Compared:
    """Return two views with their differences; `differences` is None if the comparison was not made."""
    before, after, rows = sides.before.name, sides.after.name, rows_to_read(sides)
    return Compared(before=before, after=after, slices=sides.slices, rows=rows, found=differences)


def rows_to_read(sides: Sides) -> int:
    """Return about how many rows a comparison reads: all rows of the slices that differ, in both views."""
    counts = [run.result.counts for run in sides.differing]
    return sum(count.panes + count.late + count.unassigned + count.invalid for count in counts)


def side_by_side(sample: Sample) -> list[tuple[str, str | None, str | None]]:
    """Return the changed values of a row as (column, before, after); None where a view has no such row."""
    names = sample.differs or _names(sample.before, sample.after, sample.match)
    return [(name, _value(sample.before, name), _value(sample.after, name)) for name in names]


def _names(*rows: Mapping[str, object] | None) -> list[str]:
    before, after, match = rows
    hidden = {*(match or {}), *_CIRCUMSTANCES}
    return [name for name in {**(before or {}), **(after or {})} if name not in hidden]


def _value(row: Mapping[str, object] | None, name: str) -> str | None:
    return None if row is None else value_text(row.get(name))


def value_text(value: object) -> str:
    """Return a value of a row as the pages show it."""
    if isinstance(value, float):
        return f"{value:,}"  # with all digits: the values differ
    return shortened("null" if value is None else str(value), 120)
