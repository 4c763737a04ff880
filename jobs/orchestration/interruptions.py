"""The end of a replay before its time: how long one may take, and what the task leaves when its driver has ended."""

from typing import Final

from jobs.durations import human_duration
from jobs.orchestration.dag_leases import staged_so_far
from jobs.orchestration.dag_orders import Order
from jobs.orchestration.plan_outline import folded
from jobs.planning.lease_keeping import release
from jobs.wall_clock import now_ms

LEAST_LIMIT_S: Final = 1_800.0
LIMIT_FACTOR: Final = 10
"""A replay may take so many times as long as past runs, and at least `LEAST_LIMIT_S`."""


def limit_s(order: Order) -> float | None:
    """Return how many seconds the replay of an order may take; None without past runs."""
    return None if order.seconds is None else max(LEAST_LIMIT_S, LIMIT_FACTOR * order.seconds)


def too_long(order: Order) -> str:
    """Return why a replay was stopped that has taken longer than its limit."""
    expected, limit = (human_duration(1_000 * (seconds or 0)) for seconds in (order.seconds, limit_s(order)))
    return (
        f"the replay of {folded(order.slices)} was stopped after {limit}. By past runs it takes about {expected}; "
        f"allowed are {LIMIT_FACTOR} times that, and at least {human_duration(1_000 * LEAST_LIMIT_S)}. A wait for "
        "cores that another replay has taken counts: if so, let each replay take fewer cores (spark.cores.max). The "
        "lines above tell how far the driver was. A retry continues after the last staged slice"
    )


def interrupted(order: Order) -> tuple[str | None, str]:
    """Return why the newest attempt at an order has ended, if the ledger has it, and how much of the order is staged.

    The lease is released if no process has taken it yet. That of a process ends with the process.
    Raises HindcastError: the ledger cannot be read or written.
    """
    work = order.context(now_ms)
    view = work.ledger.view()
    request = view.requests[order.request_id]
    if any(lease.lease_id == order.lease_id and lease.holder is None for lease in request.leases):
        release(work, order.opened)
    return request.failure, staged_so_far(view, request, order.slices)
