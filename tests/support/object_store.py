"""The object store of `make test-s3`: versitygw, a real S3 server over a directory, in a process of its own."""

import hashlib
import hmac
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx

from jobs.wall_clock import now_ms
from tests.support.places import ROOT

SECRET = "canary-secret-5e0c1d"  # noqa: S105 - no secret
"""The tests look for this text in everything that the commands write."""
ACCESS_KEY = "canarykey"
BUCKET = "lake"
SOURCE = f"s3://{BUCKET}/source"
"""The lake with the log of flights."""
REGION = "us-east-1"


def server_binary() -> Path:
    """Return the path of versitygw: HINDCAST_S3_SERVER, or the one that `make test-s3` has built."""
    return Path(os.environ.get("HINDCAST_S3_SERVER") or ROOT / ".cache" / "s3-server" / "versitygw")


@dataclass(slots=True)
class ObjectStore:
    """A server on a free port of this machine, which can be stopped and started again over the same objects."""

    directory: Path
    port: int = field(init=False)
    _process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which Hindcast finds the store."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.host}",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        objects = self.directory / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(server_binary()), "--quiet", "--port", self.host, "posix", str(objects)],
                stdout=log,
                stderr=log,
                env=os.environ | {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET},
            )
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "server.log").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server at once, in the middle of its requests."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def put(self, key: str, body: bytes, headers: Mapping[str, str] | None = None) -> int:
        """Put an object (or, with an empty key, make the bucket); return the status of the answer."""
        path = f"/{BUCKET}/{key}" if key else f"/{BUCKET}"
        with httpx.Client(trust_env=False, timeout=60) as client:
            signed = _signed(self.host, path, body)
            return client.put(
                f"http://{self.host}{path}", content=body, headers=signed | dict(headers or {})
            ).status_code

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _signed(host: str, path: str, body: bytes) -> dict[str, str]:
    """Return the headers of a signed PUT. Source: AWS Signature Version 4, "Create a signed request"."""
    now = datetime.fromtimestamp(now_ms() / 1000, UTC)
    at, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    digest = hashlib.sha256(body).hexdigest()
    scope, names = f"{day}/{REGION}/s3/aws4_request", "host;x-amz-content-sha256;x-amz-date"
    canonical = f"PUT\n{path}\n\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{at}\n\n{names}\n{digest}"
    text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    signer = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}"
    return {
        "x-amz-date": at,
        "x-amz-content-sha256": digest,
        "Authorization": f"{signer}, SignedHeaders={names}, Signature={signature}",
    }
