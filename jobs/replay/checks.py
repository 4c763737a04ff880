"""The checks of a run: its suites and the law of conservation, as `CheckResult`s, and the verdict of the run.

There are four verdicts. Pass: no check failed. Fail: a check failed whose severity stops publication. Warn: a check of
a lower severity failed. Error: a check itself failed, so its result is unknown. Error always stops publication.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from expectations import wording
from expectations.loader import EXPECTATIONS_DIR, check_suite_file, resolve_suite
from expectations.suites import LATE_RECORDS, RUN, SEVERITIES, WINDOW_OUTPUTS, Suite, SuiteFile, severity_rank
from jobs.runs import LAWS, VERDICTS, CheckResult, Counts, Verdict
from windowlib.errors import InvariantBroken, SpecError
from windowlib.records import tables

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from expectations.outcomes import Outcome
    from jobs.pipeline.models.pipeline import Pipeline

CheckedTable: TypeAlias = "pd.DataFrame | pa.Table | DataFrame"

PANDAS_ROWS = 100_000
"""A Spark table with at most this many rows is collected and checked with pandas: 0.05 s per suite instead of 1.5 s."""

CRITICAL = "critical"


class Quality(Protocol):
    """The part `quality` of a pipeline file."""

    @property
    def suite(self) -> str:
        """The path of the suite file, such as `expectations/flights.json`."""
        ...

    @property
    def fail_on(self) -> str:
        """The least severity that stops publication: critical, warning or info."""
        ...


def load_checks(pipeline: "Pipeline", *, root: Path = EXPECTATIONS_DIR) -> SuiteFile | None:
    """Return the suites of a pipeline, or None if it has no `quality`. Checks their columns against the tables.

    Raises:
        SpecError: the suite file is wrong; names the place, what was found and what is allowed.
    """
    if pipeline.quality is None:
        return None
    outputs = tables.window_outputs(
        dict.fromkeys(pipeline.log.key_columns, "string"), dict.fromkeys(pipeline.output_columns, "bigint")
    )
    known = {table.name: tuple(table.stored_columns()) for table in (outputs, tables.late_records("string"))}
    return check_suite_file(resolve_suite(pipeline.quality.suite, root=root), columns=known)


def prepare_checks(suites: SuiteFile | None) -> None:
    """Import Great Expectations and build every suite. The first call takes 7 s.

    Raises:
        SpecError: Great Expectations refuses a suite.
    """
    from expectations.runner import prepare

    for suite in suites or ():
        prepare(suite)


def run_row(slice_id: str, counts: Counts, watermark_ms: int | None) -> "pd.DataFrame":
    """Return the row of table `run`: one run. Shares are relative to the records read, or 0.0 if there are none."""
    import pandas as pd

    fates = {"late": counts.late, "unassigned": counts.unassigned, "invalid": counts.invalid}
    shares = {f"{fate}_share": count / counts.read if counts.read else 0.0 for fate, count in fates.items()}
    row = {
        "slice_id": slice_id,
        "records_read": counts.read,
        "assigned": counts.assigned,
        **fates,
        "panes": counts.panes,
    }
    # An object column holds the watermark as an exact integer, or None.
    return pd.DataFrame([row | shares]).assign(watermark_ms=pd.Series([watermark_ms], dtype=object))


def run_checks(
    quality: Quality | None, slice_id: str, checked: Mapping[str, CheckedTable], *, suites: SuiteFile | None = None
) -> tuple[CheckResult, ...]:
    """Run every suite of a pipeline over the tables of one run.

    Args:
        quality: `pipeline.quality`. If it is None, nothing is checked.
        slice_id: the slice of the run.
        checked: each table that the suite file names: `window_outputs` and `late_records` (only the run's own rows) as
            a pandas, Arrow or Spark table, and `run` from `run_row`.
        suites: the suite file, if it is loaded already.

    Returns:
        One result per check, in the order of the file.

    Raises:
        SpecError: the suite file is wrong.
        InvariantBroken: a table that the file names was not passed.
    """
    if quality is None:
        return ()
    loaded = suites or check_suite_file(resolve_suite(quality.suite))
    results: list[CheckResult] = []
    for suite in loaded:
        if suite.table not in checked:
            raise InvariantBroken(
                f"slice {slice_id}: suite {suite.name} checks {suite.table}, but only {sorted(checked)} were passed"
            )
        outcomes = _validate(suite, checked[suite.table])
        results += [
            _result(outcome, slice_id=slice_id, table=suite.table, fail_on=quality.fail_on) for outcome in outcomes
        ]
    return tuple(results)


def conservation(slice_id: str, counts: Counts) -> CheckResult:
    """Return the law of conservation as a check: read = assigned + late + unassigned + invalid."""
    parts = {
        "read": counts.read, "assigned": counts.assigned, "late": counts.late,
        "unassigned": counts.unassigned, "invalid": counts.invalid,
    }  # fmt: skip
    lost = counts.read - (counts.assigned + counts.late + counts.unassigned + counts.invalid)
    spelled = f"{counts.read:,} = {counts.assigned:,} + {counts.late:,} + {counts.unassigned:,} + {counts.invalid:,}"
    holds = f"read = assigned + late + unassigned + invalid: {spelled}"
    return CheckResult(
        slice_id=slice_id,
        table=LAWS,
        check="conservation",
        severity=CRITICAL,
        verdict=Verdict.ERROR if lost else Verdict.PASS,
        observed=json.dumps(parts | {"lost": lost}),
        message=f"{holds} does not hold, {lost:,} records have no fate; report this" if lost else holds,
    )


def verdict(results: Iterable[CheckResult], fail_on: str) -> Verdict:
    """Return the worst verdict of all results under `fail_on`, or pass if nothing was checked."""
    return max(
        (_judge(result.verdict, result.severity, fail_on) for result in results),
        key=VERDICTS.index,
        default=Verdict.PASS,
    )


def quality_rows(
    results: Iterable[CheckResult], *, attempt_id: str, run_id: str, checks_fingerprint: str
) -> list[dict[str, str | None]]:
    """Return the rows of table `quality_results`, without their ids."""
    return [
        {
            "slice_id": result.slice_id,
            "attempt_id": attempt_id,
            "run_id": run_id,
            "table_name": result.table,
            "check": result.check,
            "column_name": result.column,
            "severity": result.severity,
            "verdict": result.verdict.value,
            "observed": result.observed,
            "arguments": result.arguments,
            "message": result.message,
            "checks_fingerprint": checks_fingerprint,
        }
        for result in results
    ]


def _judge(found: Verdict, severity: str, fail_on: str) -> Verdict:
    """Return the verdict of a result under `fail_on`. Pass and error do not depend on it."""
    if fail_on not in SEVERITIES:
        raise SpecError(f"quality: fail_on is {fail_on!r}; allowed are {', '.join(reversed(SEVERITIES))}")
    if found in {Verdict.PASS, Verdict.ERROR}:
        return found
    return Verdict.FAIL if severity_rank(severity) >= severity_rank(fail_on) else Verdict.WARN


def _validate(suite: Suite, table: Any) -> "Sequence[Outcome]":  # noqa: ANN401 -- any of the three kinds of table
    from expectations.runner import validate

    if hasattr(table, "sparkSession"):
        return _validate_spark(suite, table)
    if hasattr(table, "to_pandas"):
        table = _to_pandas(_cut(table, table.column_names, suite))
    return validate(suite.table, table, suite)


def _validate_spark(suite: Suite, table: Any) -> "Sequence[Outcome]":  # noqa: ANN401 -- a Spark DataFrame
    from expectations.runner import validate

    narrow = _cut(table, table.columns, suite)
    # One row more than the limit shows whether the table is larger, without counting it.
    collected = narrow.limit(PANDAS_ROWS + 1).toArrow()
    if collected.num_rows > PANDAS_ROWS:
        return validate(suite.table, narrow, suite, engine="spark")
    return validate(suite.table, _to_pandas(collected), suite)


def _cut(table: Any, columns: Sequence[str], suite: Suite) -> Any:  # noqa: ANN401 -- an Arrow or a Spark table
    """Return only the columns that the suite reads. A record can have any number of other columns."""
    read = suite.columns
    if read is None:
        return table
    kept = [name for name in columns if name in read] or list(columns[:1])
    return table.select(kept) if hasattr(table, "column_names") else table.select(*(f"`{name}`" for name in kept))


def _to_pandas(rows: "pa.Table") -> "pd.DataFrame":
    # Otherwise pandas would turn integers with nulls into doubles, which lose digits.
    return rows.to_pandas(integer_object_nulls=True, date_as_object=True)


def _result(outcome: "Outcome", *, slice_id: str, table: str, fail_on: str) -> CheckResult:
    failed = Verdict.PASS if outcome.success else Verdict.FAIL
    found = Verdict.ERROR if outcome.exception else failed
    column = ", ".join(outcome.columns) or None
    return CheckResult(
        slice_id=slice_id,
        table=table,
        check=outcome.check,
        column=column,
        severity=outcome.severity,
        verdict=_judge(found, outcome.severity, fail_on),
        observed=outcome.observed,
        arguments=outcome.arguments,
        message=_message(column, outcome),
        description=outcome.description,
        error=outcome.exception,
    )


def _message(column: str | None, outcome: "Outcome") -> str:
    wanted = wording.demand(outcome.check, column, json.loads(outcome.arguments))
    if outcome.exception:
        return f"{wanted}: the check itself failed, so its result is unknown: {outcome.exception}"
    found = wording.finding(column, json.loads(outcome.observed))
    return f"{wanted}: found {found}. {outcome.description}".rstrip()


__all__ = [
    "LATE_RECORDS", "PANDAS_ROWS", "RUN", "WINDOW_OUTPUTS", "conservation", "load_checks", "prepare_checks",
    "quality_rows", "run_checks", "run_row", "verdict",
]  # fmt: skip
