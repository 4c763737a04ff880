"""The comparisons of this process, as variables of the template of differences."""

from typing import Any

from jobs.airflow_ui.context import PipelineContext
from jobs.comparing.views import Sides
from jobs.review.compared import sample_lines
from jobs.review.pages.compare_page import Comparisons
from windowlib.errors import HindcastError

_COMPARISONS = Comparisons()


def difference_values(context: PipelineContext, sides: Sides | None, *, is_asked: bool) -> dict[str, Any]:
    """Return the variables of `sections/differences.html.j2` for two views; without views, those that show nothing.

    A comparison that fails does not fail the page: the page then tells the problem.
    """
    compared, problem = None, None
    if sides is not None and sides.slices:
        try:
            compared = _COMPARISONS.compared(context.lake, context.name, sides, is_asked=is_asked)
        except HindcastError as error:
            problem = str(error)
    return {"compared": compared, "compare_problem": problem, "sample_lines": sample_lines}
