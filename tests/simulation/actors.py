"""Actors: threads that run product code one at a time, and stop at every access to the ledger or to a file.

A scheduler resumes one actor and waits until it stops again, so its choices determine the interleaving.
The threads of one simulated process share its pid. A killed process ends at its next stop. After that it writes
nothing, not even in `finally`.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


class Killed(BaseException):
    """Raised in the threads of a killed process."""


def _closed_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False)
class Actor:
    """One thread of a process. `work` is its program, `error` the exception that ended it, `step_name` its next step.

    While `is_waiting` returns true, the scheduler does not resume the actor.
    """

    name: str
    host: str
    pid: int
    work: Callable[["Actor"], None]
    is_dead: bool = False
    error: BaseException | None = None
    done: bool = False
    step_name: str = "begin"
    is_waiting: Callable[[], bool] | None = None
    _resumed: threading.Lock = field(default_factory=_closed_lock)
    _stopped: threading.Lock = field(default_factory=_closed_lock)
    _thread: threading.Thread | None = None

    def step(self) -> None:
        """Run the actor to its next stop, or to its end."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        else:
            self._resumed.release()
        self._stopped.acquire()
        if self.done:
            self._thread.join()

    def stop_here(self, step_name: str, *, until: Callable[[], bool] | None = None) -> None:
        """Wait for the next `step`, and until a condition is met. The actor's own thread calls this."""
        if not self.is_dead:
            self.step_name = step_name
            self.is_waiting = None if until is None else lambda: not until()
            self._stopped.release()
            self._resumed.acquire()
            self.is_waiting = None
        if self.is_dead:
            raise Killed

    def is_ready(self) -> bool:
        """Return whether a step would get anywhere. A killed actor ends at its next step."""
        return self.is_dead or self.is_waiting is None or not self.is_waiting()

    def _run(self) -> None:
        try:
            self.work(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the scheduler examines it
            self.error = error
        self.done = True
        self._stopped.release()
