"""Computes all texts and numbers of the page from plain rows. No HTML, no clock, no lake."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from functools import cached_property
from itertools import groupby, pairwise
from statistics import median
from typing import Self

from expectations.formatting import duration, instant, percent
from jobs.ledger.view import StagedRun
from jobs.plain_text import counted, with_capital
from jobs.review.report.checks import CheckTrend, Held, cards, counted_facts, trends, unseen_facts
from jobs.review.report.commands import Command, bound_text, commands
from jobs.review.report.rows import LATE_EDGES_MS, ReportRows, provenance
from jobs.runs import Counts, Slice, Verdict, optional_fates

DASH = "\N{EN DASH}"
MAX_LISTED_SLICES = 400
MAX_HELD = 40
MAX_REQUESTS = 40
MAX_STRETCHES = 3
SHORT = 8
"""How many digits of a fingerprint the page shows."""


class Status(Enum):
    """The status of a slice; its value is part of CSS class names.

    Each has a symbol of its own, so that colour is not needed, a label of one or two words, and a meaning for the
    legend.
    """

    symbol: str
    label: str
    meaning: str

    PASS = "pass", "✓", "passed", "every check passed; readers see the run"
    WARN = "warn", "!", "warned", "a check failed whose severity does not stop publication; readers see the run"
    WAIVED = "waived", "≈", "waived", "a check failed, and a person let the run pass with a reason"
    FAIL = (
        "fail", "✕", "failed",
        "a check failed; a run that readers do not see is held until it is waived or a rerun passes",
    )  # fmt: skip
    ERROR = "error", "?", "error", "a check itself failed, or two attempts differ; the result is unknown"
    STAGED = "staged", "○", "not published", "replayed, and no check stops its publication; readers do not see the run"
    EMPTY = "empty", "∅", "empty", "the log had no record of the slice; readers see a run without records"
    AWAITED = "awaited", "…", "waits", "over, and not complete in the log; the schedule waits for it"
    MISSING = "missing", DASH, "missing", "never replayed"

    def __new__(cls, value: str, symbol: str, label: str, meaning: str) -> Self:  # noqa: PLR0917
        status = object.__new__(cls)
        status._value_ = value
        status.symbol, status.label, status.meaning = symbol, label, meaning
        return status


def status_of(run: StagedRun | None, *, seen: str | None = None, is_awaited: bool = False) -> Status:
    """Return the status of a slice from its newest run.

    `seen` is the id of the run that readers see. `is_awaited`: the schedule waits for the records of the slice.
    """
    if run is None:
        return Status.AWAITED if is_awaited else Status.MISSING
    if run.verdict is Verdict.ERROR:
        return Status.ERROR
    if run.verdict is Verdict.FAIL:
        return Status.WAIVED if run.waiver else Status.FAIL
    if run.result.run_id != seen:
        return Status.STAGED
    if not run.result.counts.read:
        return Status.EMPTY
    return Status.WARN if run.verdict is Verdict.WARN else Status.PASS


@dataclass(frozen=True)
class SliceLine:
    """One slice in the calendar, the bars and the table. `is_replaced`: readers see an older run of it."""

    slice: Slice
    status: Status
    run: StagedRun | None
    is_published: bool
    is_replaced: bool

    @property
    def slice_id(self) -> str:
        return self.slice.slice_id

    @cached_property
    def tip(self) -> str:
        """The text for the pointer and for screen readers."""
        if self.run is None:
            return f"{self.slice_id}: {self.status.label}"
        seen = "published" if self.is_published else "readers see an older run" if self.is_replaced else "not published"
        states = unseen_facts(self.run) if self.status is Status.STAGED else [seen]
        return f"{self.slice_id}: {', '.join((self.status.label, *states))}; {at_a_glance(self.run.result.counts)}"

    @property
    def about(self) -> str:
        """The text for the pointer on the id of the run: how it came about."""
        return "" if self.run is None else "; ".join(map(" ".join, provenance(self.run, digits=SHORT).items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The sum of the slices of one month or year that are not listed one by one."""

    label: str
    slices: int
    counts: Counts
    statuses: tuple[tuple[Status, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSummary:
    """The late records of all runs on the page. `classes` are pairs of a lateness class and its count."""

    count: int
    read: int
    worst_ms: int
    worst_slice: str
    median_ms: int
    classes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportModel:
    """The content of the page. `listed` are the slices listed one by one, newest first; `periods` sum up the others."""

    rows: ReportRows
    title: str
    headline: str
    is_healthy: bool
    sentences: tuple[str, ...]
    as_of: str
    totals: Counts
    statuses: tuple[tuple[Status, int], ...]
    lines: tuple[SliceLine, ...]
    listed: tuple[SliceLine, ...]
    periods: tuple[Period, ...]
    held: tuple[Held, ...]
    failed: tuple[Held, ...]
    waived: tuple[Held, ...]
    held_left_out: int
    checks: tuple[CheckTrend, ...]
    late: LateSummary | None
    commands: tuple[Command, ...]

    @property
    def staged_facts(self) -> str:
        """How many of the slices that are not published are warned or empty."""
        return counted_facts(unseen_facts(line.run) for line in self.lines if line.run and line.status is Status.STAGED)

    @property
    def optional_fates(self) -> tuple[str, ...]:
        """The fates that only some logs have, such as duplicates, if a slice on the page has records of them."""
        return tuple(optional_fates(self.totals))

    @property
    def is_daily(self) -> bool:
        """Whether all slices are days, so that the page can show a calendar of months."""
        return all(line.slice.day for line in self.lines)


def build_model(rows: ReportRows) -> ReportModel:
    """Return the content of the page for these rows."""
    lines = tuple(_line(slice_, rows) for slice_ in rows.slices)
    counted = Counter(line.status for line in lines)
    held, failed = cards(rows.held, rows), cards(rows.failing, rows)
    waived = cards([line.run for line in lines if line.run is not None and line.status is Status.WAIVED], rows)
    older = max(0, len(lines) - MAX_LISTED_SLICES)
    headline, healthy = _headline(rows, lines, counted)
    return ReportModel(
        rows=rows,
        title=f"Hindcast: {rows.pipeline}",
        headline=headline,
        is_healthy=healthy,
        sentences=_sentences(rows, held=held, failed=failed),
        as_of=instant(rows.as_of_ms) if rows.as_of_ms is not None else "nothing has happened yet",
        totals=total(line.run.result.counts for line in lines if line.run),
        statuses=tuple((kind, counted[kind]) for kind in Status if kind is not Status.AWAITED or counted[kind]),
        lines=lines,
        listed=lines[older:][::-1],
        periods=_periods(lines[:older]),
        held=held[:MAX_HELD],
        failed=failed[:MAX_HELD],
        waived=waived[:MAX_HELD],
        held_left_out=sum(len(kind[MAX_HELD:]) for kind in (held, failed, waived)),
        checks=trends(rows),
        late=_late(rows),
        commands=commands(
            rows, next((card.waive for card in (*held, *failed) if card.run.verdict is Verdict.FAIL), None)
        ),
    )


def _line(slice_: Slice, rows: ReportRows) -> SliceLine:
    run, seen = rows.runs.get(slice_.slice_id), rows.published.get(slice_.slice_id)
    is_published = run is not None and run.result.run_id == seen
    return SliceLine(
        slice=slice_,
        status=status_of(run, seen=seen, is_awaited=slice_ == rows.awaited),
        run=run,
        is_published=is_published,
        is_replaced=seen is not None and not is_published,
    )


def _headline(rows: ReportRows, lines: Sequence[SliceLine], counted: Mapping[Status, int]) -> tuple[str, bool]:
    """Return the headline, and whether all slices are published and good."""
    if not rows.runs:
        return "Nothing has been replayed yet", False
    if rows.failing or rows.held:
        return _stopped_headline(rows), False
    unseen = [line.run for line in lines if line.run and not line.is_published]
    ready = [run for run in unseen if run.is_publishable]
    if rows.hold or ready:
        held = "The schedule is held after a rollback"
        return held if rows.hold else ", ".join(
            filter(None, (f"{_slices(len(ready))} ready, but not published", counted_facts(map(unseen_facts, ready))))
        ), False
    if unseen:
        return f"{_slices(len(unseen))} not published, with failed runs that no open request has", False
    if counted[Status.MISSING]:
        return f"Published, with {_slices(counted[Status.MISSING])} missing in between", False
    kinds = [f"{counted[kind]:,} of them {kind.label}" for kind in (Status.WAIVED, Status.EMPTY) if counted[kind]]
    which = f"All {_slices(len(lines))} published" if len(lines) > 1 else "Published"
    return ", ".join((which, *(kinds if len(lines) > 1 else ()))), True


def _stopped_headline(rows: ReportRows) -> str:
    if rows.failing:
        return f"{_slices(len(rows.failing))} published in spite of a failed check or an error"
    broken, every = sum(run.verdict is Verdict.ERROR for run in rows.held), len(rows.held)
    why = "by an error" if broken == every else "by a failed check"
    errors = f", {broken:,} of them by an error" if 0 < broken < every else ""
    return f"{_slices(every)} held {why}{errors}"


def _sentences(rows: ReportRows, *, held: Sequence[Held], failed: Sequence[Held]) -> tuple[str, ...]:
    sentences = [f"Readers see {_published_range(rows)}."]
    if rows.hold:
        sentences.append(f"{with_capital(rows.hold)}.")
    if any(card.run.verdict is Verdict.FAIL for card in held):
        sentences.append("A held slice can be published after a waiver with a reason, or after a rerun that passes. "
                         "Until then, readers see what they saw before.")  # fmt: skip
    if failed:
        sentences.append("The published slices with a failed check or an error stay published. Waive a failed check "
                         "with a reason, or correct the log or the suite and run again.")  # fmt: skip
    if any(card.run.verdict is Verdict.ERROR for card in (*held, *failed)):
        sentences.append("An error cannot be waived. Correct its cause, and replay the slice.")
    return tuple(sentences)


def _slices(count: int) -> str:
    return counted(count, "slice")


def _published_range(rows: ReportRows) -> str:
    """Return the half-open ranges that readers see, such as `[2013-02-01, 2013-02-08)`; at most three."""
    bounds = [
        *(slice_.slice_id for slice_ in rows.slices),
        *(bound_text(last.end_ms, rows) for last in rows.slices[-1:]),
    ]
    seen = groupby(enumerate(rows.slices), key=lambda place: place[1].slice_id in rows.published)
    places = [[place for place, _ in group] for is_seen, group in seen if is_seen]
    stretches = [(bounds[own[0]], bounds[own[-1] + 1]) for own in places]
    if not stretches:
        return "nothing yet"
    shown = ", ".join(f"[{start}, {end})" for start, end in stretches[:MAX_STRETCHES])
    left_out = len(stretches) - MAX_STRETCHES
    return f"{shown} and {left_out:,} more {'range' if left_out == 1 else 'ranges'}" if left_out > 0 else shown


def _periods(lines: Sequence[SliceLine]) -> tuple[Period, ...]:
    """Return sums by month, newest first; by year if there are more than 120 months."""
    months = {line.slice_id[:7] for line in lines}
    width = 7 if len(months) <= 120 else 4  # noqa: PLR2004 -- of an ISO date: YYYY-MM, YYYY
    grouped: dict[str, list[SliceLine]] = {}
    for line in lines:
        grouped.setdefault(line.slice_id[:width], []).append(line)
    return tuple(_period(label, grouped[label]) for label in reversed(grouped))


def _period(label: str, lines: Sequence[SliceLine]) -> Period:
    counted = Counter(line.status for line in lines)
    return Period(
        label=label,
        slices=len(lines),
        counts=total(line.run.result.counts for line in lines if line.run),
        statuses=tuple((status, counted[status]) for status in Status if counted[status]),
    )


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts, fate by fate."""
    summed = Counter[str]()
    for own in counts:
        summed.update(asdict(own))
    return Counts(**{fate.name: summed[fate.name] for fate in fields(Counts)})


def _late(rows: ReportRows) -> LateSummary | None:
    """Return the summary of late records; None without any."""
    late_rows = {slice_id: late for slice_id, late in rows.late.items() if late.count}
    if not late_rows:
        return None
    worst = max(late_rows, key=lambda slice_id: late_rows[slice_id].max_ms)
    edges = [duration(edge) for edge in LATE_EDGES_MS]
    labels = [f"under {edges[0]}", *(f"{low} to {high}" for low, high in pairwise(edges)), f"{edges[-1]} or more"]
    totals = [sum(late.classes[index] for late in late_rows.values()) for index in range(len(labels))]
    counts = {slice_id: run.result.counts for slice_id, run in rows.runs.items()}
    return LateSummary(
        count=sum(late.count for late in late_rows.values()),
        read=sum(own.read for slice_id, own in counts.items() if slice_id in rows.late or not own.late),
        worst_ms=late_rows[worst].max_ms,
        worst_slice=worst,
        median_ms=round(median(late.median_ms for late in late_rows.values())),
        classes=tuple(zip(labels, totals, strict=True)),
    )


def at_a_glance(counts: Counts) -> str:
    """Return the most important counts in a few words."""
    others = "".join(f", {count:,} {fate}" for fate, count in optional_fates(counts).items())
    return f"{counts.read:,} read, {counts.late:,} late, {counts.invalid:,} invalid{others}"


def share_text(part: int, whole: int) -> str:
    """Return a count as a percentage of another; a dash if the other is 0."""
    return percent(part / whole) if whole else DASH
