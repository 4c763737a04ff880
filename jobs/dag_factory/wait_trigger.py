"""The deferrable trigger of a plan task that waits. It runs in Airflow's triggerer, so a waiting run takes no slot.

Airflow imports this module in the triggerer, which does not see the dags folder: it must be installed.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent
from typing_extensions import override

from jobs.plain_text import escaped

if TYPE_CHECKING:
    from jobs.planning.watching import Sign

POLL_S: Final = 5.0
MAX_POLL_S: Final = 60.0
LONGEST_S: Final = 3600.0
"""A wait ends after so long, also if a look does not end, and whatever the wall clock shows: a clock that was ahead
leaves a time that is days away."""
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
            begun_s, begun_ms = time.monotonic(), now_ms()
            look = in_thread(partial(sign_of, watch, now_ms=begun_ms))
            # A look may take MAX_POLL_S also if the clock would end the wait earlier.
            left_s = max(MAX_POLL_S, (watch.wake_ms - begun_ms) / 1000)
            try:
                ended, _ = await asyncio.wait({look}, timeout=min(left_s, end_s - begun_s))
                sign = look.result() if ended else "clock"
            except Exception as error:  # noqa: BLE001 - a store that does not answer must not end a wait of days
                sign, before, problem = None, problem, escaped(error)
                if problem != before:
                    self.log.warning("looking again: %s", problem)
            finally:
                look.cancel()
            if sign is not None or time.monotonic() >= end_s:
                yield TriggerEvent({"sign": sign or "clock"})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(pause_s(self.poll_s, time.monotonic() - begun_s))


def in_thread(call: "Callable[[], Sign | None]") -> "asyncio.Future[Sign | None]":
    """Return the future result of a call in a thread of its own, which does not keep the process from its end.

    A look at a mount whose server has gone never ends. In the threads that `asyncio.to_thread` shares, a few such looks
    would stop all triggers of the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Sign | None] = loop.create_future()

    def settle(sign: "Sign | None", error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(sign)
        else:
            future.set_exception(error)

    def work() -> None:
        sign, problem = None, None
        try:
            sign = call()
        except Exception as error:  # noqa: BLE001 - the caller gets it
            problem = error
        with suppress(RuntimeError):  # the event loop was closed meanwhile
            loop.call_soon_threadsafe(settle, sign, problem)

    threading.Thread(target=work, name="hindcast look", daemon=True).start()
    return future


def pause_s(poll_s: float, look_s: float) -> float:
    """Return how long to pause after a look that has taken so many seconds."""
    return max(poll_s, min(MAX_POLL_S, LOOKING_SHARE * look_s))
