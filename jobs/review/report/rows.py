"""What a report is made of, as plain rows, so that the page can be built and tested without Spark, ledger or lake."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.runs import CheckResult, Counts, Slice, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverRow:
    """Who let a failed run pass, why, and when."""

    who: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRow:
    """How late the late records of one run were, and how many stand in which class of `LATE_EDGES_MS`."""

    count: int
    median_ms: int
    max_ms: int
    classes: tuple[int, ...]


HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LATE_EDGES_MS = (HOUR_MS // 4, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, 12 * HOUR_MS, 24 * HOUR_MS)
"""Class i holds lateness in [edge i-1, edge i); one more class than edges, the last without an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """The newest run of a slice, and what is known about it; `origin` are fingerprints, digests and coordinates."""

    slice: Slice
    run_id: str
    attempt_id: str
    request_id: str
    verdict: Verdict
    counts: Counts
    watermark_ms: int | None
    seconds: float
    staged_at_ms: int
    is_published: bool
    log_version: int | None = None
    is_contradicted: bool = False
    waiver: WaiverRow | None = None
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    clamped: int = 0
    late: LateRow | None = None
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """What the page tells of a run when one points at it: what it was made of, and what it left behind."""
        return "; ".join(f"{name} {value}" for name, value in {"run": self.run_id, **self.origin}.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """What somebody asked for: the half-open range, who, why, and how far it got."""

    request_id: str
    kind: str
    who: str
    reason: str
    state: str
    opened_at_ms: int
    from_ms: int | None = None
    to_ms: int | None = None
    slice_count: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationRow:
    """One flip of what readers see."""

    seq: int
    at_ms: int
    who: str
    is_rollback: bool
    slice_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRows:
    """All that one page is about.

    `slices` are all slices from the first to the last that the ledger knows, in order and without holes; `runs` maps a
    slice to its newest run, `published` to the run that readers see. `as_of_ms` is when the ledger was last written.
    """

    pipeline: str
    lake: str
    zone: str
    every_ms: int
    ledger_version: int
    as_of_ms: int | None
    fail_on: str | None
    slices: tuple[Slice, ...]
    runs: Mapping[str, RunRow]
    published: Mapping[str, str]
    description: str = ""
    owner: str = ""
    requests: tuple[RequestRow, ...] = ()
    publications: tuple[PublicationRow, ...] = ()
    notes: tuple[str, ...] = field(default=())
