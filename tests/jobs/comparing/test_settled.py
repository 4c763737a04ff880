"""The change of settled windows, against a naive comparison of all rows in Python dictionaries."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, strategies as st

from jobs.comparing.compare import Comparison
from jobs.comparing.partitions import Limits
from jobs.comparing.settled import Settled, SettledChange, settled_change
from jobs.comparing.views import Sides
from jobs.lake.lake import Lake
from tests.jobs.comparing.test_compare import (
    COMPARED,
    OUTPUTS,
    TABLE,
    grouped,
    random_sides,
    rows_of,
    sides_of,
    with_ties,
    without_equal,
)
from tests.support.fuzzing import seeds
from tests.support.random_views import DAY_MS, NAME, Row, Views
from windowlib.errors import SpecError
from windowlib.records import tables

COLUMNS = ("total", "record_count")


def naive(views: Views, sides: Sides, until_ms: int) -> dict[str, Any]:
    """Compare the settled windows of both views, row by row."""
    all_rows = [with_ties(rows_of(views, side), all_panes=False) for side in (sides.before, sides.after)]
    shown = [settled(grouped(rows, all_panes=False), until_ms) for rows in all_rows]
    differing = differing_slices(sides)
    by_slice: Counter[str] = Counter()
    sums = dict.fromkeys(COLUMNS, 0.0)
    for window in {*shown[0], *shown[1]}:
        one, two = shown[0].get(window, []), shown[1].get(window, [])
        left = without_equal(one, two, COMPARED)
        is_new = not one and any(row["slice_id"] in sides.before.runs for row in two)
        if not (is_new or (one and (not two or left[0] or left[1]))):
            continue
        rows = [row for side in all_rows for row in side if (row["key"], row["window_start"]) == window]
        by_slice[max(row["slice_id"] for row in rows if row["slice_id"] in differing)] += 1
        for pair in zip_longest(*left, fillvalue=None):
            for name in COLUMNS:
                sums[name] += abs(number(pair[1], name) - number(pair[0], name))
    totals = {name: sum(abs(number(row, name)) for rows in shown[0].values() for row in rows) for name in COLUMNS}
    return {"by_slice": by_slice, "seen": len(shown[0]), "sums": sums, "totals": totals}


def settled(windows: Mapping[tuple[Any, ...], list[Row]], until_ms: int) -> dict[tuple[Any, ...], list[Row]]:
    return {
        window: rows
        for window, rows in windows.items()
        if window[1] is not None and window[1] // 1000 + DAY_MS <= until_ms
    }


def number(row: Row | None, name: str) -> float:
    return float((row or {}).get(name) or 0)


def differing_slices(sides: Sides) -> set[str]:
    digests = [
        {slice_id: run.result.digests[tables.WINDOW_OUTPUTS] for slice_id, run in side.runs.items()}
        for side in (sides.before, sides.after)
    ]
    return {slice_id for slice_id in {*digests[0], *digests[1]} if digests[0].get(slice_id) != digests[1].get(slice_id)}


@pytest.mark.slow
def test_the_change_equals_the_naive_comparison_of_all_rows(tmp_path: Path) -> None:
    changed = 0
    for seed in seeds(8):
        rng = Random(seed)
        views = Views(tmp_path / str(seed), OUTPUTS)
        sides = random_sides(views, rng)
        views.commit()
        until_ms = rng.choice([0, 1, 2, 3, 9]) * DAY_MS
        options = Comparison(limits=Limits(part_rows=rng.choice([7, 10_000]), batch_rows=rng.choice([1, 1_000])))
        found = settled_change(
            Lake(root=str(views.root)),
            NAME,
            sides,
            settled=Settled(until_ms=until_ms, columns=COLUMNS),
            options=options,
        )
        expected = naive(views, sides, until_ms)
        assert found.by_slice == expected["by_slice"]
        assert found.changed == sum(expected["by_slice"].values())
        changed += found.changed
        if found.changed:
            assert found.seen == expected["seen"]
            assert {name: len(named) for name, named in found.windows.items()} == {
                name: min(count, 5) for name, count in found.by_slice.items()
            }
            for name in COLUMNS:
                sums = expected["sums"][name], expected["totals"][name]
                assert found.columns[name] == pytest.approx(sums)
    assert changed


def test_a_share_of_nothing_is_infinite_and_columns_have_to_be_numbers(tmp_path: Path) -> None:
    rows: Sequence[Row] = [_row(1, stops=["x"]), _row(2, stops=["x"])]
    views = Views(tmp_path, OUTPUTS)
    spec = views.spec(["key"], list(OUTPUTS))
    runs = [views.run(0, spec, (TABLE, [row])) for row in rows]
    views.commit()
    sides = sides_of(views, {0: runs[0]}, {0: runs[1]})
    lake = Lake(root=str(tmp_path))
    found = settled_change(lake, NAME, sides, settled=Settled(until_ms=DAY_MS, columns=("total", "mean")))
    assert (found.changed, found.seen, found.share) == (1, 1, 1.0)
    assert found.column_share("total") == 1.0
    assert found.column_share("mean") == 0.0
    assert settled_change(lake, NAME, sides, settled=Settled(until_ms=DAY_MS - 1)).changed == 0
    first = sides_of(views, {}, {0: runs[1]})
    assert settled_change(lake, NAME, first, settled=Settled(until_ms=DAY_MS)).share == 0
    assert math.isinf(SettledChange(until_ms=0, changed=1).share)
    with pytest.raises(SpecError, match="column 'stops' is list"):
        settled_change(lake, NAME, sides, settled=Settled(until_ms=DAY_MS, columns=("stops",)))


def test_a_removed_column_changes_the_windows_with_a_value_and_a_new_one_changes_none(tmp_path: Path) -> None:
    views = Views(tmp_path, OUTPUTS)
    wide, narrow = views.spec(["key"], list(OUTPUTS)), views.spec(["key"], ["total"])
    rows = [_row(1, key="a", mean=0.5, stops=None), _row(1, key="b", mean=None, stops=None)]
    before = views.run(0, wide, (TABLE, rows))
    fewer = tables.window_outputs({"key": "string"}, {"total": "bigint"})
    after = views.run(
        0,
        narrow,
        (fewer, [{name: row[name] for name in row if name not in OUTPUTS or name == "total"} for row in rows]),
    )
    views.commit()
    removed, added = sides_of(views, {0: before}, {0: after}), sides_of(views, {0: after}, {0: before})
    limits = Settled(until_ms=DAY_MS)
    change = settled_change(Lake(root=str(tmp_path)), NAME, removed, settled=limits)
    assert (change.changed, change.seen) == (1, 2)
    assert "key a" in change.windows["2024-01-01"][0]
    assert settled_change(Lake(root=str(tmp_path)), NAME, added, settled=limits).changed == 0


def test_a_new_output_is_filled_into_old_slices_while_newer_ones_have_it(tmp_path: Path) -> None:
    """Only the values that the runs before had are compared, in each window by its own run."""
    views = Views(tmp_path, OUTPUTS)
    wide, narrow = views.spec(["key"], ["total", "mean"]), views.spec(["key"], ["total"])
    later = {"window_start": DAY_MS * 1000, "window_end": 2000 * DAY_MS, "mean": 0.5}
    before = {
        0: views.run(0, narrow, (TABLE, [_row(1, key="a"), _row(1, key="b"), _row(1, key="c")])),
        1: views.run(1, wide, (TABLE, [_row(1, key="a", **later)])),
    }
    filled = [_row(1, key="a", mean=0.5), _row(2, key="b", mean=0.5), _row(1, key="c", mean=0.5, watermark_ms=6)]
    after = {0: views.run(0, wide, (TABLE, filled)), 1: before[1]}
    other = {**after, 1: views.run(1, wide, (TABLE, [_row(1, key="a", **{**later, "mean": 0.75})]))}
    views.commit()
    limits = Settled(until_ms=2 * DAY_MS, columns=("total", "mean"))
    changes = [
        settled_change(Lake(root=str(tmp_path)), NAME, sides_of(views, before, runs), settled=limits)
        for runs in (after, other)
    ]
    assert [change.by_slice for change in changes] == [{"2024-01-01": 1}, {"2024-01-01": 1, "2024-01-02": 1}]
    assert "key b" in changes[0].windows["2024-01-01"][0]
    assert [change.columns for change in changes] == [
        {"total": (1.0, 4.0), "mean": (0.0, 0.5)},
        {"total": (1.0, 4.0), "mean": (0.25, 0.5)},
    ]


@pytest.mark.parametrize(
    ("kind", "before", "after", "change"),
    [
        ("bigint", 2**60, 2**60 + 1, 1.0),
        ("bigint", -(2**63), 2**63 - 1, float(2**64 - 1)),
        ("decimal(38,2)", Decimal("12345678901234567.01"), Decimal("12345678901234567.02"), 0.01),
    ],
)
def test_the_change_of_numbers_that_a_double_does_not_represent_is_exact(
    tmp_path: Path, kind: str, before: object, after: object, change: float
) -> None:
    """Defect: the change was 0, so that a limit of 0 was kept."""
    views = Views(tmp_path, {"total": kind})
    spec, table = views.spec(["key"], ["total"]), tables.window_outputs({"key": "string"}, {"total": kind})
    runs = [views.run(0, spec, (table, [{**_row(0), "total": total}])) for total in (before, after)]
    views.commit()
    sides = sides_of(views, {0: runs[0]}, {0: runs[1]})
    limits = Settled(until_ms=DAY_MS, columns=("total",))
    found = settled_change(Lake(root=str(tmp_path)), NAME, sides, settled=limits)
    assert found.columns["total"][0] == change
    assert found.column_share("total") > 0


HOSTILE = st.floats() | st.sampled_from([math.inf, -math.inf, math.nan, 1.7e308, -1.7e308])


@given(pairs=st.lists(st.tuples(HOSTILE, HOSTILE), min_size=1, max_size=5), is_equal=st.booleans())
def test_any_doubles_have_a_share_and_only_a_difference_stops(
    pairs: list[tuple[float, float]], *, is_equal: bool
) -> None:
    """Another total makes each window a changed one, so equal values of `mean` are paired as well."""
    pairs = [(before, before if is_equal else after) for before, after in pairs]
    with TemporaryDirectory() as root:
        views = Views(Path(root), OUTPUTS)
        spec = views.spec(["key"], list(OUTPUTS))
        runs = [
            views.run(0, spec, (TABLE, [_row(side, key=str(at), mean=pair[side]) for at, pair in enumerate(pairs)]))
            for side in (0, 1)
        ]
        views.commit()
        sides = sides_of(views, {0: runs[0]}, {0: runs[1]})
        change = settled_change(Lake(root=root), NAME, sides, settled=Settled(until_ms=DAY_MS, columns=("mean",)))
    share = change.column_share("mean")
    differing = [pair for pair in pairs if pair[0] != pair[1] and not all(map(math.isnan, pair))]
    if not differing:
        assert share == 0
    elif not all(math.isfinite(number) for pair in differing for number in pair):
        assert share == math.inf
    else:
        try:
            changed, whole = (math.fsum(abs(b - a) for a, b in pairs), math.fsum(abs(a) for a, _ in pairs))
        except OverflowError:
            changed = whole = math.inf
        is_share = whole and math.isfinite(changed) and math.isfinite(whole)
        assert share == (pytest.approx(changed / whole, abs=1e-300) if is_share else math.inf)


def _row(total: int, **values: object) -> Row:
    row = {
        "key": "a", "window_start": 0, "window_end": 1000 * DAY_MS, "pane_index": 0, "timing": "ON_TIME",
        "is_first": True, "is_last": True, "mode": "accumulating", "kind": "result", "record_count": 1,
        "watermark_ms": 5, "fired_rank": 0, "total": total,
    }  # fmt: skip
    return row | values
