"""The form of `backfill_<name>`."""

from collections.abc import Mapping

from airflow.sdk import Param

from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slice_grid


def range_params(pipeline: Pipeline) -> Mapping[str, Param]:
    """Return the form of `backfill_<name>`. Airflow checks its JSON-schema types before it creates a run."""
    daily = slice_grid(pipeline).is_daily
    zone = pipeline.log.slice.timezone

    def bound(title: str, description: str) -> Param:
        shape = "date" if daily else "date-time"
        return Param(type="string", format=shape, title=title, description=description, section="Range [from, to)")

    return {
        "from": bound("From", f"The first slice of the range, {zone}."),
        "to": bound("To", "The slice after the last slice of the range."),
        "reason": Param(
            type="string",
            minLength=1,
            maxLength=500,
            title="Reason",
            description="Stored in the ledger with your name.",
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
    }
