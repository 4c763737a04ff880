"""Spells a first pipeline file, and lists the orders that a table's records may have. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.doctor.column_roles import Roles, TimeRole, orderable
from jobs.doctor.delays import Suggestion
from jobs.doctor.slice_candidates import SliceCandidate
from jobs.doctor.yaml_text import spelled
from jobs.durations import UNIT_MS, format_duration
from jobs.pipeline.files import RESERVED_NAMES
from jobs.pipeline.models.column_names import check_apart, check_output_names
from jobs.pipeline.models.log import LogFormat, PartitionType

_NAME_LENGTH: Final = 63
_SUMMED: Final = ("double", "float", "decimal")
_WIDTH: Final = 56
"""Comments begin in this column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderChoice:
    """A value of `log.order`, and why it is proposed. `columns` is None for an order by commits."""

    text: str | None
    columns: tuple[str, ...] | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """All that a proposed file has. `first` is the id of the first slice with records; None if there is none.

    `distinct_days` is the bound in which ids are repeated; None if they are not, or if not all repetitions are copies.
    """

    name: str
    table: str
    log_format: LogFormat
    partitions: Mapping[str, PartitionType]
    roles: Roles
    slices: SliceCandidate
    order: OrderChoice
    first: str | None
    window_ms: int
    suggestion: Suggestion
    basis: str
    total: str | None
    distinct_days: int | None = None


APPENDED: Final = OrderChoice(text="appended", columns=None, why="as the commits list their files")


def order_choices(
    columns: Mapping[str, str], roles: Roles, *, is_tracked: bool, has_commits: bool, chosen: Sequence[str] = ()
) -> Iterator[OrderChoice]:
    """Yield the orders that records may have, best first. Ties are for the caller to find.

    `columns` maps a name to a Spark simple type. `is_tracked`: the table has row tracking. `has_commits`: the log has
    commits, in whose order its files were appended. `chosen` is what a person has named: `commits`, `appended` or
    columns.
    """
    if list(chosen) == ["commits"]:
        yield OrderChoice(text=None, columns=None, why="as it was asked for")
        return
    if chosen:
        is_word = list(chosen) == ["appended"]
        yield APPENDED if is_word else OrderChoice(text=spelled(list(chosen)), columns=tuple(chosen), why="as named")
        return
    if is_tracked:
        yield OrderChoice(text=None, columns=None, why="row tracking tells the order of appending")
    arrival = [] if roles.arrival_time is None else [roles.arrival_time.column]
    event = [] if roles.event_time is None else [roles.event_time.column]
    ids = [] if roles.record_id is None else [roles.record_id]
    partition = [] if roles.partition is None else [roles.partition]
    others = [name for name in columns if name not in {*arrival, *event, *ids}]
    by_arrival = [[name] for name in roles.sequences if not partition]
    if arrival:
        numbered = [[*arrival, *partition, *roles.sequences]] if roles.sequences else []
        by_arrival += [*numbered, *([[*arrival, *ids]] if ids else []), [*arrival, *ids, *event, *others]]
    yield from _ordered(columns, by_arrival, "by a number of each record, or by arrival")
    if has_commits:
        yield APPENDED
    by_event = [
        *([[*event, *partition, *roles.sequences]] if roles.sequences else []),
        *([[*event, *ids]] if ids else []),
    ]
    by_event.append([*event, *ids, *others])
    yield from _ordered(columns, by_event, "by event time, so no record is late inside its slice")


def _ordered(columns: Mapping[str, str], lists: Sequence[Sequence[str]], why: str) -> Iterator[OrderChoice]:
    seen: set[tuple[str, ...]] = set()
    for names in lists:
        own = tuple(dict.fromkeys(name for name in names if orderable(columns, name)))[:64]
        if own and own not in seen and own[0] == names[0]:
            seen.add(own)
            yield OrderChoice(text=spelled(list(own)), columns=own, why=why)


def total_column(columns: Mapping[str, str], roles: Roles) -> str | None:
    """Return a column whose sum is worth proposing: the first measured number."""
    taken = set(roles.columns)

    def is_allowed(name: str) -> bool:
        try:
            check_apart(roles.key, [name], "aggregate")
            return bool(check_output_names({name: None}, "aggregate"))
        except ValueError:
            return False

    return next(
        (
            name
            for name, kind in columns.items()
            if kind.partition("(")[0] in _SUMMED and name not in taken and is_allowed(f"{name}_total")
        ),
        None,
    )


def pipeline_name(place: str) -> str:
    """Return a name for the pipeline of a table: the last part of its place in allowed characters."""
    table = place.rpartition("/metadata/")[0] if place.endswith(".metadata.json") else place
    last = table.rstrip("/").rpartition("/")[2].lower()
    name = re.sub(r"[^a-z0-9_]+", "_", last).lstrip("_0123456789")[:_NAME_LENGTH].rstrip("_")
    return f"{name}_pipeline" if name in RESERVED_NAMES else name or "events"


def yaml_of(proposal: Proposal) -> str:
    """Return the text of the pipeline file."""
    return "\n".join(_lines(proposal)) + "\n"


def _lines(proposal: Proposal) -> Iterator[str]:
    roles, suggestion = proposal.roles, proposal.suggestion
    yield f"# Proposed by `hindcast init` from {proposal.basis}."
    yield "# docs/reference/pipelines.md describes every key."
    yield f"pipeline: {proposal.name}"
    yield "log:"
    yield f"  table: {spelled(proposal.table)}"
    yield from _format_lines(proposal)
    key = f"  key: {spelled(list(roles.key))}" if roles.key else "  over: all"
    yield _commented(key, "one set of windows for each key" if roles.key else "one set of windows for all records")
    assert roles.event_time is not None, "a table without an event time has no proposal"
    yield _commented(f"  event_time: {_time(roles.event_time)}", "when the event happened")
    if roles.arrival_time is not None:
        yield _commented(
            f"  arrival_time: {_time(roles.arrival_time)}", "when the record arrived: the clock of a replay"
        )
    if roles.record_id is not None:
        yield _commented(f"  record_id: {spelled(roles.record_id)}", "`hindcast explain` finds a record by it")
    first = "" if proposal.first is None else f', first: "{proposal.first}"'
    yield _commented(f"  slice: {{{proposal.slices.text}{first}}}", "a replay works slice by slice")
    if proposal.order.text is not None:
        yield _commented(f"  order: {proposal.order.text}", proposal.order.why)
    if proposal.distinct_days is not None and roles.record_id is not None:
        rule = f"  distinct: {{by: {spelled([roles.record_id])}, within: {proposal.distinct_days}d}}"
        yield _commented(rule, "records with the id of an earlier one do not count")
    bound = suggestion.out_of_orderness_ms
    watermark = "{kind: ascending}" if not bound else f"{{kind: bounded, out_of_orderness: {format_duration(bound)}}}"
    yield _commented(f"watermark: {watermark}", f"{share_text(suggestion.behind)} of the records are further behind")
    yield "windows:"
    yield f"  tumbling: {{size: {format_duration(proposal.window_ms)}}}"
    if suggestion.allowed_lateness_ms:
        lateness = f"  allowed_lateness: {format_duration(suggestion.allowed_lateness_ms)}"
        yield _commented(lateness, f"{share_text(suggestion.late)} of the records are late after that")
    yield "aggregates:"
    keys = {name.lower() for name in roles.key}
    count = next(name for number in range(len(keys) + 1) if (name := "records" + "_counted" * number) not in keys)
    yield f"  {count}: {{count: {{}}}}"
    if proposal.total is not None:
        yield f"  {proposal.total}_total: {{sum: {spelled(proposal.total)}}}"
    is_daily = proposal.slices.every_ms == UNIT_MS["d"]
    yield _commented(
        f'schedule: "{"0 6 * * *" if is_daily else "10 * * * *"}"', "UTC; when Airflow looks for new slices"
    )


def _format_lines(proposal: Proposal) -> Iterator[str]:
    if proposal.log_format != "delta":
        yield f"  format: {proposal.log_format}"
    if proposal.partitions:
        types = ", ".join(f"{spelled(name)}: {kind}" for name, kind in proposal.partitions.items())
        yield _commented(f"  partitions: {{{types}}}", "other partition columns are texts")


def share_text(share: float) -> str:
    """Return a share for people: `0 %`, `0.012 %`, `34 %`. A small share is not shown as 0."""
    percent = share * 100
    if not percent:
        return "0 %"
    if percent < 0.001:  # noqa: PLR2004
        return "< 0.001 %"
    return f"{percent:.2g} %" if percent < 99.5 else f"{percent:.4g} %"  # noqa: PLR2004


def _time(role: TimeRole) -> str:
    if role.unit is None:
        return spelled(role.column)
    return f"{{column: {spelled(role.column)}, unit: {role.unit}}}"


def _commented(text: str, comment: str) -> str:
    return f"{text:<{_WIDTH}}  # {comment}"
