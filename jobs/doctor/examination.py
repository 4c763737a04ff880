"""Examines a table: reads its facts and a sample, measures, proposes a pipeline file, and collects the findings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from jobs.doctor.column_roles import Roles, Wishes, guess_roles
from jobs.doctor.delays import Suggestion
from jobs.doctor.finding import Finding, Severity, error, note, ok, warning
from jobs.doctor.measures import Measures, measure, ties
from jobs.doctor.proposal import APPENDED, OrderChoice, Proposal, order_choices, pipeline_name, total_column, yaml_of
from jobs.doctor.record_findings import record_findings
from jobs.doctor.sample import Sample, read_head, read_sample, readable_columns
from jobs.doctor.slice_candidates import SliceCandidate, slice_candidates
from jobs.doctor.table_facts import TableFacts, read_table_facts
from jobs.doctor.table_findings import HORIZON_MS, table_findings
from jobs.doctor.trial import Accepted, Refused, try_file
from jobs.durations import UNIT_MS
from jobs.lake.lake import Lake
from jobs.pipeline.slices import SliceGrid, slice_at
from jobs.plain_text import agreeing, counted
from jobs.reading.log_places import holds_ledger
from windowlib.errors import RangeError

SAMPLE: Final = 1_000_000
_NO_DELAYS: Final = Suggestion(out_of_orderness_ms=UNIT_MS["h"], allowed_lateness_ms=UNIT_MS["h"], behind=0.0, late=0.0)
_MOST_REFUSALS: Final = 3
_DERIVED: Final = (
    "a pipeline file may also name a path into a struct, or derive the time from a text (docs/reference/pipelines.md, "
    "Paths, derived columns and the filter)"
)
_LONG_AGO_MS: Final = 366 * UNIT_MS["d"]
"""Slices with records that are further apart may be those of wrong times."""
_WAYS: Final = "docs/reference/logs.md has the ways out; --key, --event-time, --slice-by and --order name other columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be examined. `table` is as `log.table` will name it, `uri` is its place.

    `horizon_ms` is how far back changes of the log should be seen.
    """

    table: str
    uri: str
    lake: Lake
    pipelines: Path
    wishes: Wishes
    sample: int = SAMPLE
    name: str | None = None
    horizon_ms: int = HORIZON_MS

    @property
    def pipeline(self) -> str:
        """The name of the proposed pipeline, whose tables are not among the files of the log."""
        name = pipeline_name(self.uri) if self.name is None else self.name
        is_inside = self.name is None and holds_ledger(self.lake, name, self.uri)
        return f"{name[:50]}_windows" if is_inside else name

    @property
    def path(self) -> Path:
        """The file that `hindcast init` writes."""
        return self.pipelines / f"{self.pipeline}.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found. `accepted` and `proposal` are None if no file can be proposed that runs."""

    facts: TableFacts
    roles: Roles
    measures: Measures | None
    findings: tuple[Finding, ...]
    accepted: Accepted | None
    proposal: Proposal | None
    sampled: int

    @property
    def fit(self) -> Accepted | None:
        """The file that can be written; None if there is an error."""
        return None if any(finding.severity is Severity.ERROR for finding in self.findings) else self.accepted


@dataclass(kw_only=True)
class _Search:
    """Searches the first combination of slices and order that is accepted and has no ties.

    `refusals` maps a message to whether only the grammar of this version refuses that form.
    """

    request: Request
    facts: TableFacts
    roles: Roles
    refusals: dict[str, bool] = field(default_factory=dict)
    _samples: dict[SliceCandidate | None, tuple[frozenset[str], Sample]] = field(default_factory=dict)

    def sample(self, slices: SliceCandidate | None, more: Sequence[str] = ()) -> Sample:
        """Return the sample for a way to cut the log, with the columns of the roles and more."""
        own = () if slices is None else slices.columns
        asked = [*dict.fromkeys([*self.roles.columns, *more, *own])]
        kept = self._samples.get(slices)
        if kept is None or not kept[0].issuperset(asked):
            read = read_sample(self.facts, asked, slices, most=self.request.sample)
            self._samples[slices] = kept = (frozenset(asked), read)
        return kept[1]

    def choose(self, candidates: Sequence[SliceCandidate]) -> tuple[SliceCandidate, OrderChoice] | None:
        """Return the first combination that runs."""
        readable = {name: self.facts.columns[name] for name in readable_columns(self.facts)}
        wishes = self.request.wishes
        for slices in candidates:
            for order in order_choices(
                readable,
                self.roles,
                is_tracked=self.facts.is_tracked,
                has_commits=self.facts.log.has_commits,
                chosen=wishes.order,
            ):
                tried = self.tried(self.proposal(slices, order, _NO_DELAYS))
                if isinstance(tried, Refused):
                    is_new = not (wishes.order or wishes.slice_by) and (order is APPENDED or slices.kind == "commits")
                    self.refusals.setdefault(tried.text, is_new and tried.by_grammar)
                elif order.columns is not None and ties(self.sample(slices, order.columns), order.columns):
                    tie = f"log.order {order.text} does not order all records: some of a slice have the same values"
                    self.refusals.setdefault(tie, False)
                else:
                    return slices, order
        return None

    def tried(self, proposal: Proposal) -> Accepted | Refused:
        instants = self.instants_ms(proposal.slices)
        return try_file(yaml_of(proposal), self.request.path, self.request.lake, instants_ms=instants)

    def proposal(self, slices: SliceCandidate, order: OrderChoice, suggestion: Suggestion) -> Proposal:
        instants = self.instants_ms(slices)
        return Proposal(
            name=self.request.pipeline,
            table=self.request.table,
            log_format=self.facts.log_format,
            partitions=self.facts.partitions,
            roles=self.roles,
            slices=slices,
            order=order,
            first=_slice_id(min(instants), slices.every_ms) if instants else None,
            window_ms=self.request.wishes.window_ms,
            suggestion=suggestion,
            basis=self.basis(slices),
            total=total_column(self.facts.columns, self.roles),
        )

    def basis(self, slices: SliceCandidate) -> str:
        """Tell how many records were read."""
        kept = self._samples.get(slices)
        if kept is None:
            return "the table's metadata"
        records = kept[1].records
        if kept[1].is_whole:
            return f"all {counted(records, 'record')}"
        of = "" if self.facts.records is None else f" of {self.facts.records:,}"
        return f"the newest {records:,}{of} records"

    def instants_ms(self, slices: SliceCandidate) -> tuple[int, ...]:
        """Return the first and last instant with records; empty if that is not known."""
        files = [file for file in self.facts.files if file.records != 0]
        match slices.kind:
            case "partition":
                instants = [at for file in files if (at := slices.of_partition(file.partition)) is not None]
            case "time":
                instants = [*(self.facts.bounds_ms(slices.columns[0]) or ())]
            case _:
                instants = [commit.at_ms for commit in self.facts.commits if commit.added and commit.at_ms is not None]
        return (min(instants), max(instants)) if instants and files else ()


def examine(request: Request, *, now_ms: int) -> Examination:
    """Examine a table. Metadata is read first, then at most `request.sample` records.

    Raises:
        LogError: there is no log at the place, or it is damaged.
        SpecError: a named column does not exist, or the place is a table of Hindcast.
    """
    facts = read_table_facts(request.uri)
    head = read_head(facts)
    entities: list[str] = []
    while True:
        partitions = facts.log.partition_columns
        roles = guess_roles(facts.columns, head, request.wishes, without=partitions, entities=entities)
        examination = _examined(request, facts, roles, now_ms=now_ms)
        repeated = None if examination.measures is None else examination.measures.duplicates
        if roles.record_id is None or request.wishes.record_id or repeated is None or not repeated.is_of_entities:
            return examination
        entities.append(roles.record_id)  # the first records of the newest file did not tell it


def _examined(request: Request, facts: TableFacts, roles: Roles, *, now_ms: int) -> Examination:
    candidates = slice_candidates(facts, _arrival_columns(facts, roles, request.wishes), request.wishes.slice_by)
    if roles.event_time is None:
        no_time = error(
            "event time",
            "no column is a time, or its unit cannot be told",
            f"name it with --event-time column:ms; {_DERIVED}",
        )
        findings = [*table_findings(facts, candidates[0].columns, horizon_ms=request.horizon_ms), no_time]
        return Examination(
            facts=facts, roles=roles, measures=None, findings=tuple(findings), accepted=None, proposal=None, sampled=0
        )
    search = _Search(request=request, facts=facts, roles=roles)
    chosen = search.choose(candidates)
    slices = candidates[0] if chosen is None else chosen[0]
    order = None if chosen is None else chosen[1].columns
    sample = search.sample(slices, order or ())
    is_cut = slices.kind == "partition" and slices.is_known
    measures = measure(
        sample, roles, order, window_ms=request.wishes.window_ms, every_ms=slices.every_ms if is_cut else None
    )
    findings = [
        *table_findings(facts, slices.columns, horizon_ms=request.horizon_ms),
        *_null_slices(facts, candidates, slices),
        *_old_slices(facts, slices),
        *_whole_days(facts, roles, request.wishes),
        *(record_findings(measures, roles, now_ms=now_ms) if sample.records else ()),
    ]
    accepted, proposal = None, None
    if chosen is not None:
        suggestion = measures.delays.suggestion() if sample.records else _NO_DELAYS
        repeated = measures.duplicates
        are_copies = repeated is not None and repeated.records and not repeated.other_times
        proposal = replace(
            search.proposal(*chosen, suggestion),
            distinct_days=repeated.within_days if repeated is not None and are_copies else None,
        )
        tried = search.tried(proposal)
        accepted = tried if isinstance(tried, Accepted) else None
    findings += _verdict(search, accepted, proposal)
    return Examination(
        facts=facts,
        roles=roles,
        measures=measures,
        findings=tuple(findings),
        accepted=accepted,
        proposal=proposal,
        sampled=sample.records,
    )


def _arrival_columns(facts: TableFacts, roles: Roles, wishes: Wishes) -> list[str]:
    """Return the columns of times by which the log may be cut: not the event time, unless a person named it."""
    times = [role.column for role in (roles.arrival_time, *roles.times) if role is not None and role.unit is None]
    event = None if roles.event_time is None else roles.event_time.column
    if not facts.log.has_commits:  # by which every other log can be cut
        times += [name for name, kind in facts.columns.items() if kind == "date"]
    own = [name for name in dict.fromkeys([*wishes.slice_by, *times]) if name != event or name in wishes.slice_by]
    kinds = ("timestamp", "timestamp_ntz", "date")
    return [name for name in own if facts.columns.get(name) in kinds and name not in facts.log.partition_columns]


def _null_slices(facts: TableFacts, candidates: Sequence[SliceCandidate], chosen: SliceCandidate) -> Iterator[Finding]:
    """Yield why the slices are not by better columns: records have no value there. By the chosen ones, all have one."""
    for slices in candidates[: candidates.index(chosen)]:
        if nulls := _nulls(facts, slices):
            columns = " or ".join(slices.columns)
            text = f"{counted(nulls, 'record')} without {columns}, so slices by {columns} are refused"
            options = " ".join(f"--slice-by {name}" for name in slices.columns)
            yield note("null slices", text, f"{options} tells what mends it, if the log is to be cut so")


def _old_slices(facts: TableFacts, chosen: SliceCandidate) -> Iterator[Finding]:
    """Yield the slices that are years before the others: a replay has all slices between them."""
    files = (file for file in facts.files if file.records != 0 and chosen.kind == "partition")
    starts = sorted({at_ms for file in files if (at_ms := chosen.of_partition(file.partition)) is not None})
    ends = [number for number, (before, after) in enumerate(pairwise(starts), 1) if after - before > _LONG_AGO_MS]
    if ends:
        oldest, first = (_slice_id(starts[number], chosen.every_ms) for number in (0, ends[-1]))
        between = (starts[ends[-1]] - starts[0]) // chosen.every_ms
        yield warning(
            "old slices",
            f"{counted(ends[-1], 'slice')} with records, the oldest {oldest}, {agreeing(ends[-1], 'are')} more than a "
            f"year before the next one, {first}. A replay from there has {between:,} more slices",
            f'if these times are wrong, write slice: {{{chosen.text}, first: "{first}"}}',
        )


def _whole_days(facts: TableFacts, roles: Roles, wishes: Wishes) -> Iterator[Finding]:
    """Yield that event times are days, if that is a guess about the day of arrival, or if windows are shorter."""
    assert roles.event_time is not None, "checked by the caller"
    name = roles.event_time.column
    is_guess = wishes.event_time is None and name in facts.log.partition_columns
    if facts.columns[name] == "date" and (is_guess or wishes.window_ms % UNIT_MS["d"]):
        no_other = "" if wishes.event_time else "no other column looks like a time, and "
        yield warning(
            "event time",
            f"{no_other}{name} is a date: each record counts as an event of 00:00 UTC of its day",
            f"name the time with --event-time; {_DERIVED}",
        )


def _nulls(facts: TableFacts, slices: SliceCandidate) -> int:
    if slices.kind == "time":
        return facts.nulls(slices.columns[0]) or 0
    names = [name for name in slices.columns if name in facts.log.partition_columns]
    own = [file for file in facts.files if any(file.partition.get(name) is None for name in names)]
    return sum(1 if file.records is None else file.records for file in own)


def _verdict(search: _Search, accepted: Accepted | None, proposal: Proposal | None) -> Iterator[Finding]:
    if accepted is not None and proposal is not None:
        order = "commits" if proposal.order.text is None else proposal.order.text
        yield ok("pipeline file", f"a file with slice: {{{proposal.slices.text}}} and order: {order} is accepted")
        return
    refusals = [text for text, is_new in search.refusals.items() if not is_new] or [*search.refusals]
    for refusal in refusals[:_MOST_REFUSALS]:
        yield error("refused", refusal, _WAYS)


def _slice_id(at_ms: int, every_ms: int) -> str | None:
    grid = SliceGrid(every_ms=every_ms, zone=ZoneInfo("UTC"), first_ms=None, last_ms=None)
    try:
        return slice_at(grid, at_ms).slice_id
    except RangeError:
        return None
