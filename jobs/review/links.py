"""Addresses of the review pages. Pages, logs, alerts and extra links of Airflow take them from here.

The pages are an app of their own, mounted below `PREFIX` in the web server of Airflow. The interface of Airflow shows
them in a frame, below `FRAME`. The path after `FRAME` is the path of the page, so a page can be opened in both ways.
"""

from collections.abc import Mapping
from urllib.parse import quote, urlencode

PREFIX = "/hindcast"
"""Where the app of the pages is mounted."""
ROUTE = "hindcast"
"""The route of the entry in Airflow's navigation."""
FRAME = f"/plugin/{ROUTE}"
"""Where Airflow's interface shows the pages in a frame."""

KEY = "key."
"""The prefix of the query parameters of the key columns, such as `key.origin`."""

VERDICT_KEY = "hindcast_verdict"
"""The key in XCom under which tasks leave the verdict of their DAG run, for the run's note."""


def overview() -> str:
    """Return the path of the page of all pipelines."""
    return f"{PREFIX}/"


def pipeline_page(pipeline: str) -> str:
    """Return the path of the page of a pipeline."""
    return f"{PREFIX}/pipelines/{_part(pipeline)}"


def digest_page(pipeline: str) -> str:
    """Return the path of the page of what has happened since yesterday."""
    return f"{pipeline_page(pipeline)}/digest"


def slice_page(pipeline: str, slice_id: str, *, run_id: str | None = None) -> str:
    """Return the path of the page of a slice, for its newest run or for one run."""
    return _with(f"{pipeline_page(pipeline)}/slices/{_part(slice_id)}", {"run": run_id})


def rows_page(pipeline: str, slice_id: str, table: str, *, run_id: str | None = None) -> str:
    """Return the path of the paged rows of one table of a slice, such as `late_records`."""
    return _with(f"{pipeline_page(pipeline)}/slices/{_part(slice_id)}/{_part(table)}", {"run": run_id})


def request_page(pipeline: str, request_id: str) -> str:
    """Return the path of the page of a request."""
    return f"{pipeline_page(pipeline)}/requests/{_part(request_id)}"


def replay_path(pipeline: str, request_id: str) -> str:
    """Return the path that starts a proposed restatement (POST)."""
    return f"{request_page(pipeline, request_id)}/replay"


def record_page(pipeline: str, record_id: str | None = None, *, slice_id: str | None = None) -> str:
    """Return the path of the search for records; with `slice_id`, of the explanation of a record of that slice."""
    return _with(f"{pipeline_page(pipeline)}/records", {"record_id": record_id, "slice": slice_id})


def window_page(
    pipeline: str, key: Mapping[str, str], *, start: str, end: str = "", request_id: str | None = None
) -> str:
    """Return the path of the explanation of a window: key column -> value, and its bounds as ISO texts."""
    named = {f"{KEY}{name}": value for name, value in key.items()}
    return _with(f"{pipeline_page(pipeline)}/windows", named | {"start": start, "end": end, "request": request_id})


def compare_page(pipeline: str, *, before: int | None = None, after: int | None = None) -> str:
    """Return the path of the comparison of two ledger versions."""
    return _with(f"{pipeline_page(pipeline)}/compare", {"before": before, "after": after})


def backfill_page(pipeline: str, run_id: str | None = None) -> str:
    """Return the path of the form of a backfill. `run_id`: of the page of a backfill that was started there."""
    return f"{pipeline_page(pipeline)}/backfill" + ("" if run_id is None else f"/{_part(run_id)}")


def decisions_path(pipeline: str) -> str:
    """Return the path that takes decisions (POST)."""
    return f"{pipeline_page(pipeline)}/decisions"


def decision_page(pipeline: str, run_id: str) -> str:
    """Return the path of the page of a decision: its progress and its end. `run_id` is the DAG run that makes it."""
    return f"{decisions_path(pipeline)}/{_part(run_id)}"


def dag_page(dag_id: str) -> str:
    """Return the path of the page for a DAG of Airflow, also of a DAG that is not ours."""
    return _with(f"{PREFIX}/dag", {"dag_id": dag_id})


def dag_run_page(dag_id: str, run_id: str) -> str:
    """Return the path of the page for a DAG run of Airflow."""
    return _with(f"{PREFIX}/dag-run", {"dag_id": dag_id, "run_id": run_id})


def asset_name(pipeline: str) -> str:
    """Return the name of the asset of a pipeline in Airflow: each publication sends an event of it."""
    return f"hindcast_{pipeline}"


def asset_uri(pipeline: str) -> str:
    """Return the URI of the asset of a pipeline in Airflow."""
    return f"hindcast://{pipeline}/published"


def in_airflow(path: str, *, base_url: str = "") -> str:
    """Return the address at which Airflow's interface shows a page in its frame.

    `path` is one of this module, and `base_url` the address of Airflow. Without it, the result is a path.
    """
    return f"{base_url.rstrip('/')}{FRAME}{path}"


def _part(text: str) -> str:
    return quote(text, safe="")


def _with(path: str, query: Mapping[str, str | int | None]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path
