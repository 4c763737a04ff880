"""Judgements of settled windows: how much the publication of a request would change them (docs/COMPARING.md).

A judgement adds checks to the runs of the request, beside those of the suite. It depends on what readers see, so it is
not a part of a run's result, and a later judgement replaces it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from jobs.ledger.events import EventKind, LedgerEvent
from jobs.runs import VERDICTS, CheckResult, RunResult, Verdict
from windowlib.errors import LedgerError

FailedCheck = tuple[str, str, str | None]
"""(table, check, column) of a failed check. A judgement has what was found in place of the column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The checks of settled windows of one run. `basis` names the rule and the views that were compared."""

    basis: str
    checks: tuple[CheckResult, ...]

    @property
    def failed(self) -> frozenset[FailedCheck]:
        """The failed checks, each with what was found: a waiver is for that finding only."""
        stopping = {Verdict.FAIL, Verdict.ERROR}
        return frozenset((one.table, one.check, one.observed) for one in self.checks if one.verdict in stopping)


def judged_event(request_id: str, basis: str, checks: Mapping[str, tuple[CheckResult, ...]]) -> LedgerEvent:
    """Return the `judged` event of a request. `checks` has the checks of each of its runs (run id -> checks)."""
    runs = {
        run_id: [asdict(check) | {"verdict": check.verdict.value} for check in found]
        for run_id, found in checks.items()
    }
    return LedgerEvent(kind=EventKind.JUDGED, request_id=request_id, details={"basis": basis, "runs": runs})


def judgements_of(event: LedgerEvent) -> dict[str, Judgement]:
    """Return the judgement of each run that a `judged` event records.

    Raises:
        LedgerError: the event lacks a field.
    """
    try:
        return {
            run_id: Judgement(
                basis=event.details["basis"],
                checks=tuple(CheckResult(**{**one, "verdict": Verdict(one["verdict"])}) for one in checks),
            )
            for run_id, checks in event.details["runs"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerError(f"ledger event judged (seq {event.seq}) cannot be read: {error!r}") from error


def with_judgement(result: RunResult, judgement: Judgement) -> RunResult:
    """Return the result of a run with the checks of a judgement, and with the worst of all verdicts."""
    verdicts = [result.verdict, *(check.verdict for check in judgement.checks)]
    return replace(result, checks=(*result.checks, *judgement.checks), verdict=max(verdicts, key=VERDICTS.index))
