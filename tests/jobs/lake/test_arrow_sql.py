"""SQL over Arrow tables: connections of one process, of many threads and of forked processes do not meet."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from jobs.lake import arrow_sql
from jobs.lake.arrow_sql import ArrowSql, plain_rows, query
from jobs.spark import private_dir
from tests.support.places import ROOT

SUM = "SELECT sum(a) FROM t"


def table(*values: int) -> pa.Table:
    return pa.table({"a": values})


def total(values: range) -> int:
    return int(plain_rows(query({"t": table(*values)}, SUM))[0][0])


def test_tables_of_the_same_name_do_not_meet() -> None:
    with ArrowSql() as outer, ArrowSql() as inner:
        outer.query({"t": table(1)}, "CREATE TEMP TABLE kept AS SELECT * FROM t")
        assert plain_rows(inner.query({"kept": table(2), "t": table(3)}, "SELECT kept.a, t.a FROM kept, t")) == [(2, 3)]
        assert plain_rows(outer.query({}, "SELECT * FROM kept")) == [(1,)]
    with ArrowSql() as later, pytest.raises(Exception, match="kept"):
        later.query({}, "SELECT * FROM kept")


@pytest.mark.slow
def test_threads_ask_at_once() -> None:
    asked = [range(number, number + 20) for number in range(300)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(total, asked)) == [sum(one) for one in asked]


FORKING = """
import multiprocessing
from tests.jobs.lake.test_arrow_sql import total

assert total(range(3)) == 3
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(total, [range(4), range(5)]).get(timeout=60) == [6, 10]
assert total(range(6)) == 15
"""


@pytest.mark.slow
def test_a_forked_process_has_a_database_of_its_own() -> None:
    """The threads of a database do not exist in a forked process. The tests have threads of others, so no fork here."""
    subprocess.run([sys.executable, "-c", FORKING], cwd=ROOT, check=True, timeout=120)


def test_every_connection_is_in_utc(tmp_path: Path) -> None:
    sql = "SELECT '2020-01-01'::TIMESTAMPTZ"
    for connection in (ArrowSql(), ArrowSql(memory_mb=100), ArrowSql(spill=str(tmp_path))):
        with connection as opened:
            assert plain_rows(opened.query({}, sql)) == [(datetime(2020, 1, 1, tzinfo=UTC),)]


def test_a_setting_is_for_one_connection(tmp_path: Path) -> None:
    asked = "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    with ArrowSql(memory_mb=123, spill=str(tmp_path)) as bounded, ArrowSql() as usual:
        assert plain_rows(bounded.query({}, asked)) == [("117.3 MiB", str(tmp_path))]
        assert plain_rows(usual.query({}, asked)) != plain_rows(bounded.query({}, asked))


def test_a_defect_of_duckdb_does_not_end_later_queries() -> None:
    far = pa.table({"moment": pa.array([-(1 << 63)]).cast(pa.timestamp("us"))})
    for _ in range(2):
        with pytest.raises(duckdb.Error, match="INTERNAL Error"):
            query({"far": far}, "SELECT CAST(moment AS VARCHAR) FROM far")
        assert query({}, "SELECT 1 AS n").to_pylist() == [{"n": 1}]


def test_what_does_not_fit_into_memory_is_for_this_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's own directory is `.tmp` in the working directory."""
    monkeypatch.setattr(private_dir, "scratch", lambda: tmp_path)
    asked = "SELECT current_setting('temp_directory')"
    for mode, is_private in ((0o700, True), (0o755, False)):
        monkeypatch.setattr(arrow_sql, "_DATABASES", {})
        directory = tmp_path / f"hindcast-duckdb-{os.geteuid()}"
        directory.mkdir(exist_ok=True)
        directory.chmod(mode)
        [(place,)] = plain_rows(query({}, asked))
        assert place == (str(directory) if is_private else "")


SPILLING = """
import os, sys
from jobs.lake.arrow_sql import ArrowSql

with ArrowSql(memory_mb=10, spill=sys.argv[1]) as sql:
    sql.query({}, "CREATE TABLE rows AS SELECT range AS a, hash(range)::VARCHAR AS b FROM range(400_000)")
    print(*{name.split("_")[2] for name in os.listdir(sys.argv[1])}, os.getpid(), flush=True)
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_could_not_keep_in_memory_is_removed_by_the_next_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPILLING, str(tmp_path)]
    for _ in range(2):
        answer = subprocess.run(command, cwd=ROOT, check=False, timeout=120, capture_output=True, text=True)
        owner, process = answer.stdout.split()
        assert owner == process, answer.stderr
