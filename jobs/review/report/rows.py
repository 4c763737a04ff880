"""The input of a report as plain rows, so that the page can be built and tested without Spark, ledger or lake."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from expectations.formatting import instant
from jobs.plain_text import counted
from jobs.runs import Slice

if TYPE_CHECKING:
    from jobs.ledger.publications import Publication
    from jobs.ledger.view import Request, StagedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRow:
    """The lateness of the late records of one run; `classes` counts them by the classes of `LATE_EDGES_MS`."""

    count: int
    median_ms: int
    max_ms: int
    classes: tuple[int, ...]


HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LATE_EDGES_MS = (HOUR_MS // 4, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, 12 * HOUR_MS, 24 * HOUR_MS)
"""Class i is lateness in [edge i-1, edge i). There is one more class than edges; the last one has no upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRows:
    """The input of one page.

    `slices` are all slices from the first to the last one in the ledger, in order and without holes. `runs` maps a
    slice to its newest run, `late` to the lateness of its late records, and `published` to the id of the run that
    readers see. `as_of_ms` is the time of the newest ledger event that the page shows. `late_left_out` slices have late
    records whose lateness was not read.
    `held` are the runs that stop the publication of an open request, `failing` those that readers see although they
    failed, both in slice order and of `slices` only.
    `awaited` is the slice that the schedule waits for; only a live page has one. `hold` tells why the schedule does not
    publish after a rollback; empty if it does.
    `effects` maps open requests that change what readers see, newest first, to what their publication does.
    """

    pipeline: str
    lake: str
    zone: str
    every_ms: int
    ledger_version: int
    as_of_ms: int | None
    fail_on: str | None
    slices: tuple[Slice, ...]
    runs: "Mapping[str, StagedRun]"
    published: Mapping[str, str]
    description: str = ""
    owner: str = ""
    requests: "tuple[Request, ...]" = ()
    publications: "Sequence[Publication]" = ()
    late: Mapping[str, LateRow] = field(default_factory=dict)
    late_left_out: int = 0
    awaited: Slice | None = None
    held: "tuple[StagedRun, ...]" = ()
    failing: "tuple[StagedRun, ...]" = ()
    hold: str = ""
    effects: Mapping[str, str] = field(default_factory=dict)


def provenance(run: "StagedRun", *, digits: int | None = None) -> Mapping[str, str]:
    """Return where a run comes from: everything that determines it, and its coordinates.

    `digits` of each hash and id are shown; None: all.
    """
    result, log = run.result, run.result.log
    commits = "none" if not log.commits else ", ".join(map(str, log.commits[:20])) + (" …" if log.commits[20:] else "")
    earlier = result.checkpoint.earlier
    hashes = {
        "run": result.run_id,
        "attempt": result.attempt_id,
        "spec": result.spec_fingerprint,
        "input": result.input_fingerprint,
        "state before": result.state_before,
        "state after": result.state_after,
        "checks": run.checks_fingerprint or "none",
        "attempt of the checks": run.checks_attempt_id,
        **{f"rows of {table}": digest for table, digest in sorted(result.digests.items())},
        **{
            name.replace("_", " "): text for name, text in sorted(result.extras.items()) if name != "checks_fingerprint"
        },
    }
    return {name: text[:digits] for name, text in hashes.items()} | {
        "log": f"{log.named_version} of table {log.table_id[:digits]}",
        "commits of the slice": commits,
        "files and records": ", ".join(
            (counted(log.files, "file"), counted(log.records, "record"), counted(log.bytes, "byte"))
        ),
        "watermark after": "none" if result.watermark_ms is None else instant(result.watermark_ms),
        "checkpoint": "full"
        if not earlier
        else f"the changes after {earlier[-1].slice_id}, in {counted(len(earlier) + 1, 'part')}",
        "seconds": f"{result.seconds:.1f}",
        "ledger": f"staged in version {run.seq}{', to begin a chain' if run.is_chain_start else ''}",
    }
