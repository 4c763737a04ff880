"""What the publication of an order's request would change, for the log of a gate."""

from typing import TYPE_CHECKING

from jobs.wall_clock import now_ms

if TYPE_CHECKING:
    from jobs.comparing.differences import Differences
    from jobs.orchestration.dag_orders import Order

SAMPLES = 3


def order_differences(order: "Order") -> "Differences | None":
    """Return what the publication of an order's request would change; None if readers see all of it already.

    Three samples of each table and each kind of change have rows side by side.
    Raises StoreError: rows cannot be read, or differ from those that were written.
    """
    from jobs.comparing.compare import Comparison, compare  # imports Arrow and DuckDB
    from jobs.comparing.views import differing_request, request_sides

    work = order.context(now_ms)
    view = work.ledger.view()
    if differing_request(view, order.request_id) is None:
        return None
    sides = request_sides(view, order.request_id)
    return compare(work.lake, work.pipeline.name, sides, options=Comparison(samples=SAMPLES))
