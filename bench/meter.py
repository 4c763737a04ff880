"""CPU seconds and memory of a process tree, measured from outside."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

POLL_S: Final = 0.1
GONE: Final = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, FileNotFoundError, ProcessLookupError)
THREADS: Final = {
    "C1 CompilerThre": "JIT compiler C1",
    "C2 CompilerThre": "JIT compiler C2",
    "GC Thread": "garbage collector",
    "G1 ": "garbage collector",
    "VM Thread": "JVM itself",
    "Executo": "Spark tasks",
    "stdout writer f": "Spark to Python",
    "Thread-": "Spark planning (thread of the driver)",
}
"""The beginning of a JVM thread's name, as the system has it (`Executor task launch ..` is shortened in the middle)."""

ENDED: Final = "threads that ended"


def tree(root: int) -> list[psutil.Process]:
    """Return the processes of a tree that live now, the root first."""
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except GONE:
        return []


_PARENTS: Final[dict[int, int]] = {}
"""The parent of each process of the machine that `tree_cpu_s` has seen and that lives."""


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a tree so far, with those of its ended processes that their parents waited for.

    Every stage of a replay asks for it, and its own time is in the figures: `psutil` would read the files of all
    processes of the machine each time, and a JVM has hundreds of threads that may have children.
    """
    alive = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 - a Path of each takes 20 us
    for pid in _PARENTS.keys() - alive:
        del _PARENTS[pid]
    for pid in alive - _PARENTS.keys():
        if fields := _stat(pid):
            _PARENTS[pid] = int(fields[1])
    children: dict[int, list[int]] = {}
    for pid, parent in _PARENTS.items():
        children.setdefault(parent, []).append(pid)
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += sum(map(int, _stat(pid)[11:15]))  # utime, stime, cutime, cstime
        waiting += children.get(pid, ())
    return total / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[bytes]:
    """Return the fields of `/proc/<pid>/stat` from the third on; none if the process has ended."""
    try:
        return _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except GONE:
        return []


def _content(path: str) -> bytes:
    """Return the content of a file of `/proc`, which one read returns whole."""
    number = os.open(path, os.O_RDONLY)
    try:
        return os.read(number, 1 << 20)
    finally:
        os.close(number)


def role_of(process: psutil.Process, root: int) -> str | None:
    """Return what a process of a tree is: `python` is the root, `jvm` a Java process, all others are a `worker`.

    A JVM that starts a program is two processes of one command for a moment, which share all memory. The second of them
    is None. A Spark worker starts its executors, which are JVMs of other commands.
    """
    if process.pid == root:
        return "python"
    if Path(process.exe()).name != "java":
        return "worker"
    parent = process.parent()
    is_copy = parent is not None and Path(parent.exe()).name == "java" and parent.cmdline() == process.cmdline()
    return None if is_copy else "jvm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """CPU seconds of a tree so far: by role, and of each Java thread that lives, with what it does."""

    roles: Mapping[str, float]
    threads: Mapping[int, tuple[str, float]]

    def since(self, before: "Spent") -> dict[str, dict[str, float]]:
        """Return the CPU seconds since an earlier moment, as notes of a run. Threads that ended are one group."""
        roles = {role: seconds - before.roles.get(role, 0.0) for role, seconds in self.roles.items()}
        groups: dict[str, float] = {}
        for thread, (group, seconds) in self.threads.items():
            groups[group] = groups.get(group, 0.0) + seconds - before.threads.get(thread, ("", 0.0))[1]
        if not groups:
            return {"cpu_s_by_process": _sorted(roles)}
        groups[ENDED] = max(roles.get("jvm", 0.0) - sum(groups.values()), 0.0)
        return {"cpu_s_by_process": _sorted(roles), "cpu_s_by_jvm_thread": _sorted(groups)}


def spent(root: int) -> Spent:
    """Return the CPU seconds of a tree so far."""
    roles: dict[str, float] = {}
    threads: dict[int, tuple[str, float]] = {}
    for process in tree(root):
        try:
            role, own = role_of(process, root), process.cpu_times()
            if role is None:
                continue
            seconds = own.user + own.system + own.children_user + own.children_system
            roles[role] = roles.get(role, 0.0) + seconds
            threads |= _threads(process) if role == "jvm" else {}
        except GONE:
            continue
    return Spent(roles=roles, threads=threads)


def _threads(process: psutil.Process) -> dict[int, tuple[str, float]]:
    found = {}
    for thread in process.threads():
        try:
            name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text(encoding="utf-8").strip()
        except GONE:
            continue
        group = next((what for start, what in THREADS.items() if name.startswith(start)), "other JVM threads")
        found[thread.id] = (group, thread.user_time + thread.system_time)
    return found


def _sorted(counted: Mapping[str, float]) -> dict[str, float]:
    """Return seconds rounded, the most first."""
    return {name: round(seconds, 2) for name, seconds in sorted(counted.items(), key=lambda item: -item[1])}


@dataclass(slots=True)
class Peaks:
    """The greatest resident memory by role, in MB, of all polls; and each process's own CPU seconds, first and last."""

    mb: dict[str, float] = field(default_factory=dict)
    own_cpu_s: dict[int, tuple[float, float]] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """Return the CPU seconds between the first and the last poll, also of processes that nobody waited for."""
        return sum(last - first for first, last in self.own_cpu_s.values())

    def take(self, root: int, *, is_first: bool = False) -> None:
        """Read the memory and the CPU seconds of a tree once. A process that is new after the first poll began at 0."""
        found: dict[str, float] = {"tree": 0.0}
        for process in tree(root):
            try:
                used, role, own = process.memory_info().rss / 2**20, role_of(process, root), process.cpu_times()
            except GONE:
                continue
            if role is None:
                continue
            seconds = own.user + own.system
            first, _ = self.own_cpu_s.get(process.pid, (seconds if is_first else 0.0, 0.0))
            self.own_cpu_s[process.pid] = (first, seconds)
            found["tree"] += used
            found[role] = max(found.get(role, 0.0), used)
        for role, used in found.items():
            self.mb[role] = round(max(self.mb.get(role, 0.0), used), 1)


@contextmanager
def peaks_of(root: int, *, poll_s: float = POLL_S) -> Iterator[Peaks]:
    """Poll the memory of a tree during the context."""
    peaks, ended = Peaks(), threading.Event()

    def poll() -> None:
        while not ended.wait(poll_s):
            peaks.take(root)

    poller = threading.Thread(target=poll, daemon=True)
    peaks.take(root, is_first=True)
    poller.start()
    try:
        yield peaks
    finally:
        ended.set()
        poller.join()
        peaks.take(root)
