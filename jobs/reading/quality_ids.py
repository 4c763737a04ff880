"""Ids of the rows of quality_results, from the results of checks."""

from collections.abc import Iterable

from jobs.runs import CheckResult
from windowlib.records import tables
from windowlib.records.named_rows import content_id
from windowlib.records.row_ids import IdSum


def quality_digest(checks: Iterable[CheckResult], checks_fingerprint: str | None) -> str | None:
    """Return the digest of these checks' rows in quality_results; None without a fingerprint (an older ledger)."""
    if checks_fingerprint is None:
        return None
    return IdSum.of(quality_id(check, checks_fingerprint) for check in checks).digest()


def quality_id(check: CheckResult, checks_fingerprint: str) -> int:
    """Return the id of a row of quality_results."""
    content = {
        "table_name": check.table,
        "check": check.check,
        "column_name": check.column,
        "severity": check.severity,
        "verdict": check.verdict.value,
        "observed": check.observed,
        "arguments": check.arguments,
        "message": check.message,
        "checks_fingerprint": checks_fingerprint,
    }
    return content_id(tables.quality_results(), content)
