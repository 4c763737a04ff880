"""The asset of a pipeline, and the events that tell its consumers which slices have changed."""

from typing import TYPE_CHECKING

from airflow.sdk import Asset, Context

from jobs.dag_factory.addresses import absolute
from jobs.pipeline.models.pipeline import Pipeline
from jobs.review import links

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import Published


def pipeline_asset(pipeline: Pipeline) -> Asset:
    """Return the asset of a pipeline: the outlet of each task that publishes."""
    return Asset(name=f"hindcast_{pipeline.name}", uri=f"hindcast://{pipeline.name}/published", group="hindcast")


def send_event(context: Context, asset: Asset, pipeline: str, *, published: "Published") -> None:
    """Send the events of a publication: one for each changed slice, or one for all of them if there are many.

    Nothing is sent if no slice has changed. `pipeline` is its name. `asset` is the outlet of the task that calls this.
    """
    if not published.changed:
        return
    event = context["outlet_events"][asset]
    first = published.changed[0]
    event.extra = published.to_json() | {
        "pipeline": pipeline,
        "url": absolute(links.pipeline_page(pipeline)),
        "first_changed": absolute(links.slice_page(pipeline, first)),
    }
    event.add_partitions(published.partitions)
