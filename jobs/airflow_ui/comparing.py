"""The comparisons of this process, as variables of the template of differences."""

from collections.abc import Callable
from typing import Any

from jobs.airflow_ui.context import PipelineContext
from jobs.comparing.differences import Sample
from jobs.comparing.views import Sides
from jobs.review.pages.compare_page import Comparisons
from jobs.review.pages.window_page import window_address
from jobs.review.report import page
from windowlib.errors import HindcastError

_COMPARISONS = Comparisons()


def difference_values(
    context: PipelineContext, views: Callable[[], Sides] | None, *, here: str, is_asked: bool,
    request_id: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the variables of `sections/differences.html.j2` for two views; without views, those that show nothing.

    `here` is the address that compares them. Each window leads to its page; with `request_id`, to that of the staged
    runs of the request.
    Views that are not there any more, and a comparison that fails, do not fail the page: it then tells the problem.
    """
    sides, compared, problem = None, None, None
    try:
        sides = None if views is None else views()
        if sides is not None and sides.slices:
            compared = _COMPARISONS.compared(context.lake, context.name, sides, is_asked=is_asked)
    except HindcastError as error:
        problem = str(error)

    def address(sample: Sample) -> str | None:
        return window_address(context.pipeline, sample.match, request_id=request_id)

    return page.difference_values(compared, problem) | {"sides": sides, "here": here, "window_address": address}
