"""Login, permissions, cross-site requests and headers of the review pages."""

import subprocess
import sys

import pytest

from tests.jobs.airflow_ui.conftest import Clients

pytestmark = [pytest.mark.dags, pytest.mark.usefixtures("place", "clients")]

PATHS = ("/hindcast/", "/hindcast/static/shell.js", "/hindcast/held.json", "/hindcast/nothing/here")


@pytest.mark.parametrize("path", PATHS)
def test_every_path_needs_a_login(clients: Clients, path: str) -> None:
    client = clients(None)
    found = client.get(path, headers={"sec-fetch-dest": "document"})
    assert found.status_code in {303, 404}
    if found.status_code == 303:
        assert "login" in found.headers["location"]
    framed = client.get(path, headers={"sec-fetch-dest": "iframe"})
    assert framed.status_code in {401, 404}


def test_every_answer_has_the_headers_that_keep_other_sites_out(clients: Clients) -> None:
    for path in PATHS:
        for role in (None, "viewer"):
            headers = clients(role).get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "script" not in headers["content-security-policy"]
            assert "frame-ancestors 'self'" in headers["content-security-policy"]
            assert headers["x-frame-options"] == "SAMEORIGIN"


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({}, True),
        ({"origin": "http://testserver"}, True),
        ({"origin": "http://testserver", "sec-fetch-site": "same-origin"}, True),
        ({"origin": "http://testserver:8080"}, False),
        ({"origin": "https://testserver"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
    ],
)
def test_a_change_from_another_origin_is_refused(
    clients: Clients, headers: dict[str, str], *, is_allowed: bool
) -> None:
    found = clients("admin").post("/hindcast/nothing", headers=headers)
    assert found.status_code in {404, 405} if is_allowed else found.status_code in {403, 404, 405}
    assert clients("admin").get("/hindcast/", headers=headers).status_code == 200


def test_the_configured_address_is_an_own_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi import HTTPException, Request

    from jobs.airflow_ui.security import not_cross_site

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/airflow")

    def request(origin: str) -> Request:
        headers = [(b"host", b"10.0.0.7:8080"), (b"origin", origin.encode())]
        return Request({"type": "http", "method": "POST", "scheme": "http", "path": "/", "headers": headers,
                        "query_string": b"", "server": ("10.0.0.7", 8080)})  # fmt: skip

    not_cross_site(request("https://airflow.example.com"))
    not_cross_site(request("http://10.0.0.7:8080"))
    for other in ("https://evil.example.com", "http://airflow.example.com", "null"):
        with pytest.raises(HTTPException, match="another site"):
            not_cross_site(request(other))


@pytest.mark.slow
def test_the_plugin_imports_nothing_but_links_for_tasks() -> None:
    """Every task imports the plugin; only the api-server may import the app."""
    code = (
        "import sys, airflow.plugins_manager, airflow.listeners; before = set(sys.modules); "
        "import jobs.airflow_ui.plugin; sys.stdout.write(chr(10).join(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {line for line in done.stdout.splitlines() if "." in line or line.isidentifier()}
    heavy = {"fastapi", "starlette", "pyarrow", "duckdb", "deltalake", "jinja2", "pydantic"}
    assert "jobs.airflow_ui.plugin" in loaded
    assert not heavy & {name.partition(".")[0] for name in loaded}
    assert not [name for name in loaded if name.startswith("jobs.airflow_ui.app")]
