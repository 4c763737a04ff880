"""Leases: which processes work on a request now.

A lease states that a holder works on a request. The holder renews the lease while it works, and releases it at the end.
A request may have several leases, because the DAG runs of Airflow's own backfill share one request.

A holder is a process, identified by host, boot, pid namespace, pid and start time, because the system reuses pids.
Between two tasks of a DAG run there is no process: the lease then has no holder. Its age decides, or the state of its
DAG run (`jobs.orchestration.dag_leases`).
"""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jobs.processes import ProcessRef, is_hidden, process

LEASE_MS = 60_000
"""How long the lease of a process is held after its last renewal, if the process cannot be examined."""
HANDOVER_MS = 900_000
"""How long a lease without a process is held: the time that Airflow has to start the next task of the DAG run."""
RENEWALS_PER_LEASE = 3
"""How often a holder renews its lease within the length of the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process. `pid_namespace` distinguishes containers that share a host name."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int

    @property
    def place(self) -> tuple[str, str, str]:
        """The scope of the pid: host, boot, pid namespace."""
        return self.host, self.boot_id, self.pid_namespace

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One holder's claim on a request. `holder` is None between two tasks of a DAG run.

    `dag_run` is the DAG run for which the holder works, as (dag_id, run_id); None for a command.
    """

    lease_id: str
    holder: Holder | None
    renewed_at_ms: int
    length_ms: int
    dag_run: tuple[str, str] | None = None

    @property
    def worker(self) -> str:
        """Who works on the request, for a message."""
        run = None if self.dag_run is None else f"{self.dag_run[0]}, run {self.dag_run[1]}"
        if self.holder is None:
            return run or "a DAG run"
        return str(self.holder) if run is None else f"{self.holder} ({run})"

    def to_details(self) -> dict[str, Any]:
        """Return the details of a `leased` event. `renewed_at_ms` is not among them: it is the time of the event."""
        holder = None if self.holder is None else asdict(self.holder)
        return {"lease_id": self.lease_id, "holder": holder, "length_ms": self.length_ms}


def lease_from_details(details: Mapping[str, Any], at_ms: int) -> Lease:
    """Return the lease of a `leased` event that was written at `at_ms`."""
    holder = details["holder"]
    return Lease(
        lease_id=details["lease_id"],
        holder=None if holder is None else Holder(**holder),
        renewed_at_ms=at_ms,
        length_ms=details["length_ms"],
    )


IsAlive = Callable[[Holder], bool | None]
"""Returns whether a process is alive; None if this process cannot examine it, for example on another host."""


def is_held(lease: Lease, *, now_ms: int, is_alive: IsAlive) -> bool:
    """Return whether the holder of a lease still works.

    If this process can examine the holder, the holder's life decides and the clock does not matter. Otherwise the lease
    is held for `length_ms` after its renewal. A renewal that is more than `length_ms` in the future does not hold the
    lease either, because a clock was changed.
    """
    answer = None if lease.holder is None else is_alive(lease.holder)
    if answer is not None:
        return answer
    return abs(now_ms - lease.renewed_at_ms) < lease.length_ms


def is_alive(holder: Holder) -> bool | None:
    """Return whether the process of a lease runs, or None if it belongs to another host, boot or pid namespace.

    Another boot may be an earlier one of this host, or another host with its name. None as well if /proc is missing, or
    hides the processes of other users (its option `hidepid`).
    """
    if holder.place != this_process().place or is_hidden(holder.pid):
        return None
    return ProcessRef(pid=holder.pid, start_ticks=holder.start_ticks).is_alive()


def this_process() -> Holder:
    """Return the identity of the calling process."""
    return _holder(os.getpid())


@cache
def _holder(pid: int) -> Holder:
    own = process(pid)
    return Holder(
        host=socket.gethostname(),
        boot_id=_text(Path("/proc/sys/kernel/random/boot_id")),
        pid_namespace=_link(Path("/proc/self/ns/pid")),
        pid=pid,
        start_ticks=0 if own is None else own.start_ticks,  # None: there is no /proc
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
