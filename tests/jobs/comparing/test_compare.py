"""Comparisons of two views, against a naive comparison of all rows in Python dictionaries."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pyarrow as pa
import pytest

from jobs.comparing.compare import Comparison, compare
from jobs.comparing.differences import TableDifference
from jobs.comparing.partitions import Limits
from jobs.comparing.views import Side, Sides
from jobs.lake.lake import Lake
from tests.support.fuzzing import seeds
from tests.support.random_views import NAME, Row, Views, random_windows
from tests.support.visible_panes import visible_by_order
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.hashing import row_hashes
from windowlib.records import tables
from windowlib.records.xxh64 import SEED

OUTPUTS = {"total": "bigint", "mean": "double", "stops": "array<string>"}
TYPED = {"key": "string"}
TABLE = tables.window_outputs(TYPED, OUTPUTS)
VALUES: Mapping[str, Sequence[object]] = {
    "total": [None, 1, 2, -(2**63), 2**63 - 1],
    "mean": [None, 0.5, -0.0, 0.0, math.nan, math.inf, 1e300],
    "stops": [None, [], ["x"], ["x", None]],
}
COMPARED = ("total", "mean", "stops", "record_count")
FIRED = (
    "pane_index", "timing", "is_first", "is_last", "mode", "nonspeculative_index", "pane_time_ms", "watermark_ms",
)  # fmt: skip


def spelled(value: object) -> object:
    """A value as a dictionary key under which NaN is equal to NaN."""
    return (
        "NaN"
        if isinstance(value, float) and math.isnan(value)
        else repr(value + 0.0)
        if isinstance(value, float)
        else repr(value)
    )


def values_of(row: Row, names: Iterable[str]) -> tuple[object, ...]:
    return tuple(spelled(row.get(name)) for name in names)


def naive(before: Sequence[Row], after: Sequence[Row], *, all_panes: bool) -> dict[str, Any]:
    """Compare all rows of both views. Windows that are equal in both are not counted."""
    windows = [grouped(rows, all_panes=all_panes) for rows in (before, after)]
    counts: Counter[str] = Counter()
    columns: dict[str, Counter[str]] = {name: Counter() for name in (*COMPARED, *FIRED)}
    by: dict[str, list[float]] = defaultdict(list)
    for window in {*windows[0], *windows[1]}:
        one, two = windows[0].get(window, []), windows[1].get(window, [])
        if not one or not two:
            counts["only_before" if one else "only_after"] += 1
            continue
        own = (*COMPARED, "kind") if all_panes else COMPARED
        one, two = without_equal(one, two, (*own, *FIRED))
        is_otherwise = bool(one) and bool(two)
        otherwise = paired_by(one, two, own)
        for pair in otherwise:
            count_columns(columns, pair, by)
        one, two = without_equal(one, two, own)
        for pair in zip(one, two, strict=False):
            count_columns(columns, pair, by)
        counts["changed" if one or two else "same_values" if is_otherwise else "equal"] += 1
    return {"counts": counts, "columns": columns, "by": by}


def grouped(rows: Sequence[Row], *, all_panes: bool) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["key"], row["window_start"]].append(row)
    if all_panes:
        panes: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for window, own in found.items():
            for row in own:
                panes[(*window, row["pane_index"])].append(row)
        return {pane: sorted(own, key=order) for pane, own in panes.items()}
    shown = {window: sorted(map(dict, visible_by_order(own)), key=order) for window, own in found.items()}
    return {window: own for window, own in shown.items() if own}


def order(row: Row) -> tuple[Any, ...]:
    return row["slice_id"], row["pane_index"], row["fired_rank"], *row["ties"]


def with_ties(rows: list[Row], *, all_panes: bool) -> list[Row]:
    """Add what sorts the rows of one firing: the hashes of their values and circumstances."""
    nodes = TABLE.columns()
    hashes = [
        row_hashes(
            pa.table({name: pa.array([row.get(name) for row in rows], arrow_type(nodes[name])) for name in names}), SEED
        ).tolist()
        for names in ((*COMPARED, "kind") if all_panes else COMPARED, circumstances(all_panes=all_panes))
    ]
    return [{**row, "ties": ties} for row, *ties in zip(rows, *hashes, strict=True)]


def circumstances(*, all_panes: bool) -> tuple[str, ...]:
    return tuple(name for name in FIRED if name != "pane_index" or not all_panes)


def without_equal(one: list[Row], two: list[Row], names: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Remove the rows that are equal in both views, the first ones first."""
    counts = [Counter(values_of(row, names) for row in rows) for rows in (one, two)]
    both = counts[0] & counts[1]
    left = []
    for rows in (one, two):
        remaining, kept = Counter(both), []
        for row in rows:
            if remaining[values_of(row, names)]:
                remaining[values_of(row, names)] -= 1
            else:
                kept.append(row)
        left.append(kept)
    return left[0], left[1]


def paired_by(one: list[Row], two: list[Row], names: Sequence[str]) -> list[tuple[Row, Row]]:
    """Return the pairs of rows with equal values, in their order."""
    rest: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in two:
        rest[values_of(row, names)].append(row)
    return [(row, rest[key].pop(0)) for row in one if rest[key := values_of(row, names)]]


def count_columns(columns: Mapping[str, Counter[str]], pair: tuple[Row, Row], by: dict[str, list[float]]) -> None:
    for name, counter in columns.items():
        one, two = (row.get(name) for row in pair)
        if one is None and two is None:
            continue
        if one is None or two is None:
            counter["missing" if two is None else "extra"] += 1
        elif spelled(one) != spelled(two):
            counter["mismatch"] += 1
            is_number = isinstance(one, int | float) and not isinstance(one, bool)
            if is_number and math.isfinite(two - one):
                by[name].append(abs(two - one))


def random_sides(views: Views, rng: Random) -> Sides:
    """Two views of a few days: for each day, runs with the same rows, with other rows, or with none."""
    spec, days = views.spec(["key"], list(OUTPUTS)), rng.randint(1, 4)
    chosen = [random_windows(rng, (), days=days, values=(0,)) for _ in range(2)]
    before, after = {}, {}
    for day in range(days):
        rows = [[row | {name: rng.choice(VALUES[name]) for name in OUTPUTS} for row in one[day]] for one in chosen]
        run_id = views.run(day, spec, (TABLE, rows[0]))
        how = rng.choice(["same run", "same rows", "other", "other", "slightly", "new", "gone"])
        if how != "new":
            before[day] = run_id
        match how:
            case "same run":
                after[day] = run_id
            case "same rows":
                after[day] = views.run(day, spec, (TABLE, rows[0]))
            case "other" | "new":
                after[day] = views.run(day, spec, (TABLE, rows[1]))
            case "gone":
                pass
            case _:
                after[day] = views.run(day, spec, (TABLE, [slightly(rng, row) for row in rows[0]]))
    return sides_of(views, before, after)


def slightly(rng: Random, row: Row) -> Row:
    name = rng.choice([*OUTPUTS, "watermark_ms", "nothing", "nothing"])
    return row if name == "nothing" else row | {name: 7 if name == "watermark_ms" else rng.choice(VALUES[name])}


def sides_of(views: Views, before: Mapping[int, str], after: Mapping[int, str]) -> Sides:
    sides = [
        Side(
            name=name, runs={views.runs[run].result.slice.slice_id: views.runs[run] for _, run in sorted(runs.items())}
        )
        for name, runs in (("before", before), ("after", after))
    ]
    return Sides(view=views.view(), before=sides[0], after=sides[1])


def rows_of(views: Views, side: Side, table: str = tables.WINDOW_OUTPUTS) -> list[Row]:
    return [row for run in side.runs.values() for row in views.rows[table].get(run.result.run_id, ())]


def check(found: TableDifference | None, expected: Mapping[str, Any]) -> None:
    counts = expected["counts"]
    if found is None:
        assert not (counts["changed"])
        assert not (counts["only_before"])
        assert not (counts["only_after"])
        return
    for name in ("only_before", "only_after", "changed", "same_values"):
        assert getattr(found, name) == counts[name], name
    assert found.equal <= counts["equal"]
    assert found.equal + found.same_values + found.changed + found.only_before + found.only_after >= 0
    columns = {one.column: one for one in found.columns}
    for name, counter in expected["columns"].items():
        if name not in columns:
            assert not sum(counter.values()), name
            continue
        one = columns[name]
        assert (one.mismatch, one.missing, one.extra) == (counter["mismatch"], counter["missing"], counter["extra"]), (
            name
        )
        by = expected["by"].get(name)
        if by and name != "stops":
            assert one.largest == max(by), name
            assert one.median == pytest.approx(median(by), rel=1e-15), name


def random_options(rng: Random, *, all_panes: bool) -> Comparison:
    limits = Limits(
        part_rows=rng.choice([7, 10_000, 10_000]), batch_rows=rng.choice([1, 5, 1_000]), pair_rows=rng.choice([1, 99]),
        most_parts=rng.choice([3, 99]), seen_bits=rng.choice([1, 3, 10]), kept_numbers=rng.choice([0, 1, 99]),
    )  # fmt: skip
    return Comparison(
        all_panes=all_panes, limits=limits, samples=rng.choice([0, 1, 20]), content_rows=rng.choice([None, 0, 10_000])
    )


@pytest.mark.slow
def test_a_comparison_equals_the_naive_comparison_of_all_rows(tmp_path: Path) -> None:
    for seed in seeds(15):
        rng = Random(seed)
        views = Views(tmp_path / str(seed), OUTPUTS)
        sides = random_sides(views, rng)
        views.commit()
        for all_panes in (False, True):
            found = compare(Lake(root=str(views.root)), NAME, sides, options=random_options(rng, all_panes=all_panes))
            rows = [with_ties(rows_of(views, side), all_panes=all_panes) for side in (sides.before, sides.after)]
            check(next(iter(found.tables), None), naive(rows[0], rows[1], all_panes=all_panes))
            assert found.to_json()["equal"] == found.is_equal
            assert found.lines(samples=3)
