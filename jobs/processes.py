"""Finding and ending processes by /proc (Linux): one is known by its id and start time, a family by its session."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_S = 0.1
# Positions in /proc/PID/stat after the command name, see proc(5).
_STATE, _SESSION, _START_TICKS = 0, 3, 19


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRef:
    """One process for certain: ids are used again, an id with its start time (clock ticks since boot) is not."""

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """Whether it runs; a zombie that nobody has waited for does not."""
        fields = _stat(self.pid)
        return fields is not None and fields[_STATE] != "Z" and int(fields[_START_TICKS]) == self.start_ticks

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it is still that process."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def process(pid: int) -> ProcessRef | None:
    """The process that has this id now, if any."""
    fields = _stat(pid)
    return None if fields is None else ProcessRef(pid=pid, start_ticks=int(fields[_START_TICKS]))


def session_members(session_id: int) -> list[ProcessRef]:
    """Every live process of a session, whoever its parent is by now."""
    members = []
    for directory in _PROC.iterdir():
        if directory.name.isdecimal() and (fields := _stat(int(directory.name))) is not None:
            member = ProcessRef(pid=int(directory.name), start_ticks=int(fields[_START_TICKS]))
            if int(fields[_SESSION]) == session_id and fields[_STATE] != "Z":
                members.append(member)
    return members


def end_session(session_id: int, grace_s: float) -> int:
    """End what is left of a session: SIGTERM, then SIGKILL after the grace. Returns how many had to be told."""
    members = session_members(session_id)
    for member in members:
        member.send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while session_members(session_id) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for survivor in session_members(session_id):
        survivor.send(signal.SIGKILL)
    return len(members)


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()  # the command name may hold spaces and parentheses
