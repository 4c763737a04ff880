"""Tries a suite on the past: what it would have said of every slice before it gates anything. Writes nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from expectations import messages
from expectations.compiled.misfits import refuse_misfits
from expectations.suites import SuiteFile
from jobs.ledger.view import StagedRun
from jobs.replay.checks import run_checks, verdict
from jobs.review.suites.history import PastTables
from jobs.runs import JUDGED, LAWS, CheckResult, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The suite that the pipeline file names now, and its fingerprint; without `quality`, no suite and None."""

    suites: SuiteFile | None
    fingerprint: str | None
    fail_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSlice:
    """What a suite says of a slice. `was` is the verdict of the present suite. `failed` are failed checks in words."""

    slice_id: str
    run_id: str
    verdict: Verdict
    was: Verdict
    failed: tuple[str, ...]
    is_published: bool
    is_waived: bool

    @property
    def is_changed(self) -> bool:
        """Whether the suite would change the verdict."""
        return self.verdict is not self.was


@dataclass(slots=True, kw_only=True)
class TriedCheck:
    """The history of one check: how often it did not pass, where first and last, and the range of what it found.

    `low` and `high` are the least and the greatest number that the check compared: a value, or a share of unexpected
    rows (`is_share`). They are None if it found no number.
    """

    table: str
    check: str
    column: str | None
    severity: str
    demand: str
    slices: int = 0
    failed: int = 0
    errors: int = 0
    first: str | None = None
    last: str | None = None
    low: float | None = None
    high: float | None = None
    is_share: bool = True

    def add(self, result: CheckResult) -> None:
        """Add the result of the next slice. If a slice has a value, the shares of the others do not count."""
        self.slices += 1
        observed = json.loads(result.observed or "{}")
        number = messages.measured(observed)
        if number is not None and (self.is_share or not messages.is_share_of_rows(observed)):
            known = (self.low, self.high) if self.is_share == messages.is_share_of_rows(observed) else ()
            ends = [number, *(end for end in known if end is not None)]
            self.low, self.high, self.is_share = min(ends), max(ends), messages.is_share_of_rows(observed)
        if result.verdict is Verdict.PASS:
            return
        self.failed += result.verdict is not Verdict.ERROR
        self.errors += result.verdict is Verdict.ERROR
        self.first = self.first or result.slice_id
        self.last = result.slice_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a suite says of the past. `left_out` maps a reason to slices that were not tried."""

    pipeline: str
    suite: str
    fail_on: str
    ledger_version: int
    slices: tuple[TriedSlice, ...]
    checks: tuple[TriedCheck, ...]
    left_out: Mapping[str, tuple[str, ...]]

    @property
    def changes(self) -> tuple[TriedSlice, ...]:
        return tuple(slice_ for slice_ in self.slices if slice_.is_changed)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `hindcast suite try --json` prints."""
        return {
            "pipeline": self.pipeline,
            "suite": self.suite,
            "fail_on": self.fail_on,
            "ledger_version": self.ledger_version,
            "slices": [asdict(part) | {"verdict": part.verdict.value, "was": part.was.value} for part in self.slices],
            "checks": [asdict(check) for check in self.checks],
            "changes": [slice_.slice_id for slice_ in self.changes],
            "left_out": {reason: list(names) for reason, names in self.left_out.items()},
        }


def try_suite(candidate: SuiteFile, present: Present, past: PastTables, *, fail_on: str) -> Trial:
    """Return what a suite would have said of every run of a history.

    Each table is read once, with the columns that the two suites need. Hindcast's own checks of a run, such as the law
    of conservation and the change of settled windows, count in both verdicts as the ledger has them. `present` is
    computed again only for runs that another suite checked. `fail_on` is the least severity of the candidate that stops
    publication.

    Raises:
        StoreError: rows cannot be read, or differ from those that were written.
        SpecError: Great Expectations does not accept the suite, or a check does not fit the types of its columns.
    """
    tried: list[TriedSlice] = []
    tried_checks: list[TriedCheck] = []
    for block in past.blocks():
        results, was = _judged(candidate, present, past, block=block, fail_on=fail_on)
        tried_checks = tried_checks or [
            TriedCheck(
                table=first.table,
                check=first.check,
                column=first.column,
                severity=first.severity,
                demand=_demand(first),
            )
            for first in results[0]
        ]
        for run, checks, before in zip(block, results, was, strict=True):
            for tried_check, result in zip(tried_checks, checks, strict=True):
                tried_check.add(result)
            tried.append(_tried_slice(past, run, checks, before=before, fail_on=fail_on))
    return Trial(
        pipeline=past.history.pipeline,
        suite=str(candidate.path),
        fail_on=fail_on,
        ledger_version=past.history.ledger_version,
        slices=tuple(tried),
        checks=tuple(tried_checks),
        left_out=past.history.left_out,
    )


def _judged(
    candidate: SuiteFile, present: Present, past: PastTables, *, block: Sequence[StagedRun], fail_on: str
) -> tuple[list[tuple[CheckResult, ...]], list[Verdict]]:
    """Return the results of the candidate and the verdicts of the present suite for the runs of a block."""
    is_known = all(run.checks_fingerprint == present.fingerprint for run in block)
    others = () if is_known or present.suites is None else tuple(present.suites)
    tables = past.tables_of(block, (*candidate, *others))
    ids = [run.result.slice.slice_id for run in block]
    for suite in candidate:
        refuse_misfits(suite, tables[suite.table].schema)
    results = run_checks(candidate, ids, tables, fail_on=fail_on, confirm="none")
    if is_known:
        return results, [run.verdict for run in block]
    again = (
        [()] * len(block)
        if present.suites is None
        else run_checks(present.suites, ids, tables, fail_on=present.fail_on, confirm="none")
    )
    return results, [_verdict(run, checks, present.fail_on) for run, checks in zip(block, again, strict=True)]


def _verdict(run: StagedRun, checks: Sequence[CheckResult], fail_on: str) -> Verdict:
    """Return the verdict of results together with Hindcast's own checks. Two attempts that differ are an error."""
    return Verdict.ERROR if run.is_contradicted else verdict((*checks, *_own_checks(run)), fail_on)


def _own_checks(run: StagedRun) -> list[CheckResult]:
    return [check for check in run.result.checks if check.table in {LAWS, *JUDGED}]


def _tried_slice(
    past: PastTables, run: StagedRun, checks: Sequence[CheckResult], *, before: Verdict, fail_on: str
) -> TriedSlice:
    slice_id = run.result.slice.slice_id
    return TriedSlice(
        slice_id=slice_id,
        run_id=run.result.run_id,
        verdict=_verdict(run, checks, fail_on),
        was=before,
        failed=tuple(_demand(check) for check in (*checks, *_own_checks(run)) if check.verdict is not Verdict.PASS),
        is_published=past.view.published.get(slice_id) == run.result.run_id,
        is_waived=run.waiver is not None,
    )


def _demand(result: CheckResult) -> str:
    return messages.demand(result.check, result.column, json.loads(result.arguments))
