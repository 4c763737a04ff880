"""Actors: coroutines that run product code one at a time, and stop at every access to the ledger or to a file.

A scheduler resumes one actor and waits until it stops again, so its choices determine the interleaving.
The actors of one simulated process share its pid. A killed process ends at its next stop. After that it writes
nothing, not even in `finally`. They are greenlets: product code stops in the middle of any call, and a switch costs a
tenth of one between threads.
"""

from collections.abc import Callable
from dataclasses import dataclass

from greenlet import greenlet


class Killed(BaseException):
    """Raised in the actors of a killed process."""


@dataclass(eq=False)
class Actor:
    """One thread of a process. `work` is its program, `error` the exception that ended it, `step_name` its next step.

    Until `may_go_on` returns true, the scheduler does not resume the actor.
    """

    name: str
    host: str
    pid: int
    work: Callable[["Actor"], None]
    is_dead: bool = False
    error: BaseException | None = None
    done: bool = False
    step_name: str = "begin"
    may_go_on: Callable[[], bool] | None = None
    _running: greenlet | None = None

    def step(self) -> None:
        """Run the actor to its next stop, or to its end."""
        if self._running is None:
            self._running = greenlet(self._run)
        self._running.switch()

    def stop_here(self, step_name: str, *, until: Callable[[], bool] | None = None) -> None:
        """Wait for the next `step`, and until a condition is met. The actor itself calls this."""
        if not self.is_dead:
            self.step_name = step_name
            self.may_go_on = until
            running = self._running
            assert running is not None, "the scheduler started this actor"
            running.parent.switch()
            self.may_go_on = None
        if self.is_dead:
            raise Killed

    def is_ready(self) -> bool:
        """Return whether a step would get anywhere. A killed actor ends at its next step."""
        return self.is_dead or self.may_go_on is None or self.may_go_on()

    def _run(self) -> None:
        try:
            self.work(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the scheduler examines it
            self.error = error
        self.done = True
