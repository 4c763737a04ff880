"""Login, permissions, cross-site requests and headers of the review pages."""

import pytest

from tests.airflow_ui.conftest import Clients

pytestmark = [pytest.mark.dags, pytest.mark.usefixtures("place")]

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
