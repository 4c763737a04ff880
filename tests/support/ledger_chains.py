"""The events of a ledger with one request and a chain of published runs, without a lake."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from jobs.engine.fingerprints import fingerprint, spec_fingerprint
from jobs.ledger.events import EventKind, LedgerEvent, checked_event, slice_columns, staged_event
from jobs.pipeline.files import pipeline_to_json
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import EMPTY_STATE, Counts, LogCoordinates, RunResult, Slice, Verdict, WarmUp


def published_chain(
    pipeline: Pipeline,
    slices: Sequence[Slice],
    *,
    log: LogCoordinates,
    verdict: Verdict = Verdict.PASS,
    checks: str | None = None,
    warm_up: WarmUp | None = None,
) -> list[LedgerEvent]:
    """Return the events of a request that replayed and published these slices from the beginning.

    Args:
        pipeline: its spec is that of the runs.
        slices: contiguous, oldest first.
        log: what each run has read.
        verdict: the verdict of each run.
        checks: the fingerprint of the checks; None: no suite.
        warm_up: that with which the chain begins; None: it begins with nothing.
    """
    spec = spec_fingerprint(pipeline)
    begin = state = EMPTY_STATE if warm_up is None else warm_up.fingerprint
    details = {"spec": pipeline_to_json(pipeline)} | ({} if warm_up is None else {"warm_up": asdict(warm_up)})
    events = [LedgerEvent(kind=EventKind.REQUESTED, request_id="r", who="me", spec_fingerprint=spec, details=details)]
    for one in slices:
        after = fingerprint([state, one.slice_id])
        result = RunResult(
            slice=one,
            run_id=fingerprint([spec, one.slice_id])[:32],
            attempt_id="a",
            spec_fingerprint=spec,
            input_fingerprint="i",
            state_before=state,
            state_after=after,
            digests={},
            counts=Counts(read=2, assigned=2, late=0, unassigned=0, invalid=0, panes=1),
            watermark_ms=1,
            log=log,
            seconds=4.0,
            verdict=verdict,
            extras={} if checks is None else {"checks_fingerprint": checks},
        )
        events += [staged_event("r", result, is_chain_start=state == begin), checked_event("r", result)]
        where = {**slice_columns(one), "run_id": result.run_id, "attempt_id": "a"}
        events.append(LedgerEvent(kind=EventKind.PUBLISHED, request_id="r", **where))
        state = after
    return [replace(event, seq=number) for number, event in enumerate(events, start=1)]
