"""Leases: who works on a request at this moment, and how to tell that nobody does any more.

A lease says that a holder works on a request. While the holder works it renews the lease; when it is done it releases
it. A request may have several leases: the DAG runs of Airflow's own backfill share one request.

A holder is a process. Host, boot, pid namespace, pid and start time together identify it: a pid alone is used again.
Between two tasks of a DAG run no process exists; the lease then has no holder and counts by time alone.
"""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jobs.processes import ProcessRef, process

LEASE_MS = 900_000
"""How long a lease counts after its last renewal, where the process cannot be looked at."""
RENEWALS_PER_LEASE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One process for certain. `pid_namespace` tells containers apart that share a host name."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int

    @property
    def place(self) -> tuple[str, str, str]:
        """Where its pid has a meaning: host, boot, pid namespace."""
        return self.host, self.boot_id, self.pid_namespace

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One holder's claim on a request. `holder` is None between two tasks of a DAG run."""

    lease_id: str
    holder: Holder | None
    renewed_at_ms: int
    length_ms: int

    def to_details(self) -> dict[str, Any]:
        """The details of a `leased` event; `renewed_at_ms` is the event's own time."""
        holder = None if self.holder is None else asdict(self.holder)
        return {"lease_id": self.lease_id, "holder": holder, "length_ms": self.length_ms}


def lease_from_details(details: Mapping[str, Any], at_ms: int) -> Lease:
    """The lease of a `leased` event.

    Raises:
        KeyError, TypeError: the details are not those of a lease.
    """
    holder = details["holder"]
    return Lease(
        lease_id=details["lease_id"],
        holder=None if holder is None else Holder(**holder),
        renewed_at_ms=at_ms,
        length_ms=details["length_ms"],
    )


IsAlive = Callable[[Holder], bool | None]
"""Whether a process lives; None where this process cannot tell, because it is on another host."""


def is_held(lease: Lease, *, now_ms: int, is_alive: IsAlive) -> bool:
    """Whether the holder of a lease still works.

    A process of this host is looked at, whatever the clock says. For all others the lease counts for `length_ms` after
    its renewal. A clock that stands further away than that, in either direction, was moved; it keeps no lease alive.
    """
    found = None if lease.holder is None else is_alive(lease.holder)
    if found is not None:
        return found
    return abs(now_ms - lease.renewed_at_ms) < lease.length_ms


def is_alive(holder: Holder) -> bool | None:
    """Return whether the process of a lease runs, or None if it belongs to another host or pid namespace."""
    here = this_process()
    if holder.host != here.host:
        return None
    if holder.boot_id != here.boot_id:
        return False  # the host was booted again
    if holder.pid_namespace != here.pid_namespace:
        return None
    return ProcessRef(pid=holder.pid, start_ticks=holder.start_ticks).is_alive()


def this_process() -> Holder:
    """Return the identity of the calling process."""
    return _holder(os.getpid())


@cache
def _holder(pid: int) -> Holder:
    found = process(pid)
    assert found is not None, "the process that calls is alive"
    return Holder(
        host=socket.gethostname(),
        boot_id=_text(Path("/proc/sys/kernel/random/boot_id")),
        pid_namespace=_link(Path("/proc/self/ns/pid")),
        pid=pid,
        start_ticks=found.start_ticks,
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
