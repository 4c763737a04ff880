"""The outcome of a request: its runs and its publication, for commands and tasks."""

from dataclasses import asdict, dataclass
from typing import Any

from jobs.ledger.view import StagedRun
from jobs.publishing.rules import PublicationAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The runs of a request in slice order, how many were replayed, and its publication (None: not attempted)."""

    pipeline: str
    request_id: str
    runs: tuple[StagedRun, ...]
    replayed: int
    publication: PublicationAttempt | None

    @property
    def is_published(self) -> bool:
        """Whether readers see all runs of the request."""
        return self.publication is not None and self.publication.is_published

    def to_json(self) -> dict[str, Any]:
        """Return the object that `hindcast run --json` prints."""
        return {
            "pipeline": self.pipeline,
            "runs": [run_to_json(run) for run in self.runs],
            "published": self.is_published,
        }


def run_to_json(run: StagedRun) -> dict[str, Any]:
    """Return the content of a run as plain data. Equal records give equal content in every replay."""
    result = run.result
    return {
        "slice_id": result.slice.slice_id,
        "run_id": result.run_id,
        "verdict": run.verdict.value,
        "digests": dict(sorted(result.digests.items())),
        "state": result.state_after,
        "counts": asdict(result.counts),
        "watermark_ms": result.watermark_ms,
        "spec_fingerprint": result.spec_fingerprint,
        "input_fingerprint": result.input_fingerprint,
        "state_before": result.state_before,
        "checks": [
            {
                "table": check.table,
                "check": check.check,
                "column": check.column,
                "severity": check.severity,
                "verdict": check.verdict.value,
            }
            for check in result.checks
        ],
        "clamped": result.clamped,
        "warnings": list(result.warnings),
    }
