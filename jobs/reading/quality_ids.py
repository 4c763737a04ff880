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
    table = tables.quality_results()
    return IdSum.of(content_id(table, quality_content(check, checks_fingerprint)) for check in checks).digest()


def quality_content(check: CheckResult, checks_fingerprint: str) -> dict[str, str | None]:
    """Return the content of a row of quality_results, from which its id is computed."""
    return {
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
