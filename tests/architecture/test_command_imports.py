"""Commands that only look import no library that they do not need: they answer in less than a second."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hindcast.reading import published

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request_context
from tests.architecture.test_imports import loaded_by
from tests.support.delta_logs import track_rows
from tests.support.fake_replay import FakeReplayer, append_day, day_ms, sales

HEAVY = {"pandas", "pyspark", "delta", "great_expectations", "duckdb", "airflow", "scipy", "pyiceberg"}
NOT_NEEDED = {"email", "psutil", "rich", "zipfile"}
"""What a command needs only for a table, a bar or a colour, or not at all."""


@pytest.mark.parametrize(
    ("modules", "most"),
    [
        ("jobs.cli.main", 388),
        ("jobs.cli.status, jobs.ledger.table", 408),
        ("jobs.cli.decide", 397),
        ("jobs.cli.run", 422),
        ("jobs.cli.inspect", 504),
        ("jobs.cli.explain", 516),
        ("jobs.cli.run, jobs.review.execution", 697),
    ],
)
def test_a_command_imports_few_modules(modules: str, most: int) -> None:
    loaded = loaded_by(f"import {modules}")
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
    assert len(loaded) < most


@pytest.mark.parametrize("command", ["main", "status", "decide", "show"])
def test_a_command_of_plain_lines_imports_nothing_for_tables_and_plugins(command: str) -> None:
    """Pydantic looks for plugins in the metadata of all installed packages, which needs `email` and `zipfile`."""
    module = {"show": "inspect"}.get(command, command)
    loaded = loaded_by(f"import jobs.cli.{module}, jobs.cli.main")
    assert not NOT_NEEDED & {name.partition(".")[0] for name in loaded}


def test_models_of_users_have_the_plugins_of_pydantic() -> None:
    """A command looks for none while it makes its own models; functions of users run later."""
    run = "import sys; sys.argv[1:] = ['comment', '-h']; from jobs.cli import main as cli; cli.end_process = int"
    assert "email" not in loaded_by(f"{run}; cli.main()")
    assert "email" in loaded_by(f"{run}; cli.main(); import pydantic; pydantic.create_model('OfAUser')")


def test_reading_a_ledger_imports_neither_pandas_nor_duckdb(tmp_path: object) -> None:
    """pyarrow.dataset and `pa.table(...)` would import pandas, which takes longer than the reading."""
    write = (
        "from jobs.ledger.ledger import Ledger; "
        "from jobs.ledger.events import EventKind, LedgerEvent; "
        f"ledger = Ledger({str(tmp_path)!r} + '/ledger', now_ms=lambda: 0); "
        "ledger.write(lambda view: [LedgerEvent(kind=EventKind.NOTE)])"
    )
    loaded_by(write)
    read = (
        "from jobs.ledger.ledger import Ledger; "
        f"assert Ledger({str(tmp_path)!r} + '/ledger', now_ms=lambda: 0).view().version == 1"
    )
    loaded = {name.partition(".")[0] for name in loaded_by(read)}
    assert {"pyarrow", "deltalake"} <= loaded
    assert not HEAVY & loaded


def test_a_run_of_a_small_day_imports_nothing_for_sql_bars_and_days_of_months(tmp_path: Path) -> None:
    """DuckDB took a twelfth of such a run, a bar that no terminal shows and the library for schedules 2 % of it."""
    rows = {"k": ["a"] * 2, "at": [1_357_000_000_000, 1_357_050_000_000], "day": [date(2013, 1, 1)] * 2}
    write_deltalake(tmp_path / "log", pa.table(rows), partition_by=["day"])
    track_rows(tmp_path / "log")
    (tmp_path / "small.yaml").write_text(
        "pipeline: small\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
        "  slice: {by: day}\nwatermark: {kind: bounded, out_of_orderness: 6h}\nwindows:\n  tumbling: {size: 1h}\n"
        "aggregates: {n: {count: {}}}\nschedule: '0 6 * * 1-5'\n",
        encoding="utf-8",
    )
    run = [str(tmp_path / "small.yaml"), "--lake", str(tmp_path), "--from", "2013-01-01", "--to", "2013-01-02"]
    loaded = loaded_by(
        f"import sys; sys.argv[1:] = {['run', *run]}; from jobs.cli import main as cli; cli.end_process = int; "
        "sys.stdout = sys.stderr; cli.main(); sys.stdout = sys.__stdout__"
    )
    assert published(str(tmp_path), "small").num_rows == 1
    assert not {"croniter", "rich.progress", *HEAVY} & loaded


def test_readers_without_spark_import_neither_spark_nor_airflow(tmp_path: Path) -> None:
    append_day(tmp_path, "2024-01-01", {"a": 1, "b": 2})
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: 0)
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="a test", reason="")
    assert run_request(work, asked, FakeReplayer()).is_published
    read = (
        "from hindcast.reading import published; "
        f"rows = published({str(tmp_path)!r}, 'sales', keys={{'key': ['a']}}, from_='2024-01-01', columns=['total']); "
        "assert rows.to_pylist() == [{'total': 1}], rows"
    )
    loaded = {name.partition(".")[0] for name in loaded_by(read)}
    assert {"deltalake", "duckdb"} <= loaded
    assert not (HEAVY - {"duckdb", "pandas"}) & loaded


def test_pyarrow_starts_without_pandas_and_pandas_can_be_imported_later() -> None:
    start = "from jobs.cli.arrow_start import keep_pandas_out; keep_pandas_out(); import sys, pyarrow as pa"
    use = "import pyarrow.dataset, pyarrow.compute; pa.array([1, None]); pa.array(['a']); pa.table({'a': [1]})"
    assert not HEAVY & {name.partition(".")[0] for name in loaded_by(f"{start}; {use}")}
    later = "assert pa.table({'a': [1]}).to_pandas().equals(pa.Table.from_pandas(pd.DataFrame({'a': [1]})).to_pandas())"
    assert "pandas" in loaded_by(f"{start}; {use}; import pandas as pd; {later}")


def test_pyarrow_parses_no_texts_of_help() -> None:
    start = "from jobs.cli.arrow_start import leave_help_out; leave_help_out(); import pyarrow.compute as pc"
    use = "assert pc.round([1.25], 1)[0].as_py() == 1.2; assert 'ndigits' in str(pc.round.__signature__)"
    assert "pydoc" not in loaded_by(f"{start}; {use}")


def test_a_log_of_another_format_imports_no_reader_of_iceberg_tables(tmp_path: object) -> None:
    """Pyiceberg takes half a second. The doctor looks what a log is before it opens it."""
    write = (
        "from deltalake import write_deltalake; import pyarrow as pa; "
        f"write_deltalake({str(tmp_path)!r}, pa.table({{'a': [1]}}))"
    )
    loaded_by(write)
    look = f"from jobs.doctor.table_facts import read_table_facts; read_table_facts({str(tmp_path)!r})"
    loaded = {name.partition(".")[0] for name in loaded_by(look)}
    assert "deltalake" in loaded
    assert "pyiceberg" not in loaded
