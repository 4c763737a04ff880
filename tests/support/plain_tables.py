"""What a current table promises to readers without Hindcast, on a disk and in an object store."""

import polars
import pyarrow as pa
from deltalake import DeltaTable

from jobs.lake.delta_tables import checkpoint_interval
from jobs.lake.plain_table import Replacement, create_plain, open_plain, replace_slices, write_rows
from jobs.storage import delta_options

SLICE_IDS = ("2013-02-01", "2013-02-01T00:00", "2013-02-01T05:45+05:45", "a b%2F/ü", "x=y,z&?#")
SCHEMA = pa.schema([("n", pa.int64()), ("slice_id", pa.string())])


def check_plain_table(uri: str) -> None:
    """Write a table of slices with any ids, replace some of them, and read it with Polars, Delta and Arrow."""
    create_plain(uri, SCHEMA)
    settings = DeltaTable(uri, storage_options=delta_options(uri)).metadata().configuration
    assert settings == checkpoint_interval(uri), "as the other tables"
    for shows, slices in ((1, SLICE_IDS), (2, SLICE_IDS[1:3])):
        rows = pa.table({"n": [shows] * len(slices), "slice_id": list(slices)}, SCHEMA)
        plain = open_plain(uri)
        assert plain is not None
        new = Replacement(schema=SCHEMA, slices=None if shows == 1 else slices, shows=(shows, 7), notes={})
        assert replace_slices(plain, [*write_rows(uri, rows)], new)
        assert not replace_slices(plain, [*write_rows(uri, rows)], new), "another process has moved the table"
    moved = open_plain(uri)
    assert moved is not None
    assert moved.shows == (2, 7)
    expected = dict(zip(SLICE_IDS, (1, 2, 2, 1, 1), strict=True))
    options = delta_options(uri)
    # Polars takes the options of the store itself, and checks the numbers of retries, which Delta wants as texts.
    for_polars = {name: value for name, value in (options or {}).items() if name != "max_retries"}
    frame = polars.read_delta(uri, storage_options=for_polars)
    assert dict(frame.select("slice_id", "n").iter_rows()) == expected
    before = polars.read_delta(uri, version=1, storage_options=for_polars)
    assert dict(before.select("slice_id", "n").iter_rows()) == dict.fromkeys(SLICE_IDS, 1)
    for table in (DeltaTable(uri, storage_options=options).to_pyarrow_table(), moved.dataset().to_table()):
        assert dict(zip(table["slice_id"].to_pylist(), table["n"].to_pylist(), strict=True)) == expected
    some = moved.dataset(SLICE_IDS[:2]).to_table()
    assert sorted(some["slice_id"].to_pylist()) == [*SLICE_IDS[:2]]
