"""Identity and end of processes: a process is a pid and its start time, and a family of processes is a session."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

_POLL_S = 0.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRef:
    """One process. The kernel reuses a pid, but not together with a start time.

    Attributes:
        start_ticks: clock ticks from boot to the start of the process (proc(5), `starttime`). The ledger and the
            service file store this number, because it stays the same when the wall clock is set. psutil's
            `create_time()` is a wall-clock time and changes then.
    """

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """Return whether this process runs. A zombie, which ended and was not waited for, does not run."""
        return self._found() is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal if this process still runs. A later process with the same pid gets no signal."""
        if (running := self._found()) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                running.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the process ended within the time.

        Not `psutil.Process.wait`: it would take the exit status of a child away from its `subprocess.Popen`, and for
        other processes it waits until the parent has read the exit status.
        """
        deadline = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _found(self) -> psutil.Process | None:
        with contextlib.suppress(psutil.Error):
            running = psutil.Process(self.pid)
            # `is_running` comes last: it proves that `running` had this pid while `process` read the start time.
            if process(self.pid) == self and running.status() != psutil.STATUS_ZOMBIE and running.is_running():
                return running
        return None


def process(pid: int) -> ProcessRef | None:
    """Return the process that has this pid now, or None. A zombie still has its pid."""
    try:
        while True:
            # psutil adds the boot time, which changes when the wall clock is set: both reads of it must agree.
            boot_s = psutil.boot_time()
            started_s = psutil.Process(pid).create_time()
            if psutil.boot_time() == boot_s:
                return ProcessRef(pid=pid, start_ticks=round((started_s - boot_s) * _TICKS_PER_S))
    except psutil.Error:
        return None


def session_members(session_id: int) -> list[ProcessRef]:
    """Return every live process of a session, including those whose parent ended."""
    return [member for member in _with_session(session_id) if member.is_alive()]


def _with_session(session_id: int) -> Iterator[ProcessRef]:
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == session_id and (member := process(pid)) is not None:
                yield member


def end_session(session_id: int, grace_s: float) -> int:
    """End the processes that are left of a session: SIGTERM, then SIGKILL after the grace time.

    Returns:
        How many processes got SIGTERM.
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
