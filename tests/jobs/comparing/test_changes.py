"""The changes between two views, applied to the windows before, give the windows after."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jobs.comparing.changes import DELETE, INSERT, WindowChanges, window_changes
from jobs.comparing.views import Side, Sides
from jobs.lake.lake import Lake
from jobs.reading.published import read_published
from tests.jobs.comparing.test_compare import OUTPUTS, TABLE, VALUES, random_options, sides_of, slightly, spelled
from tests.support.fuzzing import seeds
from tests.support.random_views import NAME, Row, Views, random_windows
from windowlib.records import tables

COLUMNS = ("key", "window_start", "window_end", *OUTPUTS, "record_count")
FEWER = tables.window_outputs({"key": "string"}, {"total": "bigint"})


def random_sides(views: Views, rng: Random) -> Sides:
    """Return two views of a few days. The runs of the second one may be of a spec with fewer outputs."""
    specs = views.spec(["key"], list(OUTPUTS)), views.spec(["key"], ["total"])
    days = rng.randint(1, 4)
    chosen = [random_windows(rng, (), days=days, values=(0,)) for _ in range(2)]
    sides: tuple[dict[int, str], dict[int, str]] = {}, {}
    for day in range(days):
        first = [row | {name: rng.choice(VALUES[name]) for name in OUTPUTS} for row in chosen[0][day]]
        own = views.run(day, specs[0], (TABLE, first))
        others: Mapping[str, Iterable[Row]] = {
            "other": [row | {name: rng.choice(VALUES[name]) for name in OUTPUTS} for row in chosen[1][day]],
            "slightly": [slightly(rng, row) for row in first],
            "fewer": [{name: value for name, value in row.items() if name not in {"mean", "stops"}} for row in first],
        }
        how = rng.choice(["same", "new", "gone", *others])
        if how != "new":
            sides[0][day] = own
        if how in others:
            table, spec = (FEWER, specs[1]) if how == "fewer" else (TABLE, specs[0])
            sides[1][day] = views.run(day, spec, (table, list(others[how])))
        elif how != "gone":
            sides[1][day] = own
    return sides_of(views, *sides)


def windows_of(lake: Lake, sides: Sides, side: Side) -> Counter[tuple[object, ...]]:
    published = {slice_id: run.result.run_id for slice_id, run in side.runs.items()}
    rows = read_published(lake, NAME, replace(sides.view, published=published))
    return Counter(spelled_row(row) for row in rows.to_pylist())


def spelled_row(row: Mapping[str, Any], prefix: str = "") -> tuple[object, ...]:
    match = COLUMNS[:3]
    return tuple(spelled(row[name] if name in match else row.get(prefix + name)) for name in COLUMNS)


def applied(windows: Counter[tuple[object, ...]], changes: WindowChanges) -> Counter[tuple[object, ...]]:
    result = Counter(windows)
    for row in changes.rows.to_pylist():
        if row["operation"] != INSERT:
            result[spelled_row(row, "before_")] -= 1
        if row["operation"] != DELETE:
            result[spelled_row(row, "after_")] += 1
    assert min(result.values(), default=0) >= 0, "a change removes a row that is there"
    return +result


@pytest.mark.slow
def test_the_changes_lead_from_the_windows_before_to_those_after(tmp_path: Path) -> None:
    for seed in seeds(20):
        rng = Random(seed)
        views = Views(tmp_path / str(seed), OUTPUTS)
        sides = random_sides(views, rng)
        views.commit()
        lake = Lake(root=str(views.root))
        changes = window_changes(lake, NAME, sides, options=random_options(rng, all_panes=False))
        before, after = (windows_of(lake, sides, side) for side in (sides.before, sides.after))
        assert applied(before, changes) == after
        back = window_changes(lake, NAME, Sides(view=sides.view, before=sides.after, after=sides.before))
        assert applied(after, back) == before
        assert back.rows.num_rows == changes.rows.num_rows
        again = window_changes(lake, NAME, sides, options=random_options(rng, all_panes=False))
        assert repr(again.to_json()) == repr(changes.to_json())  # a NaN is not equal to itself


def test_a_key_column_with_the_name_of_a_column_of_changes_has_a_prefix(tmp_path: Path) -> None:
    """Defect: `hindcast changes` of an audit log with the key `operation` ended in an ArrowInvalid."""
    keys = ("operation", "before_total", "key_operation", "After_Total")
    table = tables.window_outputs(dict.fromkeys(keys, "string"), {"total": "bigint"})
    views = Views(tmp_path, {"total": "bigint"})
    spec = views.spec(keys, ["total"])
    (row,) = random_windows(Random(1), (), days=1, values=(0,))[0][:1]
    own = {name: value for name, value in row.items() if name != "key"} | {name: name[0] for name in keys}
    runs = [views.run(0, spec, (table, [own | {"total": total}])) for total in (1, 2)]
    views.commit()
    changes = window_changes(Lake(root=str(views.root)), NAME, sides_of(views, {0: runs[0]}, {0: runs[1]}))
    (change,) = changes.to_json()
    assert {name: change["window"][name] for name in keys} == {name: name[0] for name in keys}
    assert (change["operation"], change["before"]["total"], change["after"]["total"]) == ("update", 1, 2)
    assert changes.rows.column_names[:5] == [
        "operation", "key_key_operation", "key_before_total", "key_operation", "key_After_Total"
    ]  # fmt: skip
