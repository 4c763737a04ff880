"""`plan --verify`: whether the log still holds the records that runs have read, by reading them again.

The Delta log cannot always tell: a file may be damaged in place, and commits are cleaned away. What is found is written
into the ledger where it changes what a plan says, so one look is enough.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.lake.log_match import Match, match_input
from jobs.ledger.events import LedgerEvent
from jobs.ledger.looks import verified_event
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import StagedRun
from jobs.plain_text import agreeing, counted, first_of
from jobs.planning.log_pin import pin_input
from jobs.planning.plan import Plan
from jobs.planning.request_context import RequestContext
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.groups import groups_of
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.stages.counted import counted_log, reading_tasks, slice_inputs
from jobs.runs import Sighting, Slice
from jobs.spark.lazy_session import LazySession

RECORDS_PER_JOB = 5_000_000
"""Slices are read together up to about this many records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was compared: slices whose records are those that their run read, and slices whose records are others.

    `damaged` are those of `different` whose files are still the ones that the run read, by the Delta log. `skipped`
    have no run of the plan's spec to be compared with.
    """

    equal: tuple[str, ...]
    different: tuple[str, ...]
    damaged: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One sentence for a person."""
        differing, skips = len(self.different), len(self.skipped)
        read = counted(len(self.equal) + differing, "slice")
        compared = f"{read} read again, {differing:,} {agreeing(differing, 'differ')}"
        skipped = f"; {skips:,} {agreeing(skips, 'have')} no run of this spec to be compared with" if skips else ""
        if not self.different:
            return f"{compared}{skipped}."
        told = [f"{compared}{skipped}. In {first_of(self.different, 5)} the log holds other records than the run read."]
        if self.damaged:
            told.append(
                f"In {first_of(self.damaged, 5)} it has the same files: one of them was damaged or exchanged, before "
                "the run or since. Restore it and verify again."
            )
        return " ".join([*told, "If the log is right as it is, run the slices again."])


def verify_inputs(
    session: LazySession, work: RequestContext, planned: Plan, *, who: str, records_per_job: int = RECORDS_PER_JOB
) -> Verification:
    """Compare the log's records with what the runs of a plan read, by the fingerprint that the replay makes.

    The session is started if the work needs it. `who` is recorded with what is found. About `records_per_job` records
    are read together, and at least one slice.

    Raises:
        LogError: a file is damaged, as for a replay.
        SpecError: as for a replay; or the pipeline has derived columns or a filter.
    """
    spec = planned.spec_fingerprint
    compared = [(step, step.run) for step in planned.steps if step.run and step.run.result.spec_fingerprint == spec]
    different, damaged = list[str](), list[str]()
    for pairs in groups_of(compared, lambda pair: pair[0].records, records_per_job):
        runs = {step.slice: run for step, run in pairs}
        events: list[LedgerEvent] = []
        for slice_, sighting, fingerprint in _read(session, work, runs):
            run = runs[slice_]
            said = match_input(run.sightings, sighting.log)  # before this sighting, by the files of the log
            if not sighting.is_equal:
                different.append(slice_.slice_id)
                # The log shows no reason why the records are others: neither in its files nor in its columns.
                is_damaged = said is Match.SAME and run.result.log.keeps_columns(sighting.log)
                damaged += [slice_.slice_id] if is_damaged else []
            if _is_news(run, sighting, said=said):
                events.append(verified_event(run.result, sighting, fingerprint=fingerprint, who=who))
        if events:
            _record(work, events)
    names = [step.slice.slice_id for step, _ in compared]
    return Verification(
        equal=tuple(name for name in names if name not in different),
        different=tuple(different),
        damaged=tuple(damaged),
        skipped=tuple(step.slice.slice_id for step in planned.steps if step.slice.slice_id not in set(names)),
    )


def _record(work: RequestContext, events: Sequence[LedgerEvent]) -> None:
    work.ledger.write(lambda _view: events)


def _read(
    session: LazySession, work: RequestContext, runs: Mapping[Slice, StagedRun]
) -> Iterator[tuple[Slice, Sighting, str]]:
    """Read the slices as the replay does; the fingerprint of each, and whether its run has the same."""
    slices = [*runs]
    pinned = pin_input(work.pipeline, work.lake, slices, known=known_log(work.ledger.view(), slices))
    chunk = ChunkLog.of(work.pipeline, pinned, slices)
    tasks = reading_tasks(session, chunk)
    file_digests = check_log_bytes(tasks, pinned)
    with counted_log(tasks, chunk, work.lake) as counted:
        inputs = slice_inputs(counted.scanned, len(slices))
    for slice_, read in zip(slices, inputs, strict=True):
        is_equal = read.fingerprint == runs[slice_].result.input_fingerprint
        log = pinned.coordinates(slice_.slice_id)
        if is_equal:
            log = replace(log, file_digests=file_digests.get(slice_.slice_id, ""))
        yield slice_, Sighting(log=log, is_equal=is_equal), read.fingerprint


def _is_news(run: StagedRun, sighting: Sighting, *, said: Match) -> bool:
    """Whether the ledger would say something else of the run without this sighting, or lack digests of its files."""
    if not sighting.is_equal:
        return said in {Match.SAME, Match.UNKNOWN}
    digests = sighting.log.file_digests
    return said is not Match.SAME or all(past.log.file_digests != digests for past in run.sightings)
