"""The tables of the checks of a chunk: committed rows of all runs by slice, read in batches, and the rows of `run`."""

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from expectations import slices
from expectations.arrow_slices import ArrowSlices
from expectations.loader import EXPECTATIONS_DIR, load_suite_file
from expectations.suites import RUN, RUN_COLUMNS
from jobs.lake.file_commits import append_rows
from jobs.lake.store import ensure_table
from jobs.replay import checked_tables, checks
from jobs.replay.checked_tables import CommittedSlices, run_rows
from jobs.runs import Counts, Slice, Verdict
from tests.support.fuzzing import seeds
from windowlib.records import tables

ATTEMPT = "attempt-1"
SUITES = load_suite_file(EXPECTATIONS_DIR / "flights.json")
SLICE_IDS = ("2013-02-08", "2013-02-09", "2013-02-10")
SLICES = [Slice(slice_id=name, start_ms=number, end_ms=number + 1) for number, name in enumerate(SLICE_IDS)]


def late_rows(chance: random.Random, count: int) -> pa.Table:
    """Return rows of several slices and attempts, in which some checks fail."""
    rows = [
        {
            "slice_id": chance.choice([*SLICE_IDS, "2013-02-11"]),
            "attempt_id": chance.choice([ATTEMPT, ATTEMPT, "attempt-0"]),
            "rank": chance.randrange(count),
            "late_by_ms": chance.choice([1, 5, 0, 10**9]),
            "event_time_ms": chance.choice([7, 7, None]),
            "watermark_ms": 9,
            "reason": chance.choice(["late", None]),
        }
        for _ in range(count)
    ]
    table = tables.late_records("string")
    schema = checked_tables.arrow_schema(table.stored_columns())
    return pa.Table.from_pylist(
        [{name: row.get(name, _filler(schema, name)) for name in schema.names} for row in rows], schema
    )


def _filler(schema: pa.Schema, name: str) -> object:
    kind = schema.field(name).type
    return "" if pa.types.is_string(kind) else 0 if pa.types.is_integer(kind) else None


def test_committed_rows_get_the_outcomes_of_the_same_rows_in_memory(tmp_path: Path) -> None:
    suite = SUITES.suites["late_records"]
    for seed in seeds(4):
        chance = random.Random(seed)
        uri = str(tmp_path / str(seed))
        ensure_table(uri, tables.late_records("string"))
        parts = [late_rows(chance, chance.randrange(1, 12)) for _ in range(3)]
        for part in parts:
            append_rows(uri, part)
        own = [row for part in parts for row in part.to_pylist() if row["attempt_id"] == ATTEMPT]
        by_slice = {name: [row for row in own if row["slice_id"] == name] for name in SLICE_IDS}
        stored = CommittedSlices(
            uri=uri,
            attempt_id=ATTEMPT,
            columns=parts[0].schema.names,
            counts={name: len(rows) for name, rows in by_slice.items()},
            batch_rows=chance.choice([1, 3, 1000]),
        )
        assert not slices.needs_great_expectations(suite, stored.schema)
        found = [[one.observed for one in outcomes] for outcomes in slices.check_slices(suite, stored)]
        rows = [row for name in SLICE_IDS for row in by_slice[name]]
        numbers = [number for number, name in enumerate(SLICE_IDS) for _ in by_slice[name]]
        memory = ArrowSlices(pa.Table.from_pylist(rows, parts[0].schema), pa.array(numbers, pa.int64()).to_numpy(), 3)
        assert found == [[one.observed for one in outcomes] for outcomes in slices.check_slices(suite, memory)]
        for number, name in enumerate(SLICE_IDS):
            frame = stored.frame(number, ["rank", "reason"])
            assert sorted(frame["rank"]) == sorted(row["rank"] for row in by_slice[name])


def test_a_table_that_does_not_exist_has_no_columns_and_no_rows(tmp_path: Path) -> None:
    none = dict.fromkeys(SLICE_IDS, 0)
    absent = CommittedSlices(uri=str(tmp_path / "absent"), attempt_id=ATTEMPT, columns=["slice_id"], counts=none)
    assert (absent.schema.names, list(absent.batches([])), absent.slice_count) == ([], [], 3)


def test_the_table_run_has_one_row_per_slice() -> None:
    counts = Counts(read=8, assigned=4, late=2, unassigned=0, invalid=1, panes=3, filtered=1, duplicate=0)
    nothing = Counts(read=0, assigned=0, late=0, unassigned=0, invalid=0, panes=0)
    table = run_rows(
        [Slice(slice_id="a", start_ms=0, end_ms=9), Slice(slice_id="b", start_ms=9, end_ms=18)],
        [(counts, 5), (nothing, None)],
    )
    ((numbers, batch),) = table.batches(list(RUN_COLUMNS))
    assert numbers.tolist() == [0, 1]
    assert batch.to_pylist() == [
        {
            "slice_id": "a", "records_read": 8, "assigned": 4, "late": 2, "unassigned": 0, "invalid": 1, "panes": 3,
            "late_share": 0.25, "unassigned_share": 0.0, "invalid_share": 0.125, "watermark_ms": 5,
            "watermark_behind_by_ms": 4, "filtered": 1, "filtered_share": 0.125, "duplicate": 0, "duplicate_share": 0.0,
        },
        dict.fromkeys(RUN_COLUMNS, 0) | {"slice_id": "b", "watermark_ms": None, "watermark_behind_by_ms": None},
    ]  # fmt: skip
    (first, second) = slices.check_slices(SUITES.suites[RUN], table)
    assert ['"value":8' in one.observed for one in first if one.columns == ("records_read",)] == [True]
    assert [one.success for one in second if one.columns == ("watermark_ms",)] == [True]


def test_each_slice_gets_the_results_of_its_own_rows(tmp_path: Path) -> None:
    good = Counts(read=900, assigned=900, late=0, unassigned=0, invalid=0, panes=9)
    bad = Counts(read=900, assigned=300, late=0, unassigned=0, invalid=600, panes=9)
    outputs = tables.window_outputs({"origin": "string"}, {"flights": "long"})
    stored = {}
    for table in (outputs, tables.late_records("string")):
        uri, columns = str(tmp_path / table.name), table.stored_columns()
        ensure_table(uri, table)
        stored[table.name] = CommittedSlices(
            uri=uri, attempt_id=ATTEMPT, columns=columns, counts=dict.fromkeys(SLICE_IDS, 0)
        )
    checked: dict[str, slices.SlicedTable] = {**stored, "run": run_rows(SLICES, [(good, 5), (bad, 5), (good, 5)])}
    results = checks.run_checks(SUITES, SLICE_IDS, checked, fail_on="critical", confirm="none")
    assert [checks.verdict(found, "critical") for found in results] == [Verdict.PASS, Verdict.FAIL, Verdict.PASS]
    assert [{result.slice_id for result in found} for found in results] == [{name} for name in SLICE_IDS]
    assert len({tuple(result.check for result in found) for found in results}) == 1


CODE = """
import sys
from expectations.loader import EXPECTATIONS_DIR, load_suite_file
from jobs.replay.checked_tables import RUN_SCHEMA, arrow_schema
from jobs.replay.checks import prepare_checks
from windowlib.records import tables

for path in EXPECTATIONS_DIR.glob("*.json"):
    suites = load_suite_file(path)
    keys = {"origin": "string", "tailnum": "string", "carrier": "string"}
    known = tables.window_outputs(keys, {}).stored_columns()
    outputs = tables.window_outputs(keys, dict.fromkeys(suites.suites["window_outputs"].columns - set(known), "long"))
    stored = {"window_outputs": outputs, "late_records": tables.late_records("string")}
    schemas = {name: arrow_schema(table.stored_columns()) for name, table in stored.items()}
    prepare_checks(suites, {"run": RUN_SCHEMA} | schemas, confirm="failures")
assert "great_expectations" not in sys.modules
"""


@pytest.mark.slow
def test_the_suites_of_this_repository_need_no_great_expectations() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, cwd=EXPECTATIONS_DIR.parent)
