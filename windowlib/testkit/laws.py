"""Laws of triggers and evictors that are checked at each call, and the error of a broken law."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windowlib.bounds import Window
from windowlib.errors import InvariantBroken
from windowlib.records.records import Record, Stored
from windowlib.triggers.protocol import FINISHED, HOLD, TriggerContext, TriggerResult
from windowlib.triggers.wrapping import Wrapping
from windowlib.windows.evictors import Evictor, EvictorContext


def expect(law: str, value: object, wanted: object) -> None:
    """Raise InvariantBroken with the law and both values, or the first parts of them that differ."""
    if value == wanted:
        return
    if isinstance(value, dict) and isinstance(wanted, dict):
        key = next(key for key in (*wanted, *value) if value.get(key) != wanted.get(key))
        expect(f"{law}, at {key!r}", value.get(key), wanted.get(key))
    if isinstance(value, list) and isinstance(wanted, list):
        expect(law, *next((left, other) for left, other in itertools.zip_longest(value, wanted) if left != other))
    raise InvariantBroken(f"broken law: {law}. Found {value}, expected {wanted}")


@dataclass(frozen=True, slots=True)
class WatchedEvictor(Evictor):
    """Checks that the inner evictor returns some of the given records in their order."""

    inner: Evictor

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:
        return self._watch(records, self.inner.keep_before(records, window, ctx))

    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:
        return self._watch(records, self.inner.keep_after(records, window, ctx))

    def _watch(self, records: Sequence[Stored], kept: Sequence[Stored]) -> Sequence[Stored]:
        positions = {record.position for record in kept}
        in_order = [record for record in records if record.position in positions]
        expect("an evictor keeps some of the records, once each and in their order", list(kept), in_order)
        return kept


@dataclass(frozen=True, slots=True)
class WatchedTrigger(Wrapping):
    """Checks the names that the inner trigger sets in `ctx.state`.

    It sets FINISHED only if it returns FINISH, and HOLD never.
    """

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _watched(self.inner.on_record, (record, window), ctx)

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _watched(self.inner.on_event_time, (at_ms, window), ctx)

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _watched(self.inner.on_processing_time, (at_ms, window), ctx)


def _watched(
    call: Callable[..., TriggerResult], arguments: tuple[object, Window], ctx: TriggerContext
) -> TriggerResult:
    was_finished = FINISHED in ctx.state
    result = call(*arguments, ctx)
    names = {HOLD} if was_finished or result.is_finish else {HOLD, FINISHED}
    taken = sorted(names & ctx.state.keys())
    expect("ctx.state has 'finished' only after the trigger returned FINISH, and 'hold_ms' never", taken, [])
    return result
