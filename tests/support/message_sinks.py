"""Local servers that receive messages: an SMTP server and a webhook. Both keep what they got."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"


@dataclass(slots=True)
class MailSink:
    """The messages that an SMTP server got, and its port."""

    port: int
    messages: list[EmailMessage] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The HTML or plain text of each message."""
        bodies = [one.get_body(("html", "plain")) for one in self.messages]
        return [body.get_content() for body in bodies if isinstance(body, EmailMessage)]


@dataclass(slots=True)
class WebhookSink:
    """The JSON bodies and headers that a webhook got. `status` is its answer."""

    port: int
    status: int = 200
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@contextmanager
def mail_sink(port: int = 0) -> Iterator[MailSink]:
    """Serve SMTP without login or TLS on a loopback port (0: any) during the context."""
    sink = MailSink(port=port)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say(220, "ready")
            while line := self.rfile.readline():
                match line.split()[0].upper() if line.split() else b"":
                    case b"EHLO" | b"HELO":
                        self._say(250, "sink")
                    case b"DATA":
                        self._say(354, "go on")
                        text = b"".join(iter(self.rfile.readline, b".\r\n"))
                        sink.messages.append(message_from_bytes(text, policy=policy.default))
                        self._say(250, "kept")
                    case b"QUIT":
                        self._say(221, "bye")
                        return
                    case _:
                        self._say(250, "fine")

        def _say(self, code: int, text: str) -> None:
            self.wfile.write(f"{code} {text}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with _serving(Server((HOST, port), Handler)) as server:
        sink.port = server.server_address[1]
        yield sink


@contextmanager
def webhook_sink(port: int = 0) -> Iterator[WebhookSink]:
    """Serve POST requests on a loopback port (0: any) during the context."""
    sink = WebhookSink(port=port)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            sink.bodies.append(json.loads(body))
            sink.headers.append({name.lower(): value for name, value in self.headers.items()})
            sink.paths.append(self.path)
            self.send_response(sink.status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Log nothing."""

    with _serving(ThreadingHTTPServer((HOST, port), Handler)) as server:
        sink.port = server.server_address[1]
        yield sink


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
