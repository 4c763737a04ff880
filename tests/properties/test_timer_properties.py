"""The timer service against a sorted list, and its snapshots against any split of the key groups."""

from collections.abc import Hashable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.fuzzing import cases
from windowlib.key_groups import key_group, key_group_range
from windowlib.key_order import sortable
from windowlib.timers import Domain, KeyGroupRange, TimerService, rows_by_group

keys = st.sampled_from(["a", "b", "c", ("a", 1), ("a", 2), 7, -7])
namespaces = st.sampled_from([(0, 10), (5, 15)])
instants = st.integers(-20, 20)
ModelTimer = tuple[int, int, Any, Any]


class TimersAreASortedSet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.service = TimerService()
        self.model: dict[str, set[ModelTimer]] = {"event": set(), "processing": set()}
        self.clock_ms = 0
        self.watermark_ms = -100

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
        """Hand the timers out to any number of services, and collect them again."""
        groups = rows_by_group(self.service.snapshot())
        parts = []
        for subtask in range(parallelism):
            owned = key_group_range(subtask, parallelism)
            part = TimerService(groups=KeyGroupRange(owned.start, owned.stop))
            part.restore(row for group in owned for row in groups.get(group, []))
            parts.append(part)
        whole = TimerService()
        whole.restore(row for part in parts for row in part.snapshot())
        whole.watermark_ms, whole.processing_time_ms = self.service.watermark_ms, self.service.processing_time_ms
        assert whole.snapshot() == self.service.snapshot()
        self.service = whole

    @invariant()
    def the_next_timer_is_the_first(self) -> None:
        for domain, queue in (("event", self.service.event_timers), ("processing", self.service.processing_timers)):
            assert queue.next_ms() == min((timer[0] for timer in self.model[domain]), default=None)
            assert len(queue) == len(self.model[domain])


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


def test_instants_whose_timers_were_deleted_do_not_pile_up() -> None:
    service = TimerService()
    for at_ms in range(10_000):
        service.event_timers.register(at_ms, "a", ())
        service.event_timers.delete(at_ms, "a", ())
    assert len(service.event_timers._instants) < 2_000
    assert service.event_timers.next_ms() is None
