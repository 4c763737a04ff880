"""Test drivers of Storm's windows: for an operator, and for a single window manager."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.conformance.storm_player import Lists
from windowlib.records.records import Fate, Late, Output, Pane, Record, Tally, Unassigned
from windowlib.storm.manager import Policies, Queued, WindowManager
from windowlib.storm.policies import EvictionPolicy, TriggerPolicy
from windowlib.storm.profiles import STORM
from windowlib.storm.spec import StormSpec


class Fired(NamedTuple):
    """A fired window, in a short form for assertions."""

    end: int | None
    events: list[Any]
    new: list[Any]
    expired: list[Any]


def fired(pane: Pane) -> Fired:
    """Return the window of a pane of the function `Lists`."""
    return Fired(pane.values["ref"], pane.values["events"], pane.values["new"], pane.values["expired"])


class Driven:
    """Drives one operator and collects its outputs. Watermarks are in Storm's reading."""

    def __init__(self, spec: StormSpec) -> None:
        self._spec = spec
        self.operator = spec.build()
        self.fates: list[Fate] = []
        self.outputs: list[Output] = []
        self.tallies: dict[str, Tally] = {}
        self._rank = 0

    def record(self, value: object, at_ms: int | None = None, *, key: Hashable = ()) -> Fate:
        """Process a tuple whose record hash is its rank; return its fate."""
        self._rank += 1
        fate = self.operator.process(Record(key, at_ms, value, (0, self._rank), self._rank))
        self.fates.append(fate)
        self._take()
        return fate

    def records(self, *times_ms: int) -> None:
        """Process tuples whose values are their times."""
        for at_ms in times_ms:
            self.record(at_ms, at_ms)

    def watermark(self, storms_ms: int) -> None:
        """Advance to Storm's watermark `storms_ms`, which is ours + 1."""
        self.operator.advance_watermark(storms_ms - 1, (0, self._rank))
        self._take()

    def clock(self, at_ms: int) -> None:
        """Advance the clock to `at_ms`, without the ticks at `at_ms` itself."""
        self.operator.advance_processing_time(at_ms, (0, self._rank), inclusive=False)
        self._take()

    def resume(self) -> None:
        """Replace the operator by a fresh one with its state."""
        operator = self._spec.build()
        operator.restore(self.operator.snapshot())
        self.operator = operator

    def _take(self) -> None:
        self.outputs += self.operator.drain()
        for term, (count, xor, total) in self.operator.take_tallies().items():
            before = self.tallies.get(term, Tally(0, 0, 0))
            self.tallies[term] = Tally(before.count + count, before.xor ^ xor, before.sum + total)

    def panes(self) -> list[Pane]:
        """Return the panes so far."""
        return [output for output in self.outputs if isinstance(output, Pane)]

    def windows(self) -> list[Fired]:
        """Return the windows so far, with Storm's lists."""
        return [fired(pane) for pane in self.panes()]

    def late(self) -> list[tuple[object, str]]:
        """Return the late tuples so far, with their reasons."""
        return [(output.record.value, output.reason) for output in self.outputs if isinstance(output, Late)]

    def unassigned(self) -> list[object]:
        """Return the tuples between windows so far."""
        return [output.record.value for output in self.outputs if isinstance(output, Unassigned)]

    def counts(self) -> dict[str, int]:
        """Return the number of edges of each term."""
        return {term: tally.count for term, tally in self.tallies.items()}


@dataclass
class Heard:
    """A listener that records all calls."""

    windows: list[Fired] = field(default_factory=list)
    expired: list[Any] = field(default_factory=list)

    def on_activation(
        self, events: Sequence[Queued], new: Sequence[Queued], expired: Sequence[Queued], *, reference_ms: int
    ) -> None:
        lists = ([event.value for event in part] for part in (events, new, expired))
        self.windows.append(Fired(reference_ms, *lists))

    def on_expiry(self, events: Sequence[Queued]) -> None:
        self.expired += [event.value for event in events]


class Managed:
    """Drives one window manager in the profile storm. Watermarks are in Storm's reading."""

    def __init__(self, eviction: EvictionPolicy, trigger: TriggerPolicy) -> None:
        policies = Policies(
            eviction=eviction, trigger=trigger, keeps_due_order=STORM.keeps_due_order, starts_at_ms=STORM.starts_at_ms
        )
        self.manager = WindowManager(policies)
        self.heard = Heard()

    def add(self, *tuples: tuple[object, int]) -> None:
        """Add tuples, given as (value, time)."""
        for value, at_ms in tuples:
            self.manager.add(Queued((0, 0), at_ms, value, 0), self.heard)

    def watermark(self, storms_ms: int) -> None:
        self.manager.on_watermark(storms_ms, self.heard)

    def tick(self, at_ms: int) -> None:
        self.manager.on_tick(at_ms, self.heard)

    def take(self) -> list[Fired]:
        """Return the windows since the last call."""
        windows, self.heard.windows = self.heard.windows, []
        return windows

    def queue(self) -> list[Any]:
        return [event.value for event in self.manager.queue]


def lists_spec(**parts: Any) -> StormSpec:  # noqa: ANN401
    """Return a StormSpec whose panes hold Storm's lists."""
    return StormSpec(function=Lists(), **parts)
