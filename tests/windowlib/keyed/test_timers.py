"""Compares the timer service with a sorted set, and restores its snapshots with other splits of the key groups."""

from collections.abc import Hashable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.fuzzing import cases, chances
from windowlib.keyed.key_groups import key_group, key_group_range
from windowlib.keyed.key_order import KeyOrders, sortable
from windowlib.keyed.timers import STALE_MAX, Domain, KeyGroupRange, TimerQueue, TimerService

if TYPE_CHECKING:
    from windowlib.keyed.timer_owners import Owner

keys = st.sampled_from(["a", "b", "c", ("a", 1), ("a", 2), 7, -7])
namespaces = st.sampled_from([(0, 10), (5, 15)])
instants = st.integers(-20, 20)
SMALL_AND_REAL = (0, 1, 2, 5, STALE_MAX)
"""Values of `stale_max`. With the small ones a queue rebuilds its heap often."""
ModelTimer = tuple[int, int, Any, Any]


class TimersAreASortedSet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.service = TimerService()
        self.stale_max = STALE_MAX
        self.model: dict[str, set[ModelTimer]] = {"event": set(), "processing": set()}
        self.clock_ms = 0
        self.watermark_ms = -100

    @initialize(stale_max=st.sampled_from(SMALL_AND_REAL))
    def choose(self, stale_max: int) -> None:
        self.stale_max = stale_max
        self.service = TimerService(stale_max=stale_max)

    @rule(domain=st.sampled_from(["event", "processing"]), at_ms=instants, key=keys, namespace=namespaces)
    def register(self, domain: Domain, at_ms: int, key: Hashable, namespace: tuple[int, int]) -> None:
        self.service.queue(domain).register(at_ms, key, namespace)
        self.model[domain].add((at_ms, key_group(key), key, namespace))

    @rule(domain=st.sampled_from(["event", "processing"]), at_ms=instants, key=keys, namespace=namespaces)
    def delete(self, domain: Domain, at_ms: int, key: Hashable, namespace: tuple[int, int]) -> None:
        self.service.queue(domain).delete(at_ms, key, namespace)
        self.model[domain].discard((at_ms, key_group(key), key, namespace))

    def due(self, domain: str, until_ms: int) -> set[ModelTimer]:
        due = {timer for timer in self.model[domain] if timer[0] <= until_ms}
        self.model[domain] -= due
        return due

    @rule(step=st.integers(0, 6))
    def advance_watermark(self, step: int) -> None:
        self.watermark_ms += step * 10
        fired = [
            (at_ms, timer.key, timer.namespace) for at_ms, timer in self.service.advance_watermark(self.watermark_ms)
        ]
        expected = self.due("event", self.watermark_ms)
        assert sorted(map(repr, fired)) == sorted(repr((at, key, ns)) for at, _, key, ns in expected)
        assert [(at, key_group(key)) for at, key, _ in fired] == sorted((at, group) for at, group, _, _ in expected)

    @rule(step=st.integers(0, 6), inclusive=st.booleans())
    def advance_clock(self, step: int, *, inclusive: bool) -> None:
        self.clock_ms += step
        seen = []
        for at_ms, timer in self.service.advance_processing_time(self.clock_ms, inclusive=inclusive):
            assert self.service.processing_time_ms >= at_ms
            seen.append((at_ms, key_group(timer.key), timer.key, timer.namespace))
        assert set(seen) == self.due("processing", self.clock_ms if inclusive else self.clock_ms - 1)
        assert [one[:2] for one in seen] == sorted(one[:2] for one in seen)
        assert self.service.processing_time_ms == self.clock_ms

    @rule(parallelism=st.integers(1, 5))
    def rescale(self, parallelism: int) -> None:
        """Distribute the timers to any number of services, then restore all of them in one."""
        rows = self.service.snapshot()
        parts = []
        for subtask in range(parallelism):
            owned = key_group_range(subtask, parallelism)
            part = TimerService(groups=KeyGroupRange(owned.start, owned.stop), stale_max=self.stale_max)
            part.restore(row for row in rows if row.key_group in owned)
            parts.append(part)
        whole = TimerService(stale_max=self.stale_max)
        whole.restore(row for part in parts for row in part.snapshot())
        whole.watermark_ms, whole.processing_time_ms = self.service.watermark_ms, self.service.processing_time_ms
        assert whole.snapshot() == self.service.snapshot()
        self.service = whole

    @invariant()
    def the_next_timer_is_the_first(self) -> None:
        for domain, queue in (("event", self.service.event_timers), ("processing", self.service.processing_timers)):
            assert queue.next_ms() == min((timer[0] for timer in self.model[domain]), default=None)
            assert len(list(queue.rows("event"))) == len(self.model[domain])


TestTimersAreASortedSet = TimersAreASortedSet.TestCase
TestTimersAreASortedSet.settings = settings(max_examples=cases(60), stateful_step_count=30)


@given(st.lists(st.tuples(instants, keys, namespaces), max_size=20), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_registration(timers: list[tuple[int, Any, Any]], random: Random) -> None:
    def started(order: list[tuple[int, Any, Any]]) -> TimerService:
        service = TimerService()
        for at_ms, key, namespace in order:
            service.event_timers.register(at_ms, key, namespace)
        return service

    shuffled = list(timers)
    random.shuffle(shuffled)
    assert started(timers).snapshot() == started(shuffled).snapshot()
    fired = [(at_ms, timer.key, timer.namespace) for at_ms, timer in started(shuffled).advance_watermark(100)]
    assert fired == sorted(set(timers), key=lambda one: (one[0], key_group(one[1]), sortable(one[1]), one[2]))


def test_a_timer_that_is_registered_for_an_earlier_instant_goes_first() -> None:
    service = TimerService()
    for key in "abc":
        service.event_timers.register(10, key, ())
    fired: list[tuple[int, Hashable, Any]] = []
    for at_ms, timer in service.advance_watermark(20):
        if not fired:
            service.event_timers.register(5, "late", ())
            service.event_timers.register(10, timer.key, ("again",))
            service.event_timers.delete(10, "c", ())
        fired.append((at_ms, timer.key, timer.namespace))
    first = min("abc", key=key_group)
    rest = sorted(set("ab") - {first}, key=key_group)
    assert fired[:2] == [(10, first, ()), (5, "late", ())]
    assert sorted(fired[2:]) == sorted([(10, first, ("again",)), *((10, key, ()) for key in rest)])


ORDER = KeyOrders().__getitem__
WALK_KEYS = ("a", "b", "c", ("a", 1), 7)
Place = tuple[int, str, Any, Hashable]


@dataclass(frozen=True, slots=True)
class Shares:
    """An owner of a shared timer."""

    key: Hashable
    namespace: tuple[int, int]

    @property
    def order(self) -> str:
        return ORDER(self.key)


class ChangedWhileWalked:
    """A queue and a model, the set of its timers. Every change is made in both."""

    def __init__(self, random: Random, stale_max: int) -> None:
        self.random = random
        self.queue = TimerQueue(ORDER, stale_max=stale_max)
        self.model: set[Place] = set()
        self.walked_ms: int | None = None

    def draw(self) -> tuple[int, Hashable, tuple[int, int]]:
        at_ms = self.random.randrange(12) if self.walked_ms is None else self.walked_ms + self.random.randint(-3, 3)
        return at_ms, self.random.choice(WALK_KEYS), self.random.choice([(0, 10), (5, 15)])

    def change(self) -> None:
        at_ms, key, namespace = self.draw()
        match self.random.randrange(6):
            case 0 | 1:
                self.queue.register(at_ms, key, namespace)
                self.model.add((at_ms, ORDER(key), namespace, key))
            case 2 | 3:
                timers = [one for one in sorted(self.model) if one[0] != self.walked_ms or self.random.random() < 0.5]
                if timers and self.random.random() < 0.8:
                    at_ms, _, namespace, key = self.random.choice(timers)
                if not self.is_shared(at_ms, key, namespace):
                    self.queue.delete(at_ms, key, namespace)
                    self.model.discard((at_ms, ORDER(key), namespace, key))
            case 4:
                if at_ms != self.walked_ms:  # timers shared at the instant of the walk come after the others
                    self.share(at_ms, namespace)
            case _:
                assert self.queue.next_ms() == min((one[0] for one in self.model), default=None)
                assert len(list(self.queue.rows("event"))) == len(self.model)
                assert [row.at_ms for row in self.queue.rows("event")] == [one[0] for one in sorted(self.model)]

    def is_shared(self, at_ms: int, key: Hashable, namespace: tuple[int, int]) -> bool:
        """Return whether a timer is shared, and so must not be deleted, or whether it is unknown during a walk."""
        return self.queue.is_shared(at_ms, key, namespace) or at_ms in self.queue._rest

    def share(self, at_ms: int, namespace: tuple[int, int]) -> None:
        keys = self.random.sample(WALK_KEYS, self.random.randint(1, len(WALK_KEYS)))
        if not any(self.queue.is_shared(at_ms, key, namespace) for key in WALK_KEYS):
            self.queue.share(at_ms, namespace, {key: Shares(key, namespace) for key in keys})
            self.model |= {(at_ms, ORDER(key), namespace, key) for key in keys}

    def walk(self, until_ms: int, changes: int) -> None:
        for at_ms, timer in self.queue.due(until_ms):
            self.walked_ms = at_ms
            expected = min(self.model)
            assert (at_ms, ORDER(timer.key), timer.namespace, timer.key) == expected
            self.model.remove(expected)
            for _ in range(self.random.randint(0, min(changes, 4))):
                changes -= 1
                self.change()
        self.walked_ms = None
        assert not any(one[0] <= until_ms for one in self.model)


def test_a_walk_always_yields_the_first_existing_timer_whatever_its_caller_changes() -> None:
    """No timer is lost, and none is yielded twice."""
    for random in chances(400):
        one = ChangedWhileWalked(random, random.choice(SMALL_AND_REAL))
        for _ in range(random.randint(1, 4)):
            for _ in range(random.randint(0, 25)):
                one.change()
            one.walk(random.randint(0, 15), changes=random.randint(0, 30))
            one.change()


def test_a_heap_that_is_rebuilt_during_a_walk_keeps_the_instant_of_the_walk() -> None:
    """1,025 keys have a window each that ends at the same instant. Each callback deletes a later timer of its key."""
    queue = TimerQueue(ORDER)
    owners: dict[Hashable, Owner] = {key: Shares(key, (0, 10)) for key in range(STALE_MAX + 1)}
    queue.share(9, (0, 10), owners)
    for key in range(STALE_MAX + 1):
        queue.register(1_000 + key, key, (0, 10))
    fired = []
    for _, timer in queue.due(9):
        queue.delete(1_000 + timer.key, timer.key, timer.namespace)  # type: ignore[operator]
        fired.append(timer.key)
    assert fired == sorted(owners, key=ORDER)
    assert not list(queue.rows("event"))


def test_the_heap_does_not_grow_with_instants_whose_timers_were_deleted() -> None:
    for stale_max in SMALL_AND_REAL:
        queue = TimerQueue(ORDER, stale_max=stale_max)
        for at_ms in range(3_000):
            queue.register(at_ms, "a", ())
            queue.delete(at_ms, "a", ())
            assert len(queue._instants) <= stale_max + 1
        assert queue.next_ms() is None
