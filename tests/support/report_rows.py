"""Rows for reports: two weeks with a blizzard, years of slices, and hostile values in every text."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any

from expectations.formatting import spell
from expectations.json_values import to_json
from expectations.loader import EXPECTATIONS_DIR, load_suite_file
from expectations.messages import demand
from expectations.suites import Check
from jobs.lake.lake import Lake
from jobs.ledger.publications import Publication
from jobs.ledger.view import Request, RequestKind, RequestState, StagedRun, Waiver
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.checks import conservation
from jobs.review.report.collect import collect_view, without_clock
from jobs.review.report.rows import LATE_EDGES_MS, LateRow, ReportRows
from jobs.runs import VERDICTS, CheckResult, Counts, LogCoordinates, RunResult, Slice, Verdict

DAY_MS = 86_400_000
READ = (812, 880, 713, 931, 941, 957, 975, 1079, 665, 692, 890, 951, 949, 958)
INVALID = (8, 9, 5, 12, 16, 20, 33, 332, 520, 48, 29, 11, 10, 14)


def collect(lake: Lake, pipeline: Pipeline) -> ReportRows:
    """Return the rows of the report at the newest ledger version."""
    return collect_view(lake, pipeline, without_clock(lake, pipeline).ledger.view())


def ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)


def day_slice(day: date) -> Slice:
    return Slice(slice_id=day.isoformat(), start_ms=ms(day), end_ms=ms(day) + DAY_MS)


@cache
def flights_checks() -> tuple[tuple[str, str, str, Check], ...]:
    """Return table, columns, demand and check for each check in the suites of flights."""
    loaded = load_suite_file(EXPECTATIONS_DIR / "flights.json")
    named = [(suite.table, ", ".join(check.columns), check) for suite in loaded for check in suite.checks]
    return tuple((table, column, demand(check.type, column, check.kwargs), check) for table, column, check in named)


def checks_of(slice_id: str, counts: Counts) -> tuple[CheckResult, ...]:
    """Return the results that the suites of flights have for these counts."""
    values = {
        "invalid_share": counts.invalid / max(counts.read, 1),
        "late_share": counts.late / max(counts.read, 1),
        "records_read": counts.read,
        "unassigned": counts.unassigned,
        "watermark_ms": 1_360_000_000_000,
    }
    results = [conservation(slice_id, counts)]
    for table, column, wanted, check in flights_checks():
        low, high = check.kwargs.get("min_value"), check.kwargs.get("max_value")
        value = values.get(column) if table == "run" else None
        bad = value is not None and ((low is not None and value < low) or (high is not None and value > high))
        failed = Verdict.FAIL if check.severity == "critical" else Verdict.WARN
        rows = 1 if table == "run" else counts.panes
        shown = "" if value is None else f',"value":{value}'
        observed = f'{{"missing":0,"rows":{rows},"share":{float(bad)},"unexpected":{int(bad)}{shown}}}'
        found = spell(value, column) if value is not None else f"all {rows:,} rows"
        results.append(
            CheckResult(
                slice_id=slice_id,
                table=table,
                check=check.type,
                column=column,
                severity=check.severity,
                verdict=failed if bad else Verdict.PASS,
                observed=observed,
                arguments=check.arguments,
                message=f"{wanted}: found {found}. {check.description}",
                description=check.description,
            )
        )
    return tuple(results)


def run_of(one: Slice, counts: Counts, *, number: int) -> StagedRun:
    checks = checks_of(one.slice_id, counts)
    result = RunResult(
        slice=one,
        run_id=f"{number * 7919:032x}"[::-1],
        attempt_id=f"{number * 104_729:032x}"[::-1],
        spec_fingerprint="spec",
        input_fingerprint="input",
        state_before="before",
        state_after="after",
        digests={},
        counts=counts,
        watermark_ms=one.end_ms - 6 * 3_600_000,
        log=LogCoordinates(table_id="log", version=number, commits=(number,), files=1, records=counts.read, bytes=1),
        seconds=3.2,
        verdict=max((check.verdict for check in checks), key=VERDICTS.index),
        checks=checks,
    )
    return StagedRun(
        result=result,
        request_id="5f2c9ab07c1e4d0f9a3e77f0b1d2c3e4" if number >= 3 else "0d1e2f3a4b5c6d7e8f90a1b2c3d4e5f6",
        seq=number,
        at_ms=one.end_ms + 7_200_000,
        is_chain_start=not number,
        checks_attempt_id=result.attempt_id,
    )


def with_result(run: StagedRun, **fields: Any) -> StagedRun:  # noqa: ANN401 -- any field of a result
    return replace(run, result=replace(run.result, **fields))


def late_of(runs: Mapping[str, StagedRun]) -> dict[str, LateRow]:
    """Return the lateness of the late records of runs: all of them are in the fourth class."""
    return {
        slice_id: LateRow(
            count=run.result.counts.late,
            median_ms=17_000_000,
            max_ms=18_000_000 + run.seq * 60_000,
            classes=tuple(run.result.counts.late if place == 3 else 0 for place in range(len(LATE_EDGES_MS) + 1)),
        )
        for slice_id, run in runs.items()
    }


def waiver_of(who: str, reason: str, at_ms: int = 0) -> Waiver:
    return Waiver(slice_id="", run_id="", who=who, reason=reason, at_ms=at_ms, failed=frozenset())


def counts_of(read: int, invalid: int, late: int) -> Counts:
    return Counts(
        read=read, assigned=read - invalid - late, late=late, unassigned=0, invalid=invalid, panes=read // 2 + 300
    )


def _request(text: str, slices: Sequence[Slice], **fields: Any) -> Request:  # noqa: ANN401
    """Return a request for the slices: `text` is in each text that `fields` do not have."""
    texts = {"request_id": text, "who": text, "reason": text, "spec_json": "{}", "spec_fingerprint": text}
    return Request(
        **{"kind": RequestKind.RANGE, **texts, **fields},
        from_ms=slices[0].start_ms,
        to_ms=slices[-1].end_ms,
        is_fresh=False,
        opened_seq=1,
        runs={one.slice_id: text for one in slices},
    )


def _publication(seq: int, who: str, slice_ids: Sequence[str], *, at_ms: int = 0) -> Publication:
    changes = dict.fromkeys(slice_ids, "run")
    return Publication(seq=seq, at_ms=at_ms, request_id=None, who=who, undoes=None, changes=changes)


def _blizzard_requests(slices: Sequence[Slice], opened: int, *, state: RequestState) -> tuple[Request, ...]:
    return (
        _request(
            "0d1e2f3a4b5c6d7e8f90a1b2c3d4e5f6",
            slices[:3],
            kind=RequestKind.AIRFLOW_BACKFILL,
            who="airflow",
            reason="the first three days",
            state=RequestState.PUBLISHED,
            opened_at_ms=opened - 600_000,
        ),
        _request(
            "5f2c9ab07c1e4d0f9a3e77f0b1d2c3e4",
            slices[3:],
            who="ines",
            reason="the rest of the fortnight",
            state=state,
            opened_at_ms=opened,
        ),
    )


def blizzard(*, waived: bool = False) -> ReportRows:
    """Return [2013-02-01, 2013-02-15) with two failed days; `waived`: after two waivers and the publication."""
    slices = tuple(day_slice(date(2013, 2, 1) + timedelta(days=number)) for number in range(14))
    runs = {
        one.slice_id: run_of(one, counts_of(READ[n], INVALID[n], 1 + n % 2), number=n) for n, one in enumerate(slices)
    }
    opened = slices[-1].end_ms + 3_600_000
    if waived:
        for slice_id in ("2013-02-08", "2013-02-09"):
            waiver = waiver_of("ines", "The blizzard Nemo closed the airports; the numbers are real.", opened + 900_000)
            runs[slice_id] = replace(runs[slice_id], waiver=waiver)
    published = {slice_id: run.result.run_id for slice_id, run in runs.items() if waived or run.seq < 3}
    names = tuple(one.slice_id for one in slices)
    state = RequestState.PUBLISHED if waived else RequestState.OPEN
    requests = _blizzard_requests(slices, opened, state=state)
    rows = ReportRows(
        pipeline="flights",
        lake="/var/lake",
        zone="UTC",
        every_ms=DAY_MS,
        ledger_version=31 if waived else 24,
        as_of_ms=opened + 1_800_000,
        fail_on="critical",
        slices=slices,
        runs=runs,
        published=published,
        late=late_of(runs),
        description="Departures per airport in a sliding hour, a new window every quarter of an hour",
        owner="operations",
        requests=tuple(
            replace(request, runs={name: runs[name].result.run_id for name in request.runs}) for request in requests
        ),
        effects={} if waived else {requests[1].request_id: "Not possible now: held by 2013-02-08, 2013-02-09."},
        publications=(
            _publication(9, "airflow", names[:3], at_ms=opened - 300_000),
            *((_publication(31, "ines", names[3:], at_ms=opened + 1_800_000),) if waived else ()),
        ),
    )
    return with_runs(rows, runs)


def with_runs(rows: ReportRows, runs: Mapping[str, StagedRun]) -> ReportRows:
    """Return the rows with these runs. An open request has those that readers do not see."""
    stopped = [run for run in runs.values() if not run.is_publishable]
    is_seen = {run.result.run_id: rows.published.get(run.result.slice.slice_id) == run.result.run_id for run in stopped}
    failing = tuple(run for run in stopped if is_seen[run.result.run_id])
    held = tuple(run for run in stopped if not is_seen[run.result.run_id])
    return replace(rows, runs=runs, held=held, failing=failing)


def many_days(count: int, *, every_ms: int = DAY_MS, seed: int = 20130208) -> ReportRows:
    """Return `count` slices with all statuses that a slice can have."""
    rng = random.Random(seed)
    start = ms(date(1998, 1, 1))
    slices = tuple(_slice(start + number * every_ms, every_ms) for number in range(count))
    runs: dict[str, StagedRun] = {}
    for number, one in enumerate(slices):
        dice = rng.random()
        if dice < 0.01:
            continue
        read = round(rng.gauss(920, 90))
        invalid = round(read * (rng.random() * 0.05 if dice > 0.03 else rng.uniform(0.26, 0.8)))
        run = run_of(one, counts_of(read, invalid, rng.randrange(4)), number=number)
        if run.verdict is Verdict.FAIL and rng.random() < 0.8:
            run = replace(run, waiver=waiver_of("ines", "seen and known", one.end_ms))
        runs[one.slice_id] = with_result(run, verdict=Verdict.ERROR) if 0.03 < dice < 0.033 else run
    published = {slice_id: run.result.run_id for slice_id, run in runs.items() if run.seq < count - 9}
    rows = replace(blizzard(), slices=slices, runs=runs, published=published, late=late_of(runs), every_ms=every_ms)
    return with_runs(replace(rows, requests=(), publications=()), runs)


def _slice(start_ms: int, every_ms: int) -> Slice:
    at = datetime(1970, 1, 1) + timedelta(milliseconds=start_ms)  # noqa: DTZ001 -- the text has no zone
    if every_ms >= DAY_MS:
        text = at.date().isoformat()
    else:
        text = at.isoformat(timespec="hours" if every_ms % 3_600_000 == 0 else "minutes")
    return Slice(slice_id=text, start_ms=start_ms, end_ms=start_ms + every_ms)


def hostile(values: Sequence[str]) -> ReportRows:
    """Return the two weeks with one of the values in each text that a person, a record or another system can write."""
    rows = blizzard()
    texts = [values[number % len(values)] for number in range(14)]
    runs = {
        slice_id: _hostile_run(run, text) for (slice_id, run), text in zip(rows.runs.items(), [*texts], strict=True)
    }
    requests = tuple(
        _request(text, rows.slices[:1], failure=text, opened_at_ms=rows.slices[0].start_ms) for text in values
    )
    publications = tuple(_publication(number, text, (text,)) for number, text in enumerate(values))
    everything = " ".join(values)
    rows = replace(
        rows,
        pipeline=values[0],
        lake=everything,
        zone="UTC",
        description=everything,
        owner=everything,
        fail_on=values[1],
        runs=runs,
        published={slice_id: runs[slice_id].result.run_id for slice_id in rows.published},
        requests=requests,
        publications=publications,
    )
    return with_runs(rows, runs)


def _hostile_run(run: StagedRun, text: str) -> StagedRun:
    check = CheckResult(
        slice_id=text,
        table=text,
        check=text,
        column=text,
        severity=text,
        verdict=Verdict.FAIL,
        observed=to_json({"values": [text], "sample": [text], "note": text}),
        arguments=to_json({"regex": text, "value_set": [text]}),
        message=text,
        description=text,
    )
    known = replace(
        check,
        check="expect_column_values_to_be_in_set",
        observed=to_json({"rows": 2, "unexpected": 1, "sample": [text]}),
    )
    broken = replace(check, verdict=Verdict.ERROR, error=text)
    waiver = waiver_of(text, text, 0)
    checks = (check, known, broken)
    texts = {"run_id": text, "attempt_id": text, "warnings": (text,)}
    changed = with_result(run, **texts, clamped=3, verdict=Verdict.FAIL, checks=checks, extras={text: text})
    return replace(changed, request_id=text, waiver=waiver)
