"""The asset of a pipeline, and the events that tell its consumers which slices have changed."""

from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from jobs.dag_factory.addresses import absolute
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped
from jobs.review import links

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import Published


def pipeline_asset(pipeline: Pipeline) -> Asset:
    """Return the asset of a pipeline: the outlet of each task that publishes."""
    return Asset(name=links.asset_name(pipeline.name), uri=links.asset_uri(pipeline.name), group="hindcast")


class AssetOperator(BaseOperator):
    """A task that publishes: its outlet is the asset of the pipeline."""

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:  # noqa: ANN401
        self.asset: Asset = pipeline_asset(pipeline)
        super().__init__(outlets=[self.asset], **kwargs)
        self.pipeline_name = pipeline.name

    def send_events(self, context: Context, published: "Published") -> dict[str, Any]:
        """Send the events of a publication: one for each changed slice, or one for all of them if there are many.

        Returns:
            The publication, for XCom.

        Raises:
            AirflowSkipException: no slice has changed, so consumers are not started.
        """
        if not published.changed:
            raise AirflowSkipException(escaped(published.why))
        event = context["outlet_events"][self.asset]
        first = published.changed[0]
        event.extra = published.to_json() | {
            "pipeline": self.pipeline_name,
            "url": absolute(links.pipeline_page(self.pipeline_name)),
            "first_changed": absolute(links.slice_page(self.pipeline_name, first)),
        }
        event.add_partitions(published.partitions)
        return published.to_json()
