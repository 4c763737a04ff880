"""Timers with set semantics, a total order, and snapshots by key group.

A timer is (instant, key, namespace) in one of two time domains. Registering it twice has the effect of once. Timers
fire in the order (instant, key group, key, namespace), so a replay does not depend on the order of registration.

A queue has one bucket per instant, and a heap orders the instants. The windows of a minute end at one instant for all
keys, so to register or delete a timer is mostly one step in a dict, and never more than O(log instants). Windows with
equal bounds can `share` one timer entry that exists as long as they do; then a window's timer has no cost of its own.
"""

from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from windowlib.bounds import MIN_TIME_MS, whole_number
from windowlib.errors import SpecError
from windowlib.keyed.key_groups import DEFAULT_MAX_PARALLELISM, check_parallelism
from windowlib.keyed.key_order import KeyOrders, group_of_order
from windowlib.keyed.state_rules import RowName, wrong_value
from windowlib.keyed.timer_owners import DueTimer, Namespace, Owner, Owners

Domain = Literal["event", "processing"]
EVENT: Final = "event"
PROCESSING: Final = "processing"

STALE_MAX: Final = 1024
"""The default of `stale_max`: the heap is rebuilt when it is longer than 2 * instants with timers + `stale_max`."""

_Place = tuple[str, Namespace, Hashable]
"""One timer of an instant: (order of the key, namespace, key). It sorts in firing order, because the string encodes
(key group, key). It is a plain tuple, because Python sorts plain tuples twice as fast as NamedTuples.
"""

_BY_ORDER: Final = attrgetter("order")
_BY_ORDER_AND_NAMESPACE: Final = attrgetter("order", "namespace")


class TimerRow(NamedTuple):
    """One timer in a snapshot."""

    key_group: int
    key: Hashable
    namespace: Namespace
    domain: Domain
    at_ms: int


class Timer(NamedTuple):
    """A timer that was registered alone."""

    key: Hashable
    namespace: Namespace


_DELETED: Final = Timer((), ())
"""The marker of a timer that was deleted."""

_NO_BUCKET: Final[dict[_Place, DueTimer | None]] = {}
"""The bucket of an instant whose timers were all deleted. It stays empty."""


_new_timer = tuple.__new__  # half the cost of Timer(...), for every timer


class TimerQueue:
    """The timers of one domain. `order` returns the order string of a key (windowlib.keyed.key_order).

    Law: each time, `due` yields the first of the timers that exist at that moment. So its caller may register, delete
    and query timers during the walk. Invariant: every instant that has timers is in the heap at least once.
    """

    __slots__ = (
        "_agenda",
        "_agenda_ms",
        "_agenda_next",
        "_buckets",
        "_instants",
        "_order",
        "_rest",
        "_shared",
        "_stale_max",
    )

    def __init__(self, order: Callable[[Hashable], str], *, stale_max: int = STALE_MAX) -> None:
        self._order = order
        self._stale_max = stale_max
        self._buckets: dict[int, dict[_Place, DueTimer | None]] = {}
        """The timers by instant. The value is the owner of a timer that was shared, else None."""
        self._shared: dict[int, dict[Namespace, Owners]] = {}
        """The shared timers by instant and namespace."""
        self._rest: dict[int, list[Owner]] = {}
        """The shared timers of a due instant that are not yielded yet, in reverse firing order."""
        self._instants: list[int] = []
        """A heap of the instants in all three. Instants without timers are removed when they reach the top."""
        self._agenda_ms: int | None = None
        """The instant of the current walk. `_agenda` has its timers in order, `_agenda_next` the index of the next."""
        self._agenda: list[_Place] = []
        self._agenda_next = 0

    def register(self, at_ms: int, key: Hashable, namespace: Namespace) -> None:
        """Add a timer, if it does not exist yet."""
        bucket = self._buckets.get(at_ms)
        if bucket is None:
            bucket = self._buckets[at_ms] = {}
            heappush(self._instants, at_ms)
        place = (self._order(key), namespace, key)
        if at_ms == self._agenda_ms and place not in bucket:
            insort(self._agenda, place, lo=self._agenda_next)
        bucket.setdefault(place)

    def has(self, at_ms: int, key: Hashable, namespace: Namespace) -> bool:
        """Return whether the timer was registered alone, and is not due yet."""
        return (self._order(key), namespace, key) in self._buckets.get(at_ms, _NO_BUCKET)

    def share(self, at_ms: int, namespace: Namespace, owners: Owners) -> None:
        """Add a timer for each owner that `owners` holds when the instant is due.

        To delete such a timer, remove its owner from `owners`.
        """
        shared = self._shared.get(at_ms)
        if shared is None:
            shared = self._shared[at_ms] = {}
            heappush(self._instants, at_ms)
        shared[namespace] = owners

    def is_shared(self, at_ms: int, key: Hashable, namespace: Namespace) -> bool:
        """Return whether the timer exists because of `share`."""
        return at_ms in self._shared and key in self._shared[at_ms].get(namespace, ())

    def delete(self, at_ms: int, key: Hashable, namespace: Namespace) -> None:
        """Remove a timer, if it exists."""
        bucket = self._buckets.get(at_ms)
        if bucket is not None:
            bucket.pop((self._order(key), namespace, key), None)
            if not bucket:
                del self._buckets[at_ms]
                live = len(self._buckets) + len(self._shared) + len(self._rest)
                if len(self._instants) > 2 * live + self._stale_max:
                    self._instants = sorted(self._with_timers())

    def may_be_due(self, until_ms: int) -> bool:
        """Return False if no timer is due up to `until_ms`. Cheaper than `next_ms`: it may be True without timers."""
        instants = self._instants
        return bool(instants) and instants[0] <= until_ms

    def next_ms(self) -> int | None:
        """Return the instant of the first timer, None without timers."""
        while self._instants:
            at_ms = self._instants[0]
            if self._buckets.get(at_ms) or self._rest.get(at_ms) or any(self._shared.get(at_ms, {}).values()):
                return at_ms
            heappop(self._instants)
            self._buckets.pop(at_ms, None)
            self._rest.pop(at_ms, None)
            self._shared.pop(at_ms, None)
        return None

    def due(self, until_ms: int) -> Iterator[tuple[int, DueTimer]]:
        """Remove and yield each timer up to and including `until_ms`, in firing order; of a shared timer, its owner.

        The walk takes account of timers that the caller registers or deletes during it. Timers that are due then are
        yielded in the same walk, at the earliest after the current timer. Timers that the caller shares at the instant
        of the walk come after the other timers of that instant.
        """
        while (at_ms := self.next_ms()) is not None and at_ms <= until_ms:
            if at_ms not in self._buckets and (at_ms in self._rest) != (at_ms in self._shared):
                yield from self._due_shared(at_ms)
            else:
                self._write_out(at_ms)
                yield from self._due_alone(at_ms)

    def due_together(self, until_ms: int) -> tuple[int, Mapping[Namespace, Owners]] | None:
        """Remove and return all timers of the next instant up to `until_ms`, if all of them are shared.

        Only for callers that register and delete no timer while they process the result.

        Returns:
            The instant, and the owners by namespace; `in_order` sorts them. None if there is no timer, or if a timer of
            the instant is not shared.
        """
        at_ms = self.next_ms()
        if at_ms is None or at_ms > until_ms or at_ms in self._buckets or at_ms in self._rest:
            return None
        return at_ms, self._shared.pop(at_ms)

    def _due_alone(self, at_ms: int) -> Iterator[tuple[int, DueTimer]]:
        """Yield the timers of a bucket until an earlier timer is registered."""
        places = sorted(self._buckets[at_ms])
        self._agenda_ms, self._agenda = at_ms, places
        for number, place in enumerate(places, 1):  # `register` inserts only after the place that is being yielded
            self._agenda_next = number
            owner = self._buckets.get(at_ms, _NO_BUCKET).pop(place, _DELETED)
            if owner is not _DELETED:  # the caller may have deleted the timer during the walk
                yield at_ms, owner or _new_timer(Timer, (place[2], place[1]))
                if self._instants and self._instants[0] < at_ms:
                    break
        self._agenda_ms, self._agenda = None, []

    def _due_shared(self, at_ms: int) -> Iterator[tuple[int, Owner]]:
        """Yield shared timers until another timer is registered at this instant or an earlier one."""
        rest = self._rest.get(at_ms)
        if rest is None:
            rest = self._rest[at_ms] = in_order(self._shared.pop(at_ms))[::-1]
        while rest:
            yield at_ms, rest.pop()
            if at_ms in self._buckets or at_ms in self._shared or (self._instants and self._instants[0] < at_ms):
                return
        self._rest.pop(at_ms, None)

    def _write_out(self, at_ms: int) -> None:
        """Move the shared timers of an instant to its bucket."""
        owners = self._rest.pop(at_ms, [])
        owners += [owner for owners in self._shared.pop(at_ms, {}).values() for owner in owners.values()]
        bucket = self._buckets.setdefault(at_ms, {})
        bucket.update({(owner.order, owner.namespace, owner.key): owner for owner in owners})

    def _with_timers(self) -> set[int]:
        """Return all instants that have timers, and possibly some that have none left."""
        return {*self._buckets, *self._shared, *self._rest}

    def _places(self, at_ms: int) -> set[_Place]:
        """Return all timers of an instant, shared or not."""
        places = set(self._buckets.get(at_ms, ()))
        places.update((owner.order, owner.namespace, owner.key) for owner in self._rest.get(at_ms, ()))
        for namespace, owners in self._shared.get(at_ms, {}).items():
            places.update((owner.order, namespace, owner.key) for owner in owners.values())
        return places

    def rows(self, domain: Domain) -> Iterator[TimerRow]:
        """Yield all timers in firing order, without removing them."""
        for at_ms in sorted(self._with_timers()):
            for order, namespace, key in sorted(self._places(at_ms)):
                yield TimerRow(group_of_order(order), key, namespace, domain, at_ms)


def timer_instant(call: str, at_ms: int) -> int:
    """Return the instant of a timer that a user's function gave to `call`.

    Raises SpecError: it is no whole number of 64 bits. A checkpoint would store another instant.
    """
    if (instant_ms := whole_number(at_ms)) is None:
        raise SpecError(f"{call}({at_ms!r:.100}): the instant of a timer is a whole number of epoch ms, of 64 bits")
    return instant_ms


def in_order(shared: Mapping[Namespace, Owners]) -> list[Owner]:
    """Return the owners of shared timers of one instant in firing order."""
    owners = [owner for owners in shared.values() for owner in owners.values()]
    owners.sort(key=_BY_ORDER if len(shared) == 1 else _BY_ORDER_AND_NAMESPACE)
    return owners


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """The key groups `[start, stop)` of `max_parallelism` that an operator owns."""

    start: int = 0
    stop: int = DEFAULT_MAX_PARALLELISM
    max_parallelism: int = DEFAULT_MAX_PARALLELISM

    def __post_init__(self) -> None:
        check_parallelism(1, self.max_parallelism)
        if not 0 <= self.start < self.stop <= self.max_parallelism:
            raise SpecError(
                f"key groups [{self.start}, {self.stop}) must be a range inside [0, {self.max_parallelism})"
            )

    def __contains__(self, group: int) -> bool:
        return self.start <= group < self.stop

    def check_row(self, table: str, stored: int, group: int, *, row: RowName) -> None:
        """Check the key group that a row of a checkpoint stores. `group` is that of its key, `row` names the row.

        Raises CheckpointError: the row has another group, or this operator does not own the group.
        """
        if stored != group or group not in self:
            allowed = (
                f"the group of the key, {group}, if it is in [{self.start}, {self.stop}) of {self.max_parallelism}, "
                "which this operator owns. Restore the row in the operator that owns its group, with the "
                "max_parallelism that wrote it"
            )
            raise wrong_value(table, "key_group", row=row, stored=stored, allowed=allowed)


class TimerService:
    """The event timers, the processing timers, the watermark and the processing time of one operator.

    It starts at the lowest watermark and at processing time 0. It reads no clock: only `advance_watermark` and
    `advance_processing_time` move the two times. `stale_max` applies to both queues.
    """

    __slots__ = (
        "event_timers",
        "groups",
        "name",
        "order",
        "orders",
        "processing_time_ms",
        "processing_timers",
        "watermark_ms",
    )

    def __init__(
        self, name: str = "window-timers", groups: KeyGroupRange | None = None, *, stale_max: int = STALE_MAX
    ) -> None:
        self.name = name
        self.groups = groups or KeyGroupRange()
        self.orders = KeyOrders(self.groups.max_parallelism)
        self.order = self.orders.__getitem__
        self.event_timers = TimerQueue(self.order, stale_max=stale_max)
        self.processing_timers = TimerQueue(self.order, stale_max=stale_max)
        self.watermark_ms = MIN_TIME_MS
        self.processing_time_ms = 0

    def queue(self, domain: Domain) -> TimerQueue:
        return self.event_timers if domain == EVENT else self.processing_timers

    def advance_watermark(self, watermark_ms: int) -> Iterator[tuple[int, DueTimer]]:
        """Set the watermark, then yield the event timers that are due. The caller must consume the whole iterator."""
        self.watermark_ms = watermark_ms
        return self.event_timers.due(watermark_ms)

    def advance_processing_time(
        self, processing_time_ms: int, *, inclusive: bool = True
    ) -> Iterator[tuple[int, DueTimer]]:
        """Yield the processing timers up to an instant, each with the clock at its own instant. Then set the clock.

        Without `inclusive`, timers at the instant itself do not fire yet, so that a record of that instant goes first.
        """
        until_ms = processing_time_ms if inclusive else processing_time_ms - 1
        for at_ms, timer in self.processing_timers.due(until_ms):
            self.processing_time_ms = max(self.processing_time_ms, at_ms)
            yield at_ms, timer
        self.processing_time_ms = processing_time_ms

    def snapshot(self) -> list[TimerRow]:
        """Return all timers in firing order, event time first."""
        return [*self.event_timers.rows(EVENT), *self.processing_timers.rows(PROCESSING)]

    def restore(self, rows: Iterable[TimerRow]) -> None:
        """Add the timers of one or more snapshots. Skip timers that exist because of `share`.

        Raises CheckpointError: a timer belongs to a key group that this service does not own.
        """
        for row in rows:
            named = (row.key, row.namespace)
            if row.domain not in {EVENT, PROCESSING}:
                allowed = f"{EVENT} or {PROCESSING}"
                raise wrong_value("timers", "domain", row=named, stored=row.domain, allowed=allowed)
            self.groups.check_row("timers", row.key_group, group_of_order(self.order(row.key)), row=named)
            queue = self.queue(row.domain)
            if not queue.is_shared(row.at_ms, row.key, row.namespace):
                queue.register(row.at_ms, row.key, row.namespace)


class TimedOperator:
    """What an operator with timers tells about its times (`Operator`)."""

    _timers: TimerService

    def next_event_timer_ms(self) -> int | None:
        return self._timers.event_timers.next_ms()

    def next_processing_timer_ms(self) -> int | None:
        return self._timers.processing_timers.next_ms()

    @property
    def watermark_ms(self) -> int:
        return self._timers.watermark_ms
