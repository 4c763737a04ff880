"""The differences that the newest open request would make for readers, for the report."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.comparing.compare import Comparison, compare
from jobs.comparing.views import Sides, changes_something, request_sides
from jobs.review.compared import CHEAP_ROWS, MEMORY, Compared, compared, rows_to_read
from windowlib.errors import HindcastError

if TYPE_CHECKING:
    from jobs.comparing.differences import Differences
    from jobs.lake.lake import Lake
    from jobs.ledger.view import LedgerView

SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDifferences:
    """What a request would change. `problem` is the error if the views cannot be compared."""

    request_id: str
    compared: Compared
    problem: str | None = None


def newest_differences(
    lake: "Lake", pipeline: str, view: "LedgerView", *, most_rows: int = CHEAP_ROWS
) -> RequestDifferences | None:
    """Return what the newest open request would change for readers; None if no open request would change anything.

    A candidate is compared only if there is no other request.

    If the views differ in more than `most_rows` rows, they are not compared. A comparison that fails does not fail the
    report: the report then tells the problem.
    """
    requests = [request for request in view.open_requests() if changes_something(view, request)]
    request = max(requests, key=lambda request: (not request.is_candidate, request.opened_seq), default=None)
    if request is None:
        return None
    sides, problem = request_sides(view, request.request_id), None
    differences: Differences | None = None
    try:
        differences = _compared_now(lake, pipeline, sides) if rows_to_read(sides) <= most_rows else None
    except HindcastError as error:
        problem = str(error)
    return RequestDifferences(request_id=request.request_id, compared=compared(sides, differences), problem=problem)


def _compared_now(lake: "Lake", pipeline: str, sides: Sides) -> "Differences":
    return compare(lake, pipeline, sides, options=Comparison(samples=SAMPLES, limits=MEMORY))
