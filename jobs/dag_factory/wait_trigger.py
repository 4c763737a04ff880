"""The deferrable trigger of a plan task that waits. It runs in Airflow's triggerer, so a waiting run takes no slot.

Airflow imports this module in the triggerer, which does not see the dags folder: it must be installed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent
from typing_extensions import override

from jobs.plain_text import escaped

POLL_S: Final = 5.0
MAX_POLL_S: Final = 60.0
LONGEST_S: Final = 3600.0
"""A wait ends after so long, whatever the wall clock shows: a clock that was ahead leaves a time that is days away."""
LOOKING_SHARE: Final = 20
"""A look takes at most one part in so many of the time: a look at Parquet files lists their whole directory."""


class WaitTrigger(BaseTrigger):
    """Fires when the decision to wait may be another one now. `watch` is a `jobs.planning.watching.Watch` as JSON."""

    def __init__(self, *, watch: Mapping[str, Any], poll_s: float = POLL_S) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch, self.poll_s = dict(watch), poll_s

    @override
    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__name__}", {"watch": self.watch, "poll_s": self.poll_s}

    @override
    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event, with the sign that was seen. A place that cannot be read is looked at again."""
        from jobs.planning.watching import read_watch, sign_of
        from jobs.wall_clock import now_ms

        watch, problem, end_s = read_watch(self.watch), "", time.monotonic() + LONGEST_S
        while True:
            begun_s = time.monotonic()
            try:
                sign = await asyncio.to_thread(sign_of, watch, now_ms=now_ms())
            except Exception as error:  # noqa: BLE001 - a store that does not answer must not end a wait of days
                sign, before, problem = None, problem, escaped(error)
                if problem != before:
                    self.log.warning("looking again: %s", problem)
            if sign is not None or time.monotonic() >= end_s:
                yield TriggerEvent({"sign": sign or "clock"})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(pause_s(self.poll_s, time.monotonic() - begun_s))


def pause_s(poll_s: float, look_s: float) -> float:
    """Return how long to pause after a look that has taken so many seconds."""
    return max(poll_s, min(MAX_POLL_S, LOOKING_SHARE * look_s))
