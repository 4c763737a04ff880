"""Published windows chosen by keys, starts and columns: the rows of a full read, from fewer files."""

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.lake.delta_tables import open_table
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, StagedRun
from jobs.reading.published import read_published
from jobs.reading.selection import Selection, read_selected
from jobs.reading.stored_rows import run_attempt, statistics_digests
from tests.jobs.comparing.test_compare import OUTPUTS, TABLE, VALUES
from tests.support.delta_logs import change_bounds
from tests.support.fuzzing import seeds
from tests.support.random_views import NAME, Row, Views, random_windows
from windowlib.errors import RequestError, StoreError
from windowlib.records.tables import WINDOW_OUTPUTS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def published_views(root: Path, days: Sequence[Sequence[Row]]) -> tuple[Views, LedgerView]:
    views = Views(root, OUTPUTS)
    spec = views.spec(["key"], list(OUTPUTS))
    runs = [views.run(day, spec, (TABLE, rows)) for day, rows in enumerate(days)]
    views.commit()
    return views, views.view({views.runs[run].result.slice.slice_id: run for run in runs})


def random_selection(rng: Random) -> Selection:
    start, end = sorted(rng.sample(range(5), 2))
    return Selection(
        keys=rng.choice([{}, {"key": ["a"]}, {"key": ["b", None]}, {"key": []}, {"key": {"a", "z"}}]),
        from_=rng.choice([None, EPOCH + timedelta(days=start), f"1970-01-0{start + 1}", datetime(1970, 1, start + 1)]),  # noqa: DTZ001
        to=rng.choice([None, EPOCH + timedelta(days=end), f"1970-01-0{end + 1}T00:00+00:00"]),
        columns=rng.choice([None, ["total"], ["watermark_ms", "key"], ["slice_id", "stops", "window_end"]]),
    )


def is_chosen(row: dict[str, Any], wanted: Selection) -> bool:
    bounds = [
        bound if bound is None or isinstance(bound, datetime) else datetime.fromisoformat(str(bound))
        for bound in (wanted.from_, wanted.to)
    ]
    first, last = (None if bound is None else bound.replace(tzinfo=UTC) for bound in bounds)
    start = row["window_start"]
    if start is None and (first or last):
        return False
    return (
        ("key" not in wanted.keys or row["key"] in wanted.keys["key"])
        and (first is None or start >= first)
        and (last is None or start < last)
    )


@pytest.mark.slow
def test_chosen_windows_are_those_of_a_full_read(tmp_path: Path) -> None:
    for seed in seeds(15):
        rng = Random(seed)
        days = random_windows(rng, (), days=rng.randint(1, 4), values=(0,))
        valued = [[row | {name: rng.choice(VALUES[name]) for name in OUTPUTS} for row in rows] for rows in days]
        views, view = published_views(tmp_path / str(seed), valued)
        lake = Lake(root=str(views.root))
        full = read_published(lake, NAME, view)
        if not full.column_names:
            continue
        for _ in range(8):
            wanted = random_selection(rng)
            chosen, content_rows = wanted.checked(lake, NAME, view), rng.choice([None, 0, 3, 10_000])
            rows = read_published(lake, NAME, view, chosen=chosen, columns=wanted.columns, content_rows=content_rows)
            names = list(wanted.columns or full.column_names)
            expected = [row for row in full.to_pylist() if is_chosen(row, wanted)]
            assert rows.column_names == names
            assert repr(rows.to_pylist()) == repr([{name: row[name] for name in names} for row in expected])


HIDING = (
    ("minValues", "key", "z"),
    ("maxValues", "key", ""),
    ("minValues", "window_start", "1980-01-01T00:00:00.000Z"),
    ("maxValues", "window_start", "1960-01-01T00:00:00.000Z"),
)
"""Bounds that say that a file has no chosen row."""


@pytest.mark.slow
def test_damaged_statistics_hide_no_window(tmp_path: Path) -> None:
    differing = 0
    for seed in seeds(8):
        rng = Random(seed)
        days = random_windows(rng, (), days=rng.randint(2, 4), values=(0,))
        valued = [[row | dict.fromkeys(OUTPUTS) for row in rows] for rows in days]
        views, _ = published_views(tmp_path / str(seed), valued)
        place = views.root / NAME / WINDOW_OUTPUTS
        if not place.exists():
            continue
        views.seal_statistics()
        view = views.view({run.result.slice.slice_id: run_id for run_id, run in views.runs.items()})
        lake = Lake(root=str(views.root))
        full = read_published(lake, NAME, view).to_pylist()
        change_bounds(place, *rng.choice(HIDING), chance=rng)
        stored = {(run := view.run(run_id)).result.slice.slice_id: run for run_id in views.runs}
        differing += any(run_attempt(run) not in usable_statistics(place, [run]) for run in stored.values())
        for _ in range(4):
            wanted = random_selection(rng)
            rows = read_published(lake, NAME, view, chosen=wanted.checked(lake, NAME, view))
            expected = [row for row in full if is_chosen(row, wanted)]
            assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, expected)), seed
    assert differing > 3


def usable_statistics(place: Path, runs: Sequence[StagedRun]) -> frozenset[tuple[str, str]]:
    table = open_table(str(place))
    assert table is not None
    return table.listing().with_statistics(statistics_digests(runs))


def test_a_damaged_footer_that_hides_windows_is_refused(tmp_path: Path) -> None:
    views, _ = published_views(tmp_path, [[day_row(0), day_row(3), day_row(5)]])
    views.seal_statistics()
    view, lake = views.view({"2024-01-01": "0" * 32}), Lake(root=str(views.root))
    wanted = Selection(from_="1970-01-05", columns=["total"])
    chosen = wanted.checked(lake, NAME, view)
    read = partial(read_published, lake, NAME, view, chosen=chosen, columns=["total"], content_rows=0)
    assert read()["total"].to_pylist() == [5]
    file = file_of_day(views, 0)
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    last, other = (struct.pack("<q", day * 86_400_000_000) for day in (5, 3))
    assert last in content[footer:]
    file.write_bytes(content[:footer] + content[footer:].replace(last, other))
    with pytest.raises(StoreError, match="the statistics in the footers of its files hide some of them"):
        read()


def day_row(day: int, key: str = "a") -> Row:
    start = day * 86_400_000_000
    return {
        "key": key, "window_start": start, "window_end": start + 86_400_000_000, "pane_index": 0, "timing": "ON_TIME",
        "is_first": True, "is_last": True, "mode": "accumulating", "kind": "result", "record_count": 1,
        "watermark_ms": 0, "fired_rank": 0, "total": day,
    }  # fmt: skip


def file_of_day(views: Views, day: int) -> Path:
    table = DeltaTable(views.root / NAME / WINDOW_OUTPUTS)
    [uri] = [uri for uri in table.file_uris() if f"slice_id=2024-01-{day + 1:02d}/" in uri]
    return Path(uri)


def test_files_without_a_chosen_window_are_not_opened(tmp_path: Path) -> None:
    views, view = published_views(tmp_path, [[day_row(day, key)] for day, key in enumerate("aab")])
    lake = Lake(root=str(views.root))
    file_of_day(views, 2).unlink()
    wanted = Selection(keys={"key": ["a"]}, columns=["total"])
    assert read_selected(lake, NAME, wanted, view=view)["total"].to_pylist() == [0, 1]
    file_of_day(views, 0).unlink()
    wanted = Selection(from_="1970-01-02", to="1970-01-03", columns=["total"])
    assert read_selected(lake, NAME, wanted, view=view)["total"].to_pylist() == [1]
    with pytest.raises(StoreError, match="cannot be read"):
        read_selected(lake, NAME, Selection(to="1970-01-02"), view=view)


def test_lost_and_changed_rows_of_the_read_slices_are_refused(tmp_path: Path) -> None:
    views, view = published_views(tmp_path, [[day_row(0), day_row(0, "b")], [day_row(1)]])
    lake = Lake(root=str(views.root))
    place = str(views.root / NAME / WINDOW_OUTPUTS)
    DeltaTable(place).update({"total": "9"}, predicate="key = 'b'")
    assert read_selected(lake, NAME, Selection(keys={"key": ["a"]}), view=view).num_rows == 2
    with pytest.raises(StoreError, match="slice 2024-01-01"):
        read_selected(lake, NAME, Selection(keys={"key": ["b"]}), view=view)
    DeltaTable(place).delete("key = 'b'")
    with pytest.raises(StoreError, match=r"slice 2024-01-01.*lost, doubled or changed"):
        read_selected(lake, NAME, Selection(keys={"key": ["a"]}), view=view)
    assert read_selected(lake, NAME, Selection(from_="1970-01-02"), view=view).num_rows == 1
    DeltaTable(place).delete("slice_id = '2024-01-02'")  # without any file, no statistic leaves the slice out
    with pytest.raises(StoreError, match=r"slice 2024-01-02.*has 0 rows"):
        read_selected(lake, NAME, Selection(from_="1980-01-01"), view=view)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (Selection(columns=["totals"]), "no column 'totals' to read; it has key, window_start"),
        (Selection(columns=["row_id"]), "no column 'row_id'"),
        (Selection(keys={"total": [1]}), "'total' is no key column; the key columns are key"),
        (Selection(columns="key"), r"columns must be a list, such as \['key'\]"),
        (Selection(keys={"key": "AA"}), r"must be a list, such as \['AA'\]"),
        (Selection(keys={"key": [1]}), r"key 'key' is a string, and \[1\] has another value"),
        (Selection(from_="yesterday"), "from_ must be a datetime, or a text such as 2013-02-08"),
        (Selection(to=5), "to must be a datetime"),  # type: ignore[arg-type]
        (Selection(from_="1970-01-02", to="1970-01-02"), "is empty"),
        (Selection(table="late_records"), "no published table 'late_records'; it has window_outputs"),
    ],
)
def test_a_wrong_selection_is_refused_by_name(tmp_path: Path, wanted: Selection, problem: str) -> None:
    views, view = published_views(tmp_path, [[day_row(0)]])
    with pytest.raises(RequestError, match=problem):
        read_selected(Lake(root=str(views.root)), NAME, wanted, view=view)


def test_keys_may_be_an_arrow_array(tmp_path: Path) -> None:
    views, view = published_views(tmp_path, [[day_row(0)]])
    rows = [
        read_selected(Lake(root=str(views.root)), NAME, Selection(keys={"key": values}), view=view).num_rows
        for values in (pa.array(["a"]), ["a"], pa.array(["zz"]))
    ]
    assert rows == [1, 1, 0]


def test_bounds_of_texts_and_numbers_skip_files_and_unknown_ones_do_not() -> None:
    from jobs.lake.row_filter import RowFilter

    files = pa.table(
        {
            "min.key": ["a", "c", None, "a"],
            "max.key": ["b", "d", None, None],
            "min.n": [1, 5, 5, 9],
            "max.n": [3, 5, 9, 9],
        }
    )
    by_key = RowFilter(values={"key": pa.array(["b", "e"])}).may_match(files)
    assert by_key.to_pylist() == [True, False, True, True]
    assert RowFilter(values={"n": pa.array([4, 6])}).may_match(files).to_pylist() == [False, False, True, False]
    assert RowFilter(values={"n": pa.array([4, None])}).may_match(files).to_pylist() == [True] * 4
    assert RowFilter(values={"other": pa.array([4])}).may_match(files).to_pylist() == [True] * 4
    many = RowFilter(values={"n": pa.array(range(-200, 1))}).may_match(files)
    assert many.to_pylist() == [False] * 4
