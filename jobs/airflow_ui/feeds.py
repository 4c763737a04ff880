"""What a pipeline feeds: the DAGs of Airflow that its asset starts, or whose tasks read it."""

import logging
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from jobs.airflow_ui.context import PipelineDep
from jobs.airflow_ui.decide.airflow import UsersAirflow, token_of
from jobs.airflow_ui.security import may
from jobs.review import links

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeds:
    """The asset of a pipeline, and the DAGs that consume it and that the user may see.

    `asset_id` is Airflow's number of the asset; None if Airflow did not tell.
    """

    uri: str
    asset_id: int | None = None
    dag_ids: tuple[str, ...] = ()


async def feeds_of(request: Request, context: PipelineDep) -> Feeds:
    """Ask Airflow, as the user, which DAGs consume a pipeline's asset. Without an answer, only the URI is known."""
    uri = links.asset_uri(context.name)
    try:
        async with UsersAirflow(token_of(request)) as airflow:
            asset = await airflow.asset(links.asset_name(context.name))
    except Exception as error:  # noqa: BLE001 -- the page still shows what the ledger has
        log.info("Airflow did not tell the consumers of %s: %s", uri, type(error).__name__)
        return Feeds(uri=uri)
    if asset is None:
        return Feeds(uri=uri)
    dag_ids = {str(consumer["dag_id"]) for kind in ("scheduled_dags", "consuming_tasks") for consumer in asset[kind]}
    seen = tuple(dag_id for dag_id in sorted(dag_ids) if may(context.user, "GET", dag_id))
    return Feeds(uri=uri, asset_id=int(asset["id"]), dag_ids=seen)


FeedsDep = Annotated[Feeds, Depends(feeds_of)]
"""What the pipeline in the path feeds, as a dependency of a route."""
