"""Parquet files are opened and written in one module, which compares and writes the checksums of their pages."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.places import ROOT

HOME = "jobs/lake/parquet_files.py"
CALLS = {
    "ParquetFile", "ParquetDataset", "ParquetFileFormat", "ParquetFragmentScanOptions", "ParquetWriter",
    "read_table", "read_pandas", "read_parquet", "scan_parquet", "to_parquet", "parquet_scan", "parquet_dataset",
    "write_dataset", "write_to_dataset", "to_pyarrow_table",
}  # fmt: skip
"""Calls that open or write a Parquet file. A footer (`read_metadata`, `read_schema`) has no page."""
WRITES_NO_FILE = {
    "jobs/demo/clicks_live.py": "writes a log, as a producer does, and no table of outputs",
    "jobs/lake/store.py": "add_fields changes the columns of a table, by appending no rows",
    "jobs/ledger/table.py": "the hash chain covers its rows",
}
"""Modules that may append to a Delta table by deltalake, which writes no page checksums."""


def opens(source: str) -> Iterator[str]:
    """Yield the calls of a module that open or write a Parquet file by another way than `HOME`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in CALLS:
                yield f"{node.lineno}: {name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pq" | "parquet"), attr="write_table")):
                yield f"{node.lineno}: write_table()"
            case ast.keyword(arg="format", value=ast.Constant(value="parquet")):
                yield f"{node.value.lineno}: format='parquet'"
            case ast.Constant(value=str(text)) if "read_parquet(" in text or "parquet_scan(" in text:
                yield f"{node.lineno}: SQL reads Parquet"
            case _:
                pass


def modules() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("jobs", "windowlib", "expectations", "dags", "deploy")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def test_parquet_is_opened_and_written_in_one_module() -> None:
    found = {name: [*opens(source)] for name, source in modules().items()}
    assert found.pop(HOME)
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_deltalake_appends_no_rows_to_tables_of_outputs() -> None:
    callers = {name for name, source in modules().items() if "write_deltalake(" in source}
    assert callers == {*WRITES_NO_FILE}


@pytest.mark.parametrize(
    "source",
    [
        "pq.ParquetFile(path)", "pyarrow.parquet.read_table(path)", "pq.write_table(rows, path)",
        "ds.dataset(place, format='parquet')", "query('SELECT * FROM read_parquet(?)')", "pads.ParquetFileFormat()",
        "with ParquetWriter(path, schema) as writer:\n    pass",
    ],
)  # fmt: skip
def test_the_check_finds_other_ways(source: str) -> None:
    assert [*opens(source)]


def test_the_check_allows_footers_and_our_writer() -> None:
    assert not [*opens("pq.read_metadata(path)\nwriter.write_table(rows)\ndata: pq.ParquetFile = open_parquet(path)")]
