"""The form of `backfill_<name>`. `jobs.orchestration.backfill_form` reads it, and refuses what a schema cannot."""

from collections.abc import Mapping

from airflow.sdk import Param

from jobs.dag_factory.addresses import absolute
from jobs.orchestration.backfill_form import BOUND_TEXTS, IF_OPEN_TEXTS, MAX_REASON
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_ms, slice_grid
from jobs.review import links

NOT_BLANK = r"\S"


def range_params(pipeline: Pipeline) -> Mapping[str, Param]:
    """Return the fields in the order of the form. Airflow checks their JSON schema before it creates a run."""
    return {
        "from": _bound(pipeline, "From", BOUND_TEXTS["from"]),
        "to": _bound(pipeline, "To", BOUND_TEXTS["to"]),
        "reason": Param(
            type="string",
            minLength=1,
            maxLength=MAX_REASON,
            pattern=NOT_BLANK,
            title="Reason",
            description_md="Why the range is replayed. Stored in the ledger with your name. The "
            f"[form with the plan]({absolute(links.backfill_page(pipeline.name))}) shows what would be replayed.",
        ),
        "publish": Param(
            default=True,
            type="boolean",
            title="Publish",
            description="Publish the result if every check passes. If not set, the result stays staged.",
        ),
        "fresh": Param(
            default=False,
            type="boolean",
            title="Fresh",
            description="Start a new chain at `from`, without the checkpoint of the slice before.",
        ),
        "if_open": Param(
            default="refuse",
            type="string",
            enum=list(IF_OPEN_TEXTS),
            values_display=IF_OPEN_TEXTS,
            title="If open",
            description="What to do if another open request has slices of the range.",
        ),
        "request": Param(
            default=None,
            type=["null", "string"],
            title="Request",
            description="The open request to continue, with its own range, such as a proposal. Empty: a new request.",
        ),
    }


def _bound(pipeline: Pipeline, title: str, description: str) -> Param:
    """Return one end of the range. It has no section, because Airflow shows a section collapsed."""
    return Param(
        default=None,
        type=["null", "string"],
        format="date" if slice_grid(pipeline).is_daily else "date-time",
        title=title,
        description_md=f"{description}{_log_range(pipeline)}",
    )


def _log_range(pipeline: Pipeline) -> str:
    """Return the slices that the pipeline file allows, and the time zone, as Markdown.

    When a person opens the form, `jobs.airflow_ui.form_defaults` puts the slices of the log in its place.
    """
    grid, zone = slice_grid(pipeline), pipeline.log.slice.timezone
    first = None if grid.first_ms is None else f"the first slice is **{show_ms(grid, grid.first_ms)}**"
    last = None if grid.last_ms is None else f"the last slice is **{show_ms(grid, grid.last_ms)}**"
    known = ", ".join(filter(None, (first, last, f"the time zone is {zone}")))
    return f" {known[0].upper()}{known[1:]}."
