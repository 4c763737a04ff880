"""Addresses of the review pages in the interface of this Airflow, for logs, links, assets and alerts."""

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.configuration import conf
from airflow.sdk.types import TaskInstanceKey
from typing_extensions import override

from jobs.review import links


def absolute(path: str) -> str:
    """Return the address of a page with the `[api] base_url` of Airflow; without that setting, a path."""
    return links.in_airflow(path, base_url=conf.get("api", "base_url", fallback="") or "")


class ReviewLink(BaseOperatorLink):
    """A button on the page of a task: it opens the review page of the task's DAG run."""

    name = "Review"

    @override
    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return links.in_airflow(links.dag_run_page(ti_key.dag_id, ti_key.run_id))
