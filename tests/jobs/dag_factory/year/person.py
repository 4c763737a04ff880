"""The person of a simulated year: decides what is held, changed or erased, and what becomes of an edited file."""

from dataclasses import replace

from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.orchestration.restatements import restatement_conf
from jobs.pipeline.slices import next_slice, slice_grid
from jobs.planning.restating import restating
from jobs.publishing.accepting import accept_rewrites, chosen_rewrites, rewrites_of
from jobs.runs import RunResult
from tests.jobs.dag_factory.year.edited_file import AUTO, PROPOSES, READY
from tests.jobs.dag_factory.year.world import REPLAYS, World


def decide(world: World) -> None:
    """Let the person do what is to be done, or a part of it. A person mends a broken file first."""
    if world.file.is_broken or world.offset_ms:
        return
    if world.is_quiet:
        _undo_rules(world)
    _accept_erasures(world)
    for run in world.airflow.runs:
        is_other_zone = bool(world.file.content.timezone) and "request" not in run.conf
        is_left = run.dag_id == "backfill_sales" and (is_other_zone or (not world.is_quiet and world.happens(0.8)))
        if run.dag_id in REPLAYS and run.state == "failed" and not is_left:
            world.airflow.clear(run.dag_id, run.run_id)
    world.airflow.play()
    view = world.view()
    _hold_or_resume(world, view)
    requests = view.open_requests()
    for request in requests:
        _answer(world, view, request)
    if not requests and view.hold is None and not world.producer.undecided:
        _settle_specs(world, view)


def _answer(world: World, view: LedgerView, request: Request) -> None:
    """Start a proposal, decide what is held, or ask again for a range that the schedule has overtaken."""
    if request.is_proposed:
        if world.file.content.restate == AUTO:
            return  # the schedule starts it
        world.by_hand("backfill_sales", restatement_conf(world.work(), request, publish=True))
    elif held := _held(view, request):
        if request.kind is RequestKind.SCHEDULED and not request.is_complete:
            world.drawn["stopped request run again"] += 1
            world.by_hand("backfill_sales", restatement_conf(world.work(), request, publish=True))
            world.airflow.play()
            view = world.view()
        _judge(world, view, request, held)
    elif request.kind is RequestKind.RANGE and _is_overtaken(view, request):
        world.drawn["asked again"] += 1
        first = next(day for day in view.published if world.calendar.end_ms(day) > (request.from_ms or 0))
        _replay_from(world, view, first, if_open="replace")


def _hold_or_resume(world: World, view: LedgerView) -> None:
    """Resume a chain that is held after a rollback; else draw whether to roll the newest publication back."""
    if view.hold is not None:
        _decided(world, "resume", view, reason="seen")
    elif len(view.standing) > 1 and not world.is_quiet and world.happens(0.05):
        world.drawn["rollback asked"] += 1
        _decided(world, "roll_back", view, reason="a doubt", publication=view.standing[-1].seq)


def _accept_erasures(world: World) -> None:
    """Draw whether a person accepts all commits that erased records, as `hindcast accept-rewrite` does."""
    producer = world.producer
    waiting = producer.erasures.keys() - producer.accepted
    if not waiting or not (world.is_quiet or world.happens(0.5)):
        return
    world.store.following = None  # a command that fails is called again
    work = world.work()
    view = work.ledger.view()
    rewrites = rewrites_of(work, view)
    chosen = chosen_rewrites(work, view, rewrites, versions=())
    assert {rewrite.version for rewrite in chosen} == waiting, "what is to be accepted"
    if chosen:
        accept_rewrites(work, rewrites, chosen, reason="by law", who="anna")
        producer.accepted |= {rewrite.version for rewrite in chosen}


def _judge(world: World, view: LedgerView, request: Request, held: list[RunResult]) -> None:
    # A restatement that a person has cancelled is declined, and not proposed again.
    if request.kind is RequestKind.SCHEDULED and not world.is_quiet and world.happens(0.2):
        world.drawn["cancelled"] += 1
        world.cancelled_ms = world.truth.ms
        _decided(world, "cancel", view, request_id=request.request_id, reason="not now")
        return
    if request.kind is RequestKind.RANGE and max(request.runs) < max(view.published, default=""):
        # The schedule has published later days since, from the state of before.
        world.drawn["overtaken"] += 1
        _decided(world, "cancel", view, request_id=request.request_id, reason="later days are there")
        return
    world.drawn["waived"] += len(held)
    chosen = [{"slice_id": run.slice.slice_id, "run_id": run.run_id, "reason": "a real peak"} for run in held]
    _decided(world, "waive_and_publish", view, request_id=request.request_id, slices=chosen)


def _settle_specs(world: World, view: LedgerView) -> None:
    """Undo an edit that changes rows, or replay the newest days with it; replay what nothing else restates.

    A range by hand is replayed with the spec of the file, so an edit is undone before slices are replayed for another
    reason.
    """
    if view.head is None:
        return
    if view.head.result.spec_fingerprint != world.file.content.spec:
        if world.is_quiet or world.happens(0.3):
            _undo_edit(world, view)
        elif not world.file.content.timezone and world.happens(0.5):
            world.drawn["edit adopted"] += 1
            days = list(view.published)
            _replay_from(world, view, days[-world.chance.randrange(1, min(len(days), 12) + 1)])
        return
    left = [item for item in restating(world.work(), view).assessed if item.why_not]
    if left and (world.is_quiet or world.happens(0.5)):
        world.drawn["replayed by hand"] += 1
        _replay_from(world, view, left[0].change.slice.slice_id)


def _undo_rules(world: World) -> None:
    """Give the file the rules with which the schedule replays every day."""
    content = world.file.content
    rule = content.restate if content.restate == AUTO else PROPOSES
    if (content.ready, content.restate) != (READY[0], rule):
        world.file.write(replace(content, ready=READY[0], restate=rule))
        world.reload()


def _undo_edit(world: World, view: LedgerView) -> None:
    """Give the file the spec of the published head again, if it has another one."""
    assert view.head is not None
    published = view.head.result.spec_fingerprint
    if published != world.file.content.spec:
        world.drawn["edit undone"] += 1
        world.file.write(world.file.contents[published])
        world.reload()


def _is_overtaken(view: LedgerView, request: Request) -> bool:
    """Return whether the schedule has published slices after a range, so that the range cannot be published alone."""
    return view.head is not None and (request.to_ms or 0) < view.head.result.slice.end_ms


def _replay_from(world: World, view: LedgerView, slice_id: str, **more: object) -> None:
    """Replay the slices from one on to the published head as a new chain, with the spec of the file."""
    assert view.head is not None
    if world.file.content.timezone:
        world.file.write(replace(world.file.content, timezone=""))
    after = next_slice(slice_grid(world.file.content.pipeline), view.head.result.slice)
    assert after is not None
    conf = {"from": slice_id, "to": after.slice_id, "reason": "by hand", "fresh": True, "publish": True}
    world.by_hand("backfill_sales", conf | more)


def _held(view: LedgerView, request: Request) -> list[RunResult]:
    return [view.run(run_id).result for run_id in request.runs.values() if not view.run(run_id).is_publishable]


def _decided(world: World, action: str, view: LedgerView, **given: object) -> None:
    """Start the DAG of decisions, as its form does."""
    world.by_hand("decide_sales", {"action": action, "ledger_version": view.version, **given}, user="anna")
