"""Tables in the store without Spark: slice ids of any text, appends at once, shuffles, damaged and lost objects."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from jobs.lake.delta_tables import open_delta
from jobs.lake.file_commits import append_rows, commit_files
from jobs.lake.lake import Lake
from jobs.lake.store import ensure_table, read_attempts
from jobs.replay.stages.parquet_writer import KnownRun, SliceWriter
from jobs.replay.stages.shuffle_files import ShuffleWriter, read_shuffled
from jobs.replay.stages.windows import load_steps, save_steps
from jobs.storage import remove_directory
from tests.support.leftovers import check_leftover_files
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.plain_tables import SLICE_IDS, check_plain_table
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.watermark_steps import Steps
from windowlib.errors import StoreError
from windowlib.records import tables

pytestmark = pytest.mark.s3

TABLE = tables.window_outputs({"k": "bigint"}, {"n": "bigint"})


def rows_of(count: int) -> pa.Table:
    kinds = {name: arrow_type(node) for name, node in TABLE.emitted_columns().items()}
    columns = {name: pa.nulls(count, kind) for name, kind in kinds.items()}
    return pa.table({**columns, "n": pa.array(range(count), pa.int64())})


def columns_of(slice_id: str) -> dict[str, str]:
    return {"slice_id": slice_id, "attempt_id": "a" * 32, "run_id": "b" * 32}


def placed(slice_id: str, count: int) -> pa.Table:
    own = {name: pa.array([text] * count) for name, text in columns_of(slice_id).items()}
    rows = {name: rows_of(count)[name] for name in TABLE.emitted_columns()}
    schema = pa.schema([(name, arrow_type(node)) for name, node in TABLE.stored_columns().items()])
    return pa.table({**rows, **own}).select(schema.names).cast(schema)


def test_rows_of_any_slice_are_read_back(lake: str) -> None:
    uri = f"{lake}/p/window_outputs"
    ensure_table(uri, TABLE)
    for number, slice_id in enumerate(SLICE_IDS):
        files = SliceWriter(table=TABLE, root=uri, columns=columns_of(slice_id), rows_per_file=10)
        for _ in range(3):
            files.write(rows_of(7 + number))
        files.close()
        stored = commit_files(uri, [one.file for one in files.written])
        append_rows(uri, placed(slice_id, 2))
        attempt = (slice_id, "a" * 32)
        found = read_attempts(uri, [attempt], ["n", "slice_id"])
        assert found.num_rows == 3 * (7 + number) + 2
        assert {*found["slice_id"].to_pylist()} == {slice_id}
        assert sum(one.records or 0 for one in stored) == found.num_rows - 2


def test_a_plain_table_in_the_store_is_read_by_others(lake: str) -> None:
    check_plain_table(f"{lake}/p/current_window_outputs")


def test_appends_at_once_are_all_kept(lake: str) -> None:
    uri = f"{lake}/p/window_outputs"
    ensure_table(uri, TABLE)
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda number: append_rows(uri, placed(f"slice-{number}", 3)), range(24)))
    assert open_delta(uri).to_pyarrow_table().num_rows == 72


def test_shuffle_files_and_steps_pass_through_the_store(lake: str) -> None:
    place, random = f"{lake}/p/_scratch/a", Random(7)
    rows = pa.table({"n": np.arange(1_000)})
    writer = ShuffleWriter(place, "rows")
    starts = sorted(random.sample(range(1, 1_000), 9))
    for start, end in zip([0, *starts], [*starts, 1_000], strict=True):
        writer.write(rows.slice(start, end - start), slice_no=0)
    writer.close()
    batches = [batch for _, batch in read_shuffled(random.sample(writer.shuffled, len(writer.shuffled)))]
    assert sorted(pa.Table.from_batches(batches)["n"].to_pylist()) == [*range(1_000)]
    arrays = {name: np.arange(50) for name in ("sequence", "due_ms", "clock_ms")}
    steps = Steps(**arrays, watermark_ms=np.zeros(50, np.int64), slice_ends=(50,), ranges=())
    bare, shuffled = save_steps(steps, place)
    stored = load_steps(shuffled, bare)
    assert (stored.due_ms == steps.due_ms).all()
    assert (stored.watermark_ms == 0).all()
    assert len(stored.watermark_ms) == 50
    remove_directory(place)
    with pytest.raises(OSError, match=r"\w"):
        list(read_shuffled(writer.shuffled))


def test_the_files_of_a_failed_attempt_are_removed(store: ObjectStore, lake: str) -> None:
    uri = f"{lake}/p/window_outputs"
    ensure_table(uri, TABLE)
    append_rows(uri, placed("kept", 4))
    known = KnownRun(columns=columns_of("2013-02-01T00:00"), roots={TABLE.name: uri}, rows_from=0, rows_per_file=10)
    files = SliceWriter(table=TABLE, root=uri, columns=known.columns, rows_per_file=10)
    files.write(rows_of(5))
    files.close()
    assert len(_data(store, uri)) == 2
    known.remove()
    assert len(_data(store, uri)) == 1
    assert read_attempts(uri, [("kept", "a" * 32)]).num_rows == 4


@pytest.mark.parametrize("damage", ["cut", "lost"])
def test_a_damaged_object_is_an_error_that_names_the_table(store: ObjectStore, lake: str, damage: str) -> None:
    uri = f"{lake}{damage}/p/window_outputs"
    ensure_table(uri, TABLE)
    append_rows(uri, placed("one", 500))
    (file,) = _data(store, uri)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-20])
    else:
        file.unlink()
    with pytest.raises(StoreError, match=f"table {uri} cannot be read"):
        read_attempts(uri, [("one", "a" * 32)])


def _data(store: ObjectStore, uri: str) -> list[Path]:
    root = store.directory / "objects" / BUCKET / uri.partition(f"{BUCKET}/")[2]
    return [path for path in root.rglob("*.parquet") if "_delta_log" not in path.parts]


def test_exactly_the_left_objects_are_found_and_removed(lake: str) -> None:
    check_leftover_files(Lake(root=lake), Random(1))
