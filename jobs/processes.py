"""Identity and end of processes: a process is a pid and its start time, and a family of processes is a session."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_POLL_S = 0.1
_ZOMBIE: Final = "Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRef:
    """One process. The kernel reuses a pid, but not together with a start time.

    Attributes:
        start_ticks: clock ticks from boot to the start of the process (proc(5), `starttime`). It stays the same when
            the wall clock is set.
    """

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """Return whether this process runs. A zombie, which ended and was not waited for, does not run."""
        state, start_ticks = _stat(self.pid) or (_ZOMBIE, None)
        return state != _ZOMBIE and start_ticks == self.start_ticks

    def send(self, number: signal.Signals) -> None:
        """Send a signal if this process still runs. A later process with the same pid gets no signal."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the process ended within the time. The exit status of a child is left to its parent."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def process(pid: int) -> ProcessRef | None:
    """Return the process that has this pid now, or None. A zombie still has its pid."""
    stat = _stat(pid)
    return None if stat is None else ProcessRef(pid=pid, start_ticks=stat[1])


def is_hidden(pid: int) -> bool:
    """Return whether a process has this pid that /proc does not show: it is of another user, or there is no /proc."""
    if _stat(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _stat(pid) is None  # it may have started after the first look


def _stat(pid: int) -> tuple[str, int] | None:
    """Return the state and the start time of a process (proc(5)); None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    after_the_name = text.rpartition(b")")[2].split()  # a name may have any character
    return after_the_name[0].decode(), int(after_the_name[19])


def session_members(session_id: int) -> list[ProcessRef]:
    """Return every live process of a session, including those whose parent ended."""
    return [member for member in _with_session(session_id) if member.is_alive()]


def _with_session(session_id: int) -> Iterator[ProcessRef]:
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):  # noqa: PTH208 - names alone
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == session_id and (member := process(pid)) is not None:
                yield member


def end_session(session_id: int, grace_s: float) -> int:
    """End the processes that are left of a session: SIGTERM, then SIGKILL after the grace time.

    Returns how many processes got SIGTERM.
    """
    members = session_members(session_id)
    for member in members:
        member.send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while session_members(session_id) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for survivor in session_members(session_id):
        survivor.send(signal.SIGKILL)
    return len(members)
