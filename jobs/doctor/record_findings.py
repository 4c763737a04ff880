"""Judges what the sampled records show: order, delays, duplicates, keys and clocks. Pure."""

from collections.abc import Iterator
from typing import Final

from jobs.doctor.column_roles import Roles
from jobs.doctor.finding import Finding, error, note, ok, warning
from jobs.doctor.measures import DuplicateMeasures, Measures
from jobs.doctor.proposal import share_text
from jobs.doctor.yaml_text import spelled
from jobs.durations import UNIT_MS, format_duration, human_duration
from jobs.plain_text import counted

SKEWED: Final = 0.2
"""A key with a greater share of the records makes one bucket slow."""
MANY_LATE: Final = 0.001
FULL: Final = 0.999
_FUTURE_MS: Final = UNIT_MS["d"]


def record_findings(measures: Measures, roles: Roles, *, now_ms: int) -> list[Finding]:
    """Return the findings of a sample, in the order in which a person should read them."""
    return [
        *_invalid(measures),
        *_future(measures, now_ms),
        *_order(measures),
        *_delays(measures, roles),
        *_slices(measures),
        *_duplicates(measures, roles),
        *_keys(measures, roles),
        *_arrival(measures, roles),
    ]


def _invalid(measures: Measures) -> Iterator[Finding]:
    count = sum(measures.invalid.values())
    if not count:
        return
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in sorted(measures.invalid.items()))
    text = f"{counted(count, 'record')} ({share_text(count / measures.records)}) would be invalid: {reasons}"
    severity = error if count == measures.records else warning
    mend = "name other columns with --key or --event-time, or correct the writer"
    if "wrong_type" in measures.invalid:
        mend += (
            "; a time in a text of another form is derived: log.columns: {at: \"strptime(column, '%d.%m.%Y %H:%M')\"}"
        )
    yield severity("invalid records", text, mend)


def _future(measures: Measures, now_ms: int) -> Iterator[Finding]:
    newest = measures.newest_event_ms
    if newest is not None and newest > now_ms + _FUTURE_MS:
        yield warning(
            "future",
            f"an event time is {human_duration(newest - now_ms)} in the future. It raises the watermark, and the "
            "records after it are late",
            "correct the writer; or watermark: {kind: ingestion, every: 1m} with log.arrival_time",
        )


def _order(measures: Measures) -> Iterator[Finding]:
    delays = measures.commit_delays
    if delays is None:
        yield note("order of commits", "is not known for the records that were read")
        return
    text = (
        f"as appended, {share_text(delays.within)} of the records are behind an earlier record of their commit (by "
        f"{human_duration(delays.within_worst_ms)} at most), and {share_text(delays.between)} behind an earlier commit "
        f"(by {human_duration(delays.between_worst_ms)} at most)"
    )
    yield ok("order of commits", text)


def _delays(measures: Measures, roles: Roles) -> Iterator[Finding]:
    advice = measures.delays.suggestion()
    by = "as appended" if measures.order is None else f"ordered by {spelled(list(measures.order))}"
    text = (
        f"{by}, a bound of {format_duration(advice.out_of_orderness_ms)} leaves {share_text(advice.behind)} of the "
        f"records behind the watermark; with an allowed lateness of {format_duration(advice.allowed_lateness_ms)}, "
        f"{share_text(advice.late)} are late"
    )
    mend = (
        f"watermark: {{kind: bounded, out_of_orderness: {format_duration(advice.out_of_orderness_ms)}}}, "
        f"windows: {{allowed_lateness: {format_duration(advice.allowed_lateness_ms)}}}"
    )
    yield warning("delays", text, mend) if advice.late > MANY_LATE else ok("delays", text)
    if measures.order is not None and roles.event_time is not None and measures.order[0] == roles.event_time.column:
        yield note(
            "order",
            "records are ordered by event time, so a record is late only if its slice is: what came out of order "
            "inside a slice is not seen",
            "name a column of arrival, or a number that grows with each record, in log.order",
        )


def _slices(measures: Measures) -> Iterator[Finding]:
    share = measures.in_own_slice
    if share is None or not measures.records:
        return
    if share >= FULL:
        yield note(
            "slices",
            f"{share_text(share)} of the records are in the slice of their event time. If the column is computed from "
            "the event time, a record that comes late changes an old slice (input changed)",
            "slice by the time of arrival, if the table has it",
        )
    else:
        yield ok("slices", f"{share_text(share)} of the records are in the slice of their event time")


def _duplicates(measures: Measures, roles: Roles) -> Iterator[Finding]:
    if measures.duplicates is None:
        yield note("duplicates", "no column looks like the id of a record", "name it with --record-id")
    elif measures.duplicates.records:
        yield _repeated(measures.duplicates, str(roles.record_id), records=measures.records)
    else:
        yield ok("duplicates", f"each {roles.record_id} is there once")


def _repeated(duplicates: DuplicateMeasures, record_id: str, *, records: int) -> Finding:
    share = share_text(duplicates.records / max(records, 1))
    text = f"{counted(duplicates.records, 'record')} ({share}) have the {record_id} of another record of the sample"
    rule = f"distinct: {{by: [{record_id}], within: {duplicates.within_days}d}}"
    if not duplicates.other_times:
        return warning("duplicates", f"{text}, and count twice without `log.distinct`", f"write in log: {rule}")
    mend = (
        "name another column with --record-id"
        if duplicates.is_of_entities
        else f"if they are copies, write in log: {rule}"
    )
    return warning("duplicates", f"{text}; {duplicates.other_times:,} of them have another event time", mend)


def _keys(measures: Measures, roles: Roles) -> Iterator[Finding]:
    keys = measures.keys
    if keys is None:
        yield note("keys", "no column looks like a key, so windows are over all records", "name columns with --key")
        return
    text = (
        f"{', '.join(roles.key)} has {counted(keys.keys, 'value')}; the most frequent one has "
        f"{share_text(keys.greatest_share)} of the records"
    )
    if keys.greatest_share > SKEWED and keys.keys > 1 / SKEWED:
        yield note("keys", f"{text}. Its windows are computed by one task", "add a column to log.key")
    else:
        yield ok("keys", text)


def _arrival(measures: Measures, roles: Roles) -> Iterator[Finding]:
    arrival = measures.arrival
    if roles.arrival_time is None:
        yield note("arrival", "no column tells when a record arrived", "name it with --arrival-time")
        return
    if arrival is None:
        text = f"no record has both an event time and a {roles.arrival_time.column} that is a time"
        yield warning("arrival", text, "name another column with --arrival-time, or remove log.arrival_time")
        return
    text = (
        f"half of the records arrive within {human_duration(max(arrival.median_ms, 0))}, 99 % within "
        f"{human_duration(max(arrival.p99_ms, 0))} of their event time"
    )
    yield ok("arrival", text)
    if arrival.before:
        clock = (
            f"{share_text(arrival.before)} of the records have a {roles.arrival_time.column} before their event time, "
            f"by {human_duration(arrival.before_worst_ms)} at most: the clocks of the sources differ"
        )
        mend = "correct the clocks or the time zone of the event time; until then the bound must cover the difference"
        yield warning("clocks", clock, mend) if arrival.before > MANY_LATE else note("clocks", clock, mend)
