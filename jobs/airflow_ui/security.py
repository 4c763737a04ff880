"""Who may see and do what, and the headers that keep other sites out.

Airflow does not protect mounted apps, so the app depends on `get_user` and `not_cross_site` for every route, and each
page of a pipeline asks `may`.
"""

from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.configuration import conf
from fastapi import HTTPException, Request

from jobs.orchestration.decision_actions import decide_dag_id

if TYPE_CHECKING:
    from collections.abc import Mapping

Method = Literal["GET", "POST", "PUT", "DELETE"]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'self'; "
    "base-uri 'none'"
)
HEADERS: "Mapping[str, str]" = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""The headers of every answer. Pages cannot run scripts, load from other hosts, or be framed by another origin."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def not_cross_site(request: Request) -> None:
    """Refuse a request that changes something if another site has sent it.

    The session cookie of Airflow's simple auth manager has no SameSite attribute, so the browser sends it with forms
    of other origins. Browsers tell the origin in `Origin` and `Sec-Fetch-Site`; programs send neither.
    Raises HTTPException: 403, the request comes from another origin.
    """
    if request.method in _SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in {None, "same-origin"} or (origin is not None and origin not in own_origins(request)):
        raise HTTPException(403, "This request came from another site, so it was refused.")


def own_origins(request: Request) -> frozenset[str]:
    """Return the origins of this server: the one that the browser addressed, and that of `[api] base_url`.

    A proxy may replace the host and the scheme of a request. The configured address is then the one of the browser.
    """
    addressed = f"{request.url.scheme}://{request.headers.get('host', '')}"
    configured = urlsplit(conf.get("api", "base_url", fallback="") or "")
    origins = {addressed}
    if configured.scheme and configured.netloc:
        origins.add(f"{configured.scheme}://{configured.netloc}")
    return frozenset(origins)


def login_url(request: Request) -> str:
    """Return the address of the login, which comes back to the page of the request."""
    return get_auth_manager().get_url_login(next_url=str(request.url))


def may(user: BaseUser, method: Method, dag_id: str, *, entity: DagAccessEntity | None = None) -> bool:
    """Return whether Airflow lets a user do something with a DAG, or with its runs if `entity` says so.

    Airflow's simple auth manager allows everything on a DAG that does not exist. So the caller checks first that the
    pipeline of the DAG exists.
    """
    return get_auth_manager().is_authorized_dag(
        method=method, user=user, access_entity=entity, details=DagDetails(id=dag_id)
    )


def may_read(user: BaseUser, pipeline: str) -> bool:
    """Return whether a user may see the pages of a pipeline: whether he may read the DAG that replays it."""
    return may(user, "GET", f"replay_{pipeline}")


def may_backfill(user: BaseUser, pipeline: str) -> bool:
    """Return whether a user may start a backfill of a pipeline."""
    return may(user, "POST", f"backfill_{pipeline}", entity=DagAccessEntity.RUN)


def may_decide(user: BaseUser, pipeline: str) -> bool:
    """Return whether a user may decide on a pipeline: whether he may start the DAG that decides."""
    return may(user, "POST", decide_dag_id(pipeline), entity=DagAccessEntity.RUN)
