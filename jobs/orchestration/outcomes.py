"""What became of a request, as a value that commands and tasks print."""

from dataclasses import dataclass
from typing import Any

from jobs.ledger.view import StagedRun
from jobs.publishing.rules import Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a request: the runs of its slices in order, and of publication, where that was tried."""

    pipeline: str
    request_id: str
    runs: tuple[StagedRun, ...]
    replayed: int
    publication: Publication | None

    @property
    def is_published(self) -> bool:
        """Whether readers see all of it."""
        return self.publication is not None and self.publication.is_published

    def to_json(self) -> dict[str, Any]:
        """The object that `hindcast run --json` prints."""
        return {
            "pipeline": self.pipeline,
            "runs": [run_to_json(run) for run in self.runs],
            "published": self.is_published,
        }


def run_to_json(run: StagedRun) -> dict[str, Any]:
    """The content of one run as plain data: equal for equal records, wherever and however they were replayed."""
    result = run.result
    return {
        "slice_id": result.slice.slice_id,
        "run_id": result.run_id,
        "verdict": run.verdict.value,
        "digests": dict(sorted(result.digests.items())),
        "state": result.state_after,
        "counts": {
            "read": result.counts.read,
            "assigned": result.counts.assigned,
            "late": result.counts.late,
            "unassigned": result.counts.unassigned,
            "invalid": result.counts.invalid,
            "panes": result.counts.panes,
        },
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
