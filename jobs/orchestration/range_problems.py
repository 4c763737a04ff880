"""What is wrong with the range of a backfill, and the range that would be right, in the words of its form."""

from jobs.pipeline.slices import SliceGrid, last_edge_ms, show_instant, show_ms, slice_at


def range_problem(grid: SliceGrid, from_ms: int, to_ms: int, *, now_ms: int) -> str | None:
    """Return what is wrong with a range, and the range that would be right; None if it is right."""
    least_ms, most_ms = min(from_ms, to_ms), max(from_ms, to_ms) + (from_ms == to_ms)
    wrong = _order_problem(grid, from_ms, to_ms) or _edge_problem(grid, from_ms, to_ms)
    wrong = wrong or _outside(grid, from_ms, to_ms, now_ms=now_ms)
    return None if wrong is None else f"{wrong} {_right(grid, least_ms, most_ms, now_ms=now_ms)}"


def _order_problem(grid: SliceGrid, from_ms: int, to_ms: int) -> str | None:
    if from_ms == to_ms:
        return f"From and To are both {show_ms(grid, from_ms)}, so the range is empty: To is not included."
    if from_ms > to_ms:
        return f"To {show_ms(grid, to_ms)} is before From {show_ms(grid, from_ms)}."
    return None


def _edge_problem(grid: SliceGrid, from_ms: int, to_ms: int) -> str | None:
    for name, bound_ms in (("From", from_ms), ("To", to_ms)):
        if bound_ms != last_edge_ms(grid) and slice_at(grid, bound_ms).start_ms != bound_ms:
            inside = slice_at(grid, bound_ms).slice_id
            return f"{name} {show_ms(grid, bound_ms)} is inside slice {inside}, not at one of its ends."
    return None


def _outside(grid: SliceGrid, from_ms: int, to_ms: int, *, now_ms: int) -> str | None:
    if grid.first_ms is not None and from_ms < grid.first_ms:
        return f"From {show_ms(grid, from_ms)} is before the first slice, {show_ms(grid, grid.first_ms)}."
    if grid.last_ms is not None and to_ms > slice_at(grid, grid.last_ms).end_ms:
        return f"To {show_ms(grid, to_ms)} is after the end of the last slice, {show_ms(grid, grid.last_ms)}."
    if to_ms > _end_ms(grid, now_ms):
        last = slice_at(grid, to_ms - 1)
        return f"Slice {last.slice_id} is not over before {show_instant(last.end_ms)}."
    return None


def _right(grid: SliceGrid, from_ms: int, to_ms: int, *, now_ms: int) -> str:
    """Return the range that is nearest to a wrong one, as a sentence."""
    end_ms = _end_ms(grid, now_ms)
    first_ms = from_ms if grid.first_ms is None else max(from_ms, grid.first_ms)
    first_ms = slice_at(grid, first_ms).start_ms
    last = slice_at(grid, to_ms - 1)
    last_ms = min(last.end_ms, end_ms)
    if first_ms < last_ms:
        return f"Right would be From {show_ms(grid, first_ms)}, To {show_ms(grid, last_ms)}."
    least = "" if grid.first_ms is None else f"The earliest From is {show_ms(grid, grid.first_ms)}. "
    return f"{least}The latest To is {show_ms(grid, end_ms)}."


def _end_ms(grid: SliceGrid, now_ms: int) -> int:
    """Return the end of the last slice that is over."""
    over_ms = slice_at(grid, now_ms).start_ms
    return over_ms if grid.last_ms is None else min(over_ms, slice_at(grid, grid.last_ms).end_ms)
