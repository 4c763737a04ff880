"""Write the settings of docker-compose.yml: `.env` with new secrets, or `.env.example` without secrets.

python3 deploy/make_env.py             write .env (mode 0600); an existing file is an error. `make env` runs this
python3 deploy/make_env.py --example   write .env.example

The python3 of the system runs it, on any Linux with Docker: Python 3.9 has to understand it.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Setting:
    """One line of `.env`. `secret` makes the value of a secret. All values are safe inside a URL."""

    name: str
    about: str
    default: str = ""
    secret: Callable[[], str] | None = None


def _token(size: int) -> Callable[[], str]:
    return lambda: secrets.token_urlsafe(size)


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode("ascii")


SETTINGS = (
    Setting(name="HINDCAST_ADMIN_PASSWORD", about="user admin of Airflow's web page", secret=_token(12)),
    Setting(
        name="POSTGRES_PASSWORD", about="user airflow of the database; only characters safe in a URL", secret=_token(24)
    ),
    Setting(
        name="AIRFLOW_FERNET_KEY",
        about="encrypts connections in the database: 32 bytes, URL-safe base64",
        secret=_fernet_key,
    ),
    Setting(
        name="AIRFLOW_JWT_SECRET", about="signs the tokens of tasks and users: 64 bytes or more", secret=_token(64)
    ),
    Setting(
        name="AIRFLOW_API_SECRET_KEY", about="signs sessions and log requests, the same in all parts", secret=_token(32)
    ),
    Setting(name="SPARK_SECRET", about="shared by the Spark master, its workers and the drivers", secret=_token(32)),
    Setting(name="AIRFLOW_PORT", about="Airflow's web page, on 127.0.0.1", default="8080"),
    Setting(
        name="AIRFLOW_BASE_URL",
        about="the address of Airflow's web page behind a proxy, such as https://airflow.example.org (docs/how-to/"
        "deployment.md)",
    ),
    Setting(name="AIRFLOW_KEEP_DAYS", about="days that Airflow's logs and the rows of its database stay", default="90"),
    Setting(name="SPARK_PORT", about="the Spark master's web page, on 127.0.0.1", default="8081"),
    Setting(name="SPARK_WORKER_CORES", about="cores of each Spark worker", default="2"),
    Setting(name="SPARK_WORKER_MEMORY", about="memory of a Spark worker for the JVMs of executors", default="3g"),
    Setting(name="SPARK_WORKER_LIMIT", about="limit of a worker's container, with Python processes", default="6g"),
    Setting(
        name="SPARK_APP_CORES",
        about="cores of one replay in all workers together; the day's replay and a backfill may run side by side",
        default="2",
    ),
    Setting(name="SPARK_EXECUTOR_MEMORY", about="memory of an executor's JVM, one on each worker", default="1g"),
    Setting(name="HINDCAST_DRIVER_MEMORY", about="memory of a replay's driver, in the scheduler", default="2g"),
    Setting(name="SCHEDULER_MEMORY_LIMIT", about="limit of the scheduler's container, with two drivers", default="6g"),
    Setting(name="HINDCAST_LAKE", about="root of the lake: the volume, or an s3:// URI", default="/lake"),
    Setting(
        name="HINDCAST_FSYNC",
        about="`off`: commits to the volume are not awaited until the disk has them (docs/how-to/storage.md)",
        default="on",
    ),
    Setting(name="AWS_ACCESS_KEY_ID", about="object storage; empty if the lake is a directory"),
    Setting(name="AWS_SECRET_ACCESS_KEY", about="object storage; empty if the lake is a directory"),
    Setting(name="AWS_ENDPOINT_URL", about="object storage other than Amazon's, such as http://object-store:7070"),
    Setting(name="AWS_REGION", about="object storage of Amazon"),
    Setting(name="AWS_SESSION_TOKEN", about="object storage, with temporary credentials"),
    Setting(
        name="AWS_EC2_METADATA_DISABLED",
        about="`false`: the role of a machine of Amazon has the credentials",
        default="true",
    ),
    Setting(name="HINDCAST_STORAGE_RETRY", about="how long a request to the store is tried again, such as 3m"),
    Setting(name="HINDCAST_STORAGE_ADDRESSING", about="`virtual`: the bucket is in the host name of the store"),
    Setting(
        name="S3_JARS",
        about="`yes` builds Spark's S3 file system into the image, for DataFrames over s3:// (docs/how-to/storage.md)",
        default="no",
    ),
    Setting(
        name="FAST",
        about="`yes` builds numba into the image (210 MB): tasks hash millions of rows faster",
        default="no",
    ),
)


def render(*, with_secrets: bool) -> str:
    """Return the text of the file. Without `with_secrets`, the values of secrets are empty."""
    lines = ["# Settings of docker-compose.yml. Made by deploy/make_env.py; `.env` holds secrets and stays out of git."]
    for setting in SETTINGS:
        value = setting.secret() if setting.secret is not None and with_secrets else setting.default
        lines += [f"# {setting.about}", f"{setting.name}={value}"]
    return "\n".join(lines) + "\n"


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write one of the two files. The exit status is 1 if `.env` exists: a database may use its secrets."""
    if arguments == ["--example"]:
        (root / ".env.example").write_text(render(with_secrets=False), encoding="utf-8")
        return 0
    path = root / ".env"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        sys.stderr.write(f"{path} exists, and the database may use its secrets; remove the file first\n")
        return 1
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(render(with_secrets=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
