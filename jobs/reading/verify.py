"""Everything that is stored of a pipeline's runs, compared with the ledger: rows, digests, states, files (law L9).

Readers check what they read; this checks all of it, row by row, without Spark. The ledger checks itself when it is read
(jobs.ledger.chain), and `plan --verify` compares the event log with what the runs were made of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, StagedRun
from jobs.planning.fingerprints import state_of
from jobs.reading.stored_rows import Finding, StoredRuns
from windowlib.errors import HindcastError
from windowlib.records import tables

RUNS_AT_ONCE = 100
"""Of so many runs at a time are the rows of a table in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which slices: those that start in [from_ms, to_ms); None is without a bound."""

    from_ms: int | None = None
    to_ms: int | None = None

    def holds(self, run: StagedRun) -> bool:
        """Whether a run's slice is one of them."""
        start_ms = run.result.slice.start_ms
        return (self.from_ms is None or start_ms >= self.from_ms) and (self.to_ms is None or start_ms < self.to_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was looked at, and everything that is not what was written."""

    pipeline: str
    ledger_version: int
    runs: int
    rows: int
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that `hindcast verify --json` prints."""
        return {
            "pipeline": self.pipeline,
            "ledger_version": self.ledger_version,
            "runs": self.runs,
            "rows": self.rows,
            "findings": [asdict(one) for one in self.findings],
        }


def verify(
    lake: Lake, pipeline: str, view: LedgerView, *, span: Span | None = None, runs_at_once: int = RUNS_AT_ONCE
) -> Verification:
    """Compare all rows of the standing attempts, published or staged, with their ids, checks and digests.

    Args:
        lake: where.
        pipeline: its name.
        view: one ledger version.
        span: which slices; all when None.
        runs_at_once: of how many runs the rows of a table are in memory.
    """
    wanted = span or Span()
    runs = sorted((run for run in view.runs.values() if wanted.holds(run)), key=lambda run: run.result.slice.start_ms)
    stored = StoredRuns(lake, pipeline, view, None)
    findings = [finding for run in runs for finding in _state(run)]
    rows = 0
    for table in _tables(runs):
        for start in range(0, len(runs), runs_at_once):
            try:
                found, wrong = stored.checked(table, runs[start : start + runs_at_once])
                rows += found.num_rows
                findings += wrong
            except HindcastError as error:
                findings.append(Finding(table=table, slice_id=None, attempt_id=None, file=None, what=str(error)))
                break
    return Verification(
        pipeline=pipeline, ledger_version=view.version, runs=len(runs), rows=rows, findings=tuple(findings)
    )


def _tables(runs: Sequence[StagedRun]) -> list[str]:
    digested = {name for run in runs for name in run.result.digests}
    return [*sorted(digested), *((tables.TALLIES, tables.QUALITY_RESULTS) if runs else ())]


def _state(run: StagedRun) -> Iterator[Finding]:
    """Compare the fingerprint of the state after a run with the digests of the tables that hold it."""
    result = run.result
    if tables.WINDOW_STATE in result.digests and state_of(result.digests) != result.state_after:
        yield Finding(
            table=tables.LEDGER,
            slice_id=result.slice.slice_id,
            attempt_id=result.attempt_id,
            file=None,
            what=f"the digests of the checkpoint's tables do not make up its state {result.state_after[:12]}",
        )
