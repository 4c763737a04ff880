"""What must hold in a simulated year: what readers see, what is named as changed, and which spec a run has."""

from jobs.ledger.view import LedgerView, RequestKind
from jobs.planning.request_context import RequestContext
from jobs.planning.standing import Standing, standing
from jobs.readers import published_table
from jobs.runs import Verdict
from tests.jobs.dag_factory.year.edited_file import AGGREGATES, OFF, READY
from tests.jobs.dag_factory.year.producer import totals
from tests.jobs.dag_factory.year.world import World
from tests.support.simulated_airflow import HOUR_MS
from windowlib.errors import LogError

Seen = dict[tuple[str, str], int]
"""(day, key) -> the value that readers see."""


def seen(world: World, *, at: int | None = None) -> Seen:
    """Return what readers see, now or at a version of the ledger: nothing before the first publication."""
    if at is None and not world.view().published:
        return {}
    rows = published_table(world.airflow.lake.root, "sales", at=at).to_pylist()
    values = {(row["slice_id"], row["key"]): row["total"] for row in rows}
    assert len(values) == len(rows), "readers see a window twice"
    return values


def check_nothing_early(world: World, view: LedgerView, where: str) -> None:
    """Check that each slice that readers see has ended by the true time (law L11)."""
    early = [day for day in view.published if world.calendar.end_ms(day) > world.truth.ms]
    assert not early, f"{where}: {early} published before their end"


def check_readers(world: World, number: int) -> Seen:
    """Check what readers see at noon against the commits of the producer; return it."""
    work, where = world.work(), world.calendar.day(number)
    view = work.ledger.view()
    now = _standing_unless_erased(world, work, view)
    days = world.calendar.before(number)
    assert list(view.published) == days[: len(view.published)], f"{where}: readers see days without a gap"
    due: Seen = {}
    for slice_id, run_id in view.published.items():
        run = view.run(run_id).result
        records = world.producer.records(slice_id, until=run.log.version)
        assert run.counts.read == len(records), f"{where}: {slice_id}"
        is_count = world.file.contents[run.spec_fingerprint].aggregate != AGGREGATES[0]
        due |= {(slice_id, key): total for key, total in totals(records, is_count=is_count).items()}
    visible = seen(world)
    assert visible == due, f"{where}: readers see the values of what the runs could read"
    if now is not None:
        _check_changed(world, view, now, where)
    if now is not None and len(view.published) < number:
        first = days[len(view.published)]  # the days after it wait for it
        assert _has_cause(world, first, view, now), f"{where}: {first} without a cause"
    return visible


def _standing_unless_erased(world: World, work: RequestContext, view: LedgerView) -> Standing | None:
    """Return where the pipeline stands; None if a person has to accept first that a day was erased before its run."""
    try:
        return standing(work, view)
    except LogError as error:
        erased = world.producer.erased_before_runs(view.published)
        if not any(f"commit {world.producer.undecided[day]} " in f"{error}" for day in erased):
            raise
        return None


def _check_changed(world: World, view: LedgerView, now: Standing, where: str) -> None:
    """Check which published days are named as changed, and which as those of an erasure without a decision."""
    producer, undecided = world.producer, world.producer.undecided
    stale = {
        slice_id
        for slice_id, run_id in view.published.items()
        if producer.records(slice_id, until=view.run(run_id).result.log.version) != producer.records(slice_id)
        or slice_id in undecided
    }
    assert {changed.slice.slice_id for changed in now.changed} == stale, f"{where}: what has changed is named"
    removed = {changed.slice.slice_id: changed.removed for changed in now.changed if changed.removed}
    assert removed.keys() == undecided.keys() & view.published.keys(), f"{where}: {removed}, {undecided}"
    assert all(f"commit {undecided[day]} " in f"{name} " for day, name in removed.items()), f"{where}: {removed}"


def _has_cause(world: World, slice_id: str, view: LedgerView, now: Standing) -> bool:
    """Return whether a day is waited for, in an open request, on hold, or that of a DAG run without success.

    If its request was cancelled, the next DAG run opens a new one, unless it publishes the days before it first. A
    clock that jumped may have let the schedule decide before the day was over: then the next DAG run has it. So it has
    a day for which a DAG run has waited that published days before it.
    """
    end_ms = world.calendar.end_ms(slice_id)
    is_asked = any(
        request.from_ms is not None and request.to_ms is not None and request.from_ms < end_ms <= request.to_ms
        for request in view.open_requests()
    )
    is_waited_for = now.waiting is not None and now.waiting.slice.slice_id == slice_id
    is_unplanned = world.planned_ms < end_ms or not world.is_plan_sound
    replays = [run for run in world.airflow.runs if run.dag_id == "replay_sales"]
    told, is_published, _ = (replays[-1].verdict if replays else "").partition(" published together")
    went_on = bool(is_published) and any(day in told for day in list(view.published)[-1:])
    ended = {run.state for run in replays}
    is_cancelled = world.cancelled_ms >= world.planned_ms
    return (
        went_on
        or is_cancelled
        or is_asked
        or is_waited_for
        or is_unplanned
        or view.hold is not None
        or bool(ended - {"success"})
    )


def _is_ready(world: World, slice_id: str, ready: str, now_ms: int) -> bool:
    """Return whether a day was complete by `log.ready` at a time of Airflow's clock, as far as the model tells."""
    if ready == READY[1]:
        return now_ms >= world.calendar.end_ms(slice_id) + 8 * HOUR_MS
    return ready == READY[0] or any(day > slice_id for _version, day, _amounts in world.producer.commits)


class SpecsAndVerdicts:
    """Checks each publication once: the spec of its runs, and that no failed check was published without a waiver."""

    def __init__(self) -> None:
        self._checked = 0
        self._specs: dict[str, str] = {}
        self._restatements: set[str] = set()

    def check(self, world: World, view: LedgerView, where: str) -> None:
        """Check the publications since the last call."""
        self._specs |= {run_id: run.result.spec_fingerprint for run_id, run in view.runs.items()}
        for publication in view.publications[self._checked :]:
            request = None if publication.request_id is None else view.requests[publication.request_id]
            if publication.is_rollback or request is None:
                continue
            if request.kind is RequestKind.SCHEDULED:
                asked = {ask for run in request.origins for ask in world.asked_ready.get(run.run_id, ())}
                early = [day for day in publication.changes if not any(_is_ready(world, day, *ask) for ask in asked)]
                assert not early, f"{where}: {early} were not complete by log.ready: {asked}"
            specs = {self._specs[run_id] for run_id in publication.changes.values() if run_id}
            if request.kind is RequestKind.RANGE:
                own = [origin.run_id for origin in request.origins]
                allowed = set[str]().union(*(world.asked_specs.get(run_id, set()) for run_id in own))
            else:
                allowed = self._heads_since(view, request.opened_seq, publication.seq) or set(world.file.contents)
            assert specs <= allowed, f"{where}: {request.kind} published {specs} in place of {allowed}"
        self._checked = len(view.publications)
        restatements = {request.request_id for request in view.requests.values() if request.changes}
        assert restatements <= self._restatements or world.rules - {OFF}, f"{where}: proposed with {world.rules}"
        self._restatements = restatements
        world.rules.clear()
        for run_id in view.published.values():
            run = view.run(run_id)
            assert run.is_publishable, f"{where}: readers see a run with failed checks"
            records = world.producer.records(run.result.slice.slice_id, until=run.result.log.version)
            content = world.file.contents[run.result.spec_fingerprint]
            total = sum(totals(records, is_count=content.aggregate != AGGREGATES[0]).values())
            assert (run.result.verdict is Verdict.FAIL) == (total >= world.limits[run.checks_attempt_id]), where

    def _heads_since(self, view: LedgerView, opened_seq: int, until_seq: int) -> set[str]:
        """Return the specs that the published head had between two versions of the ledger."""
        published: dict[str, str] = {}
        specs: set[str] = set()
        for publication in view.publications:
            if publication.seq >= until_seq:
                break
            for slice_id, run_id in publication.changes.items():
                if run_id is None:
                    published.pop(slice_id, None)
                else:
                    published[slice_id] = run_id
            if not published:
                continue
            spec = self._specs[published[max(published)]]
            if publication.seq <= opened_seq:
                specs.clear()
            specs.add(spec)
        return specs
