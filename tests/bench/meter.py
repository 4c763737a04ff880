"""CPU seconds and memory of a process tree, measured from outside."""

import threading
from collections import Counter
from collections.abc import Iterator
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


def tree(root: int) -> list[psutil.Process]:
    """Return the processes of a tree that live now, the root first."""
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except GONE:
        return []


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a tree so far, with those of its ended processes that their parents waited for."""
    total = 0.0
    for process in tree(root):
        try:
            spent = process.cpu_times()
        except GONE:
            continue
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def role_of(process: psutil.Process, root: int) -> str | None:
    """Return what a process of a tree is: `python` is the root, `jvm` a Java process, all others are a `worker`.

    A JVM that starts a program is two processes for a moment, which share all memory. The second of them is None.
    """
    if process.pid == root:
        return "python"
    if Path(process.exe()).name != "java":
        return "worker"
    parent = process.parent()
    return None if parent is not None and Path(parent.exe()).name == "java" else "jvm"


def jvm_threads_cpu_s(root: int) -> Counter[str]:
    """Return the CPU seconds of the tree's Java threads that live now, by what they do."""
    spent: Counter[str] = Counter()
    for process in tree(root):
        try:
            if role_of(process, root) != "jvm":
                continue
            for thread in process.threads():
                name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text(encoding="utf-8").strip()
                group = next((what for start, what in THREADS.items() if name.startswith(start)), "other JVM threads")
                spent[group] += thread.user_time + thread.system_time
        except GONE:
            continue
    return spent


@dataclass(slots=True)
class Peaks:
    """The greatest resident memory by role, in MB, of all polls."""

    mb: dict[str, float] = field(default_factory=dict)

    def take(self, root: int) -> None:
        """Read the memory of a tree once."""
        found: dict[str, float] = {"tree": 0.0}
        for process in tree(root):
            try:
                used, role = process.memory_info().rss / 2**20, role_of(process, root)
            except GONE:
                continue
            if role is None:
                continue
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
    peaks.take(root)
    poller.start()
    try:
        yield peaks
    finally:
        ended.set()
        poller.join()
        peaks.take(root)
