"""The suites of a pipeline: where they are found, and what their results tell."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expectations.arrow_slices import ArrowSlices
from expectations.suites import LATE_RECORDS, RUN, Check, Suite, SuiteFile
from jobs.lake.lake import Lake
from jobs.ledger.view import RequestKind
from jobs.pipeline.files import load_file
from jobs.planning.request_context import Asked, context_of, open_request, open_request_context
from jobs.planning.suites import load_checks
from jobs.replay.checked_tables import run_rows
from jobs.replay.checks import check_types, run_checks
from jobs.replay.replayer import _preparing
from jobs.runs import CheckResult, Counts, Slice
from tests.support.fake_replay import PIPELINE
from windowlib.errors import SpecError

CHECK = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "total"}, "severity": "critical"}


def test_a_request_of_the_former_spec_finds_the_suites_beside_the_edited_file(tmp_path: Path) -> None:
    (file := tmp_path / "pipelines" / "sales.yaml").parent.mkdir()
    (suites := tmp_path / "expectations").mkdir()
    suite = {"window_outputs": {"name": "sales.window_outputs", "expectations": [CHECK]}}
    (suites / "sales.json").write_text(json.dumps(suite), encoding="utf-8")
    text = PIPELINE + "quality: {suite: expectations/sales.json}\n"
    file.write_text(text, encoding="utf-8")
    lake = Lake(root=str(tmp_path / "lake"))
    work = open_request_context(load_file(file), lake, now_ms=lambda: 0)
    asked = Asked(from_ms=0, to_ms=86_400_000, who="anna", reason="first", kind=RequestKind.RANGE)
    opened = open_request(work, asked)

    file.write_text(text.replace("{sum: amount}", "{count: {}}"), encoding="utf-8")
    edited = open_request_context(load_file(file), lake, now_ms=lambda: 0)
    stored, _ = context_of(edited, opened.request_id)
    assert stored.pipeline.aggregates["total"].kind == "sum"
    checks = load_checks(stored.pipeline)
    assert checks is not None
    assert checks.path == suites / "sales.json"


def test_a_suite_is_prepared_only_if_its_checks_fit_the_types_of_their_columns() -> None:
    check = Check(index=0, type="expect_column_values_to_not_be_in_set", kwargs={"column": "total", "value_set": ["1"]})
    suites = SuiteFile(path=Path("s"), suites={RUN: Suite(name="s", table=RUN, checks=(check,))}, content="")
    check_types(suites, {RUN: pa.schema({"total": pa.string()})})
    with pytest.raises(SpecError, match="column total is int64, and no value of it is equal to '1'"):
        check_types(suites, {RUN: pa.schema({"total": pa.int64()})})


def test_checks_that_do_not_fit_their_columns_are_refused_before_anything_is_computed() -> None:
    check = Check(
        index=0, type="expect_column_values_to_not_be_in_set", kwargs={"column": "records_read", "value_set": ["1"]}
    )
    suites = SuiteFile(path=Path("s"), suites={RUN: Suite(name="s", table=RUN, checks=(check,))}, content="")
    order, tables = SimpleNamespace(pipeline=SimpleNamespace(quality=None)), SimpleNamespace(stored=())
    preparing = _preparing(SimpleNamespace(order=order, tables=tables, suites=suites))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="no value of it is equal to '1'"):
        preparing.__enter__()


def results_of(table: str, rows: ArrowSlices, *parts: tuple[str, dict[str, Any]]) -> tuple[CheckResult, ...]:
    own = tuple(Check(index=index, type=kind, kwargs=kwargs) for index, (kind, kwargs) in enumerate(parts))
    suites = SuiteFile(path=Path("s"), suites={table: Suite(name="s", table=table, checks=own)}, content="")
    [results] = run_checks(suites, ["2024-01-01"], {table: rows}, fail_on="critical", confirm="none")
    return results


def test_a_check_of_a_set_tells_the_values_that_are_missing() -> None:
    """Defect: a check that failed for a lack of LGA, and one that passed, both told `found nothing`."""
    rows = ArrowSlices(pa.table({"origin": ["EWR"]}), np.zeros(1, dtype=np.int64), 1)
    kind = "expect_column_distinct_values_to_contain_set"
    several = [(kind, {"column": "origin", "value_set": own}) for own in (["EWR", "LGA"], ["EWR"])]
    assert [result.message for result in results_of(LATE_RECORDS, rows, *several)] == [
        "origin takes at least EWR, LGA: found no LGA.",
        "origin takes at least EWR: passed.",
    ]


def test_a_check_of_the_run_whose_condition_leaves_it_out_has_no_value() -> None:
    """Defect: `late_share at most 50 %, where records_read > 100: found 90 %` passed, for a run with 10 records."""
    counts = Counts(read=10, assigned=1, late=9, unassigned=0, invalid=0, panes=0)
    rows = run_rows([Slice(slice_id="2024-01-01", start_ms=0, end_ms=86_400_000)], [(counts, 5)])
    large = {"type": "comparison", "column": {"name": "records_read"}, "operator": ">", "parameter": 100}
    kwargs = {"column": "late_share", "max_value": 0.5, "row_condition": large}
    [result] = results_of(RUN, rows, ("expect_column_values_to_be_between", kwargs))
    assert result.message.endswith("found no rows, so nothing to check.")
    assert "value" not in json.loads(result.observed or "")
