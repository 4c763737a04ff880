"""The checks of a run: its suites and the law of conservation, as `CheckResult`s, and the verdict of the run.

There are four verdicts. Pass: no check failed. Fail: a check failed whose severity stops publication. Warn: a check of
a lower severity failed. Error: a check itself failed, so its result is unknown. Error always stops publication.
"""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from expectations import messages
from expectations.suites import RUN, SEVERITIES, SuiteFile, severity_rank
from jobs.plain_text import counted
from jobs.runs import LAWS, VERDICTS, CheckResult, Counts, Verdict, by_fate
from windowlib.errors import InvariantBroken, SpecError
from windowlib.libraries import pa

if TYPE_CHECKING:
    from expectations.confirming import Confirm
    from expectations.outcomes import Outcome
    from expectations.slices import SlicedTable

CRITICAL = "critical"


def prepare_checks(suites: SuiteFile | None, schemas: "Mapping[str, pa.Schema]", *, confirm: "Confirm") -> None:
    """Build the suites that Great Expectations must run. Its import takes seconds; it is imported only for them.

    `check_types` comes before, because it takes no time. `schemas` has the columns of the tables whose types are known
    before the replay. Great Expectations confirms the results `confirm` of compiled checks. If it confirms all, it runs
    all.
    Raises SpecError: Great Expectations refuses a suite.
    """
    from expectations.slices import needs_great_expectations

    for suite in suites or ():
        if confirm == "all" or suite.table not in schemas or needs_great_expectations(suite, schemas[suite.table]):
            from expectations.runner import prepare

            prepare(suite)


def check_types(suites: SuiteFile, schemas: "Mapping[str, pa.Schema]") -> None:
    """Compare the checks with the types of their columns. `schemas` is as for `prepare_checks`.

    Raises SpecError: a check does not fit the type of its column.
    """
    from expectations.compiled.misfits import refuse_misfits

    for suite in suites:
        if suite.table in schemas:
            refuse_misfits(suite, schemas[suite.table])


def run_checks(
    suites: SuiteFile,
    slice_ids: Sequence[str],
    checked: "Mapping[str, SlicedTable]",
    *,
    fail_on: str,
    confirm: "Confirm",
) -> list[tuple[CheckResult, ...]]:
    """Run every suite of a pipeline over the tables of the runs of a chunk.

    `slice_ids` are in the order of their numbers in the tables. `checked` has each table that the suite file names:
    `window_outputs` and `late_records` (only the runs' own rows), and `run` (`jobs.replay.checked_tables.run_rows`).
    `fail_on` is the least severity that stops publication, and `confirm` tells which results of compiled checks Great
    Expectations confirms. For each slice, there is one result per check, in the order of the file.

    Raises:
        InvariantBroken: a table that the file names was not passed.
    """
    from expectations.slices import SuiteChecks

    absent = [suite for suite in suites if suite.table not in checked]
    if absent:
        raise InvariantBroken(
            f"slices {slice_ids[0]} to {slice_ids[-1]}: suite {absent[0].name} checks {absent[0].table}, but only "
            f"{sorted(checked)} were passed"
        )
    # `run` is first, because it is in memory: if it fails, the import begins before the other tables are read.
    ordered = sorted(suites, key=lambda suite: suite.table != RUN)
    begun = {suite.table: SuiteChecks(suite, checked[suite.table], confirm=confirm) for suite in ordered}
    results: list[tuple[CheckResult, ...]] = [() for _ in slice_ids]
    for suite in suites:
        every = begun[suite.table].outcomes()
        for number, (slice_id, outcomes) in enumerate(zip(slice_ids, every, strict=True)):
            results[number] += tuple(
                _result(outcome, slice_id=slice_id, table=suite.table, fail_on=fail_on) for outcome in outcomes
            )
    return results


def conservation(slice_id: str, counts: Counts) -> CheckResult:
    """Return the law of conservation as a check: read = assigned + late + unassigned + invalid + filtered + duplicate.

    `OPTIONAL_FATES` are named only where a record has them.
    """
    fates = by_fate(counts)
    parts = {"read": counts.read} | fates
    lost = counts.read - sum(fates.values())
    spelled = f"{counts.read:,} = {' + '.join(f'{count:,}' for count in fates.values())}"
    holds = f"read = {' + '.join(fates)}: {spelled}"
    return CheckResult(
        slice_id=slice_id,
        table=LAWS,
        check="conservation",
        severity=CRITICAL,
        verdict=Verdict.ERROR if lost else Verdict.PASS,
        observed=json.dumps(parts | {"lost": lost}),
        message=f"{holds} does not hold, {counted(lost, 'record', 'have')} no fate; report this" if lost else holds,
    )


def verdict(results: Iterable[CheckResult], fail_on: str) -> Verdict:
    """Return the worst verdict of all results under `fail_on`, or pass if nothing was checked."""
    return max(
        (_judge(result.verdict, result.severity, fail_on) for result in results),
        key=VERDICTS.index,
        default=Verdict.PASS,
    )


def _judge(raw_verdict: Verdict, severity: str, fail_on: str) -> Verdict:
    """Return the verdict of a result under `fail_on`. Pass and error do not depend on it."""
    if fail_on not in SEVERITIES:
        raise SpecError(f"quality: fail_on is {fail_on!r}; allowed are {', '.join(reversed(SEVERITIES))}")
    if raw_verdict in {Verdict.PASS, Verdict.ERROR}:
        return raw_verdict
    return Verdict.FAIL if severity_rank(severity) >= severity_rank(fail_on) else Verdict.WARN


def _result(outcome: "Outcome", *, slice_id: str, table: str, fail_on: str) -> CheckResult:
    failed = Verdict.PASS if outcome.success else Verdict.FAIL
    raw_verdict = Verdict.ERROR if outcome.exception else failed
    column = ", ".join(outcome.columns) or None
    return CheckResult(
        slice_id=slice_id,
        table=table,
        check=outcome.check,
        column=column,
        severity=outcome.severity,
        verdict=_judge(raw_verdict, outcome.severity, fail_on),
        observed=outcome.observed,
        arguments=outcome.arguments,
        message=_message(column, outcome),
        description=outcome.description,
        error=outcome.exception,
    )


@functools.lru_cache(maxsize=1024)
def _demand(check: str, column: str | None, arguments: str) -> str:
    """Return the demand of a check in words. It is the same for every slice."""
    return messages.demand(check, column, json.loads(arguments))


def _message(column: str | None, outcome: "Outcome") -> str:
    wanted = _demand(outcome.check, column, outcome.arguments)
    if outcome.exception:
        return f"{wanted}: the check itself failed, so its result is unknown: {outcome.exception}"
    observed, arguments = json.loads(outcome.observed), json.loads(outcome.arguments)
    if not observed:
        return f"{wanted}: {'passed' if outcome.success else 'failed'}. {outcome.description}".rstrip()
    finding = messages.finding(column, observed, check=outcome.check, arguments=arguments)
    return f"{wanted}: found {finding}. {outcome.description}".rstrip()
