"""Exports of published rows: the rows of a read, whole or not at all."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.reading.blocks import published_blocks, published_schema
from jobs.reading.export import Format, export
from jobs.reading.published import read_published
from tests.jobs.comparing.test_compare import OUTPUTS, VALUES
from tests.jobs.reading.test_selection import published_views, random_selection
from tests.support.fuzzing import seeds
from tests.support.random_views import NAME, random_windows
from windowlib.errors import RequestError, StoreError

SCHEMA = pa.schema([("key", pa.string()), ("stops", pa.list_(pa.string())), ("raw", pa.binary())])
ROWS = pa.table({"key": ["a", None, ""], "stops": [["x", None], None, []], "raw": [b"\x00\xff", None, b""]}, SCHEMA)


@pytest.mark.slow
def test_blocks_are_the_rows_of_one_read(tmp_path: Path) -> None:
    for seed in seeds(10):
        rng = Random(seed)
        days = random_windows(rng, (), days=rng.randint(1, 4), values=(0,))
        valued = [[row | {name: rng.choice(VALUES[name]) for name in OUTPUTS} for row in rows] for rows in days]
        views, view = published_views(tmp_path / str(seed), valued)
        lake = Lake(root=str(views.root))
        if not read_published(lake, NAME, view).column_names:
            continue
        for _ in range(4):
            wanted = random_selection(rng)
            whole = read_published(lake, NAME, view, chosen=wanted.checked(lake, NAME, view), columns=wanted.columns)
            blocks = [*published_blocks(lake, NAME, wanted, view=view, rows=rng.choice([1, 3, 1_000]))]
            rows = pa.concat_tables([published_schema(lake, NAME, wanted, view=view).empty_table(), *blocks])
            assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, whole.to_pylist()))
            assert rows.column_names == whole.column_names


@pytest.mark.parametrize("form", Format)
def test_an_export_has_the_rows_and_names_its_ledger_version(tmp_path: Path, form: Format) -> None:
    target = tmp_path / f"rows.{form.value}"
    written = export([ROWS, ROWS], str(target), form, schema=SCHEMA, notes={"hindcast.ledger_version": "7"})
    assert (written.rows, written.path) == (6, str(target))
    assert written.bytes > 0
    if form is Format.CSV:
        options = pacsv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
        texts = pacsv.read_csv(target, convert_options=options)
        assert texts["key"].to_pylist() == ["a", None, ""] * 2
        assert texts["stops"].to_pylist() == ['["x", null]', None, "[]"] * 2
        assert texts["raw"].to_pylist() == ['"00ff"', None, '""'] * 2
        return
    if form is Format.DELTA:
        table = DeltaTable(target).to_pyarrow_table()
        assert DeltaTable(target).history()[0]["hindcast.ledger_version"] == "7"
    else:
        table = pq.read_table(target)
        assert pq.read_metadata(target).metadata[b"hindcast.ledger_version"] == b"7"
    assert table.to_pylist() == ROWS.to_pylist() * 2


def test_a_text_that_looks_like_a_formula_is_exported_as_it_is_stored(tmp_path: Path) -> None:
    """Programs read the file. In the CSV files of the review pages, such a text begins with an apostrophe."""
    texts = ["=1+1", "+1", "-1", "@x", "\t=1", "'=1"]
    rows = pa.table({"key": texts, "stops": [[text] for text in texts], "raw": [b""] * len(texts)}, SCHEMA)
    target = tmp_path / "rows.csv"
    export([rows], str(target), Format.CSV, schema=SCHEMA, notes={})
    assert pacsv.read_csv(target)["key"].to_pylist() == texts


@pytest.mark.parametrize("form", Format)
def test_an_export_that_fails_leaves_nothing_behind(tmp_path: Path, form: Format) -> None:
    def blocks() -> Iterator[pa.Table]:
        yield ROWS
        raise StoreError("a damaged file")

    target = tmp_path / "rows"
    if form is Format.DELTA:
        target.mkdir()
    with pytest.raises(StoreError, match="a damaged file"):
        export(blocks(), str(target), form, schema=SCHEMA, notes={})
    assert [*tmp_path.rglob("*")] == ([target] if form is Format.DELTA else [])
    assert export([ROWS], str(target), form, schema=SCHEMA, notes={}).rows == 3


@pytest.mark.parametrize("form", Format)
def test_nothing_that_exists_is_overwritten(tmp_path: Path, form: Format) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for target, problem in (
        ("full", "exists and is not overwritten"),
        ("full/mine", "exists and is not overwritten"),
        ("nowhere/rows", "there is no directory"),
    ):
        with pytest.raises(RequestError, match=problem):
            export([ROWS], str(tmp_path / target), form, schema=SCHEMA, notes={})
    with pytest.raises(RequestError, match="is a URI"):
        export([ROWS], "s3://bucket/rows", form, schema=SCHEMA, notes={})
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "mine"]
    assert (tmp_path / "full" / "mine").read_text() == "mine"
