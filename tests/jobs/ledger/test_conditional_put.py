"""The proof that an object store refuses a second put of one name."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.ledger import conditional_put
from jobs.ledger.conditional_put import prove_conditional_put
from windowlib.errors import LedgerError


class Store(ThreadingHTTPServer):
    """Keeps names of objects. It `honours` the condition, or replaces, and `loses` its first answers to puts."""

    honours: bool
    loses: int
    names: set[str]
    puts: int


class Requests(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        store, name = self.server, self.path.partition("?")[0]
        store.puts += 1
        is_refused = store.honours and name in store.names and self.headers["If-None-Match"] == "*"
        store.names.add(name)
        if store.puts <= store.loses:
            self.close_connection = True
            return
        self._answer(412 if is_refused else 200, {"ETag": '"1"'})

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def store(monkeypatch: pytest.MonkeyPatch, *, honours: bool, loses: int = 0) -> Iterator[Store]:
    server = Store(("127.0.0.1", 0), Requests)
    server.honours, server.loses, server.names, server.puts = honours, loses, set(), 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    marks = set[str]()
    monkeypatch.setattr(conditional_put, "remove_directory", lambda _place: None)
    monkeypatch.setattr(conditional_put, "make_directory", lambda _place: None)
    monkeypatch.setattr(conditional_put, "write_bytes", lambda place, _content: marks.add(place))
    monkeypatch.setattr(conditional_put, "names_in", lambda _place: [own.rpartition("/")[2] for own in marks])
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("loses", [0, 1, 2])
def test_a_store_with_the_condition_is_accepted(monkeypatch: pytest.MonkeyPatch, loses: int) -> None:
    with store(monkeypatch, honours=True, loses=loses) as server:
        prove_conditional_put("s3://bucket/lake/p/ledger")
    assert server.puts == 2 + loses, "both puts reached the store"
    assert len(server.names) == 1


def test_a_ledger_is_proven_once_in_each_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy has the mark of the other store, which proves nothing here."""
    with store(monkeypatch, honours=True) as server:
        for _ in range(2):
            prove_conditional_put("s3://bucket/lake/p/ledger")
        assert server.puts == 2
        prove_conditional_put("s3://copied/lake/p/ledger")
        assert server.puts == 4


def test_a_store_that_ignores_the_condition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta lists the commits before it puts one, so two commits in a row never asked the store."""
    with store(monkeypatch, honours=False) as server, pytest.raises(LedgerError, match="accepted two commits"):
        prove_conditional_put("s3://bucket/lake/p/ledger")
    assert server.puts == 2


def test_a_store_that_forbids_puts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Requests, "do_PUT", lambda self: self.send_error(403))
    with store(monkeypatch, honours=True) as server, pytest.raises(LedgerError, match="cannot be written"):
        prove_conditional_put("s3://bucket/lake/p/ledger")
    assert server.puts == 0


def test_the_keys_of_a_profile_sign_the_puts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Deltalake and Arrow read profiles, obstore does not: it would ask the metadata service of the machine."""
    settings, keys = tmp_path / "config", tmp_path / "credentials"
    settings.write_text("[profile lake]\naws_access_key_id = OTHER\naws_secret_access_key = other\n")
    keys.write_text(
        "[default]\naws_access_key_id = DEFAULT\n[lake]\naws_access_key_id = LAKE\naws_secret_access_key = own\n"
    )
    signed = set[str]()
    put = Requests.do_PUT

    def signed_put(self: Requests) -> None:
        signed.add(self.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        put(self)

    monkeypatch.setattr(Requests, "do_PUT", signed_put)
    with store(monkeypatch, honours=True):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "")  # docker compose sets each variable that its file names
        monkeypatch.setenv("AWS_CONFIG_FILE", str(settings))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
        monkeypatch.setenv("AWS_PROFILE", "lake")
        prove_conditional_put("s3://bucket/lake/p/ledger")
    assert signed == {"LAKE"}
    assert "AWS_ACCESS_KEY_ID" not in os.environ, "clients in Rust take an empty key as a key"


def test_a_disk_needs_no_proof() -> None:
    prove_conditional_put("/lake/p/ledger")
