"""What the checkers get: what has happened up to now, and one commit of the ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jobs.ledger.chain import GENESIS, Row
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.leases import Lease, is_held
from jobs.ledger.view import LedgerView, Request
from tests.simulation.actors import Actor
from tests.simulation.world import Rows, World

Seen = dict[str, str | None]
"""Slice -> the run that readers see; None after a rollback."""


@dataclass
class Observer:
    """What happened up to now, folded without the product's projection, apart from `view`."""

    world: World
    tip: str = GENESIS  # the hash of the last event
    view: LedgerView = field(default_factory=lambda: LedgerView(version=0))
    seen: Seen = field(default_factory=dict)
    standing: list[tuple[int, Seen]] = field(default_factory=list)  # publications: (seq, seen before it)
    published_at: list[dict[str, str]] = field(default_factory=lambda: [{}])  # version -> what readers see
    commits: set[str] = field(default_factory=set)
    staged: set[tuple[str, str]] = field(default_factory=set)  # (attempt, slice)
    waived: set[str] = field(default_factory=set)  # runs with a waiver that no cancellation or rollback has ended
    started_by: dict[str, int] = field(default_factory=dict)  # attempt -> pid
    current_seq: int = 0  # the publication that the current table shows
    published_by: dict[int, int] = field(default_factory=dict)  # pid -> its newest publication or rollback
    followed: set[tuple[int, str]] = field(default_factory=set)  # (pid, slice) that a `follow` has staged
    declined: set[tuple[str, str]] = field(default_factory=set)  # slice, digest of the files that a person declined
    decided: set[tuple[str, str | None]] = field(default_factory=set)  # run, waived finding on settled windows
    needed: Mapping[Rows, str] = field(default_factory=dict)  # rows that `view` needs -> what is wrong without them
    written: Counter[str] = field(default_factory=Counter)  # kind of event -> commits with such events

    def copy(self, world: World) -> "Observer":
        """Return an observer that has seen the same, for another world."""
        return Observer(
            world=world,
            tip=self.tip,
            view=self.view,
            seen=dict(self.seen),
            standing=list(self.standing),
            published_at=list(self.published_at),
            commits=set(self.commits),
            staged=set(self.staged),
            waived=set(self.waived),
            started_by=dict(self.started_by),
            declined=set(self.declined),
            decided=set(self.decided),
            needed=self.needed,
        )


@dataclass
class Commit:
    """One commit, as the checkers get it. `before` and `view` are the product's views around it."""

    actor: Actor
    rows: Sequence[Row]
    events: Sequence[LedgerEvent]
    before: LedgerView
    view: LedgerView
    version: int
    observer: Observer
    _by_kind: dict[EventKind, list[LedgerEvent]] = field(default_factory=dict)  # in the order of the events

    def __post_init__(self) -> None:
        for event in self.events:
            self._by_kind.setdefault(event.kind, []).append(event)

    @property
    def world(self) -> World:
        return self.observer.world

    @property
    def kinds(self) -> tuple[EventKind, ...]:
        """The kinds of the events."""
        return tuple(self._by_kind)

    def of(self, kind: EventKind) -> Sequence[LedgerEvent]:
        """Return the events of a kind."""
        return self._by_kind.get(kind, ())

    @property
    def shows_the_same(self) -> bool:
        """Whether readers see the same runs as before. Views are values, and a view takes over what has not changed."""
        return self.view.runs is self.before.runs and self.view.published is self.before.published

    @cached_property
    def has_the_same_runs(self) -> bool:
        """Whether readers see the same runs as before, and the open requests have the same ones."""
        is_as_before = (now.is_open == before.is_open and now.runs == before.runs for before, now in self.changed)
        is_new = len(self.view.requests) != len(self.before.requests)
        return self.shows_the_same and not is_new and all(is_as_before)

    @cached_property
    def changed(self) -> list[tuple[Request, Request]]:
        """The earlier requests that the commit may have changed, before and after it. Others are the same values."""
        after = self.view.requests
        pairs = ((request, after[request_id]) for request_id, request in self.before.requests.items())
        return [(before, now) for before, now in pairs if before is not now]

    def looks_held(self, lease: Lease) -> bool:
        """Return whether the actor could see that a lease is held, at its last read and at its write."""
        world, actor = self.world, self.actor
        moments = (world.last_read_ms.get(actor.pid, world.now_ms), world.now_ms)
        ahead_ms = world.ahead_ms.get(actor.pid, 0)
        return all(
            is_held(lease, now_ms=now_ms + ahead_ms, is_alive=lambda holder: world.is_alive(actor, holder))
            for now_ms in moments
        )


def filled(seen: Seen) -> dict[str, str]:
    """Return the slices that readers see."""
    return {slice_id: run_id for slice_id, run_id in sorted(seen.items()) if run_id is not None}
