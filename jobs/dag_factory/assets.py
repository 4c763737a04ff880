"""The asset of a pipeline, and the events that tell its consumers which slices have changed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from jobs.dag_factory.addresses import absolute
from jobs.pipeline.files import lasting
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped
from jobs.review import links

if TYPE_CHECKING:
    from jobs.publishing.rules import PublicationAttempt


PUBLICATIONS = "_publications"


def pipeline_asset(name: str) -> Asset:
    """Return the asset of a pipeline: the outlet of each task that publishes."""
    return Asset(name=links.asset_name(name), uri=links.asset_uri(name), group="hindcast")


def normalized(uri: str) -> str:
    """Return the URI of an asset as Airflow stores it."""
    try:
        return Asset(uri=uri).uri
    except ValueError:  # of a form that Airflow does not normalize
        return uri


def publications_asset(name: str) -> Asset:
    """Return the asset with one event for each publication, for consumers that do not run per slice.

    Airflow starts no DAG with a plain asset schedule for an event that has a partition key.
    """
    return Asset(
        name=f"{links.asset_name(name)}{PUBLICATIONS}", uri=f"hindcast://{name}/publications", group="hindcast"
    )


class PipelineOperator(BaseOperator):
    """A task of a pipeline file that works on a lake (None: that of HINDCAST_LAKE)."""

    def __init__(self, *, pipeline: Pipeline, lake: str | None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline_name, self.pipeline_file = pipeline.name, str(lasting(Path(pipeline.source)))
        self.lake = lake


class AssetOperator(PipelineOperator):
    """A task that publishes: its outlets are the assets of the pipeline."""

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:  # noqa: ANN401
        self.asset: Asset = pipeline_asset(pipeline.name)
        self.publications: Asset = publications_asset(pipeline.name)
        super().__init__(pipeline=pipeline, outlets=[self.asset, self.publications], **kwargs)

    def send_events(self, context: Context, attempt: "PublicationAttempt") -> dict[str, Any]:
        """Send the events of a publication: one for each changed slice, or one for all of them if there are many.

        The asset of publications has one more event, without a partition key. Returns the publication, for XCom.
        Raises AirflowSkipException: no slice has changed, so consumers are not started.
        """
        from jobs.orchestration.dag_tasks import event_keys

        if not attempt.changed:
            raise AirflowSkipException(escaped(attempt.why))
        changed, keys = list(attempt.changed), event_keys(attempt.changed)
        sent: dict[str, Any] = {
            "published": attempt.is_published,
            "why": attempt.why,
            "changed": changed,
            "partitions": keys,
        }
        event = context["outlet_events"][self.asset]
        event.extra = sent | {
            "pipeline": self.pipeline_name,
            "url": absolute(links.pipeline_page(self.pipeline_name)),
            "first_changed": absolute(links.slice_page(self.pipeline_name, changed[0])),
        }
        event.add_partitions(keys)
        context["outlet_events"][self.publications].extra = event.extra
        return sent
