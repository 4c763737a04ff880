"""The entry point of the containers of docker-compose.yml: each container runs one part of Airflow or Spark.

    container.py PART           wait for what the part needs, then run it (`PARTS` below)
    container.py healthy URL    exit status 0 if URL answers with 200

Containers start in any order, and each of them may end at any time. A part waits at its start for the other parts that
it needs. The container engine restarts a container that ends. Standard library only.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

PATIENCE_S = 300
SPARK_DEFAULTS = Path(__file__).resolve().parent / "spark" / "spark-defaults.conf"
API_HEALTH = "http://airflow-api:8080/api/v2/monitor/health"
POOLS = ("hindcast_daily", "hindcast_backfill")
SPARK_MASTER = ("spark-master", 7077)
POSTGRES = ("postgres", 5432)

PARTS: Mapping[str, list[str]] = {
    "airflow-api": ["airflow", "api-server"],
    "airflow-scheduler": ["airflow", "scheduler"],
    "airflow-dag-processor": ["airflow", "dag-processor"],
    "spark-master": [
        "spark-class",
        "org.apache.spark.deploy.master.Master",
        "--port",
        "7077",
        "--host",
        "spark-master",
    ],
    "spark-worker": ["spark-class", "org.apache.spark.deploy.worker.Worker", "spark://spark-master:7077"],
}


def main(arguments: list[str]) -> int:
    """Run the command of the command line, and return the exit status. A part replaces this process."""
    match arguments:
        case ["healthy", url]:
            return 0 if answers(url) else 1
        case ["airflow-init"]:
            wait_for_port(POSTGRES)
            return initialise()
        case [part] if part in PARTS:
            wait_for_needs(part)
            return become(PARTS[part])
        case _:
            known = ", ".join(["airflow-init", *PARTS])
            sys.stderr.write(f"container.py: one of {known}, or: healthy URL; found {arguments}\n")
            return 2


def become(command: list[str]) -> NoReturn:
    """Replace this process by a command, so that the command gets the signals of the container."""
    sys.stdout.flush()
    os.execvp(command[0], command)  # noqa: S606 - the image's own commands


def wait_for_needs(part: str) -> None:
    """Wait for the other parts that a part needs at its start, and write its configuration files."""
    write_spark_conf(Path(os.environ["SPARK_CONF_DIR"]), os.environ)
    if part.startswith("airflow-"):
        wait_for_port(POSTGRES)
        subprocess.run(["airflow", "db", "check-migrations", "-t", str(PATIENCE_S)], check=True)  # noqa: S603, S607
    if part == "airflow-api":
        write_passwords(Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]), os.environ)
    if part == "airflow-scheduler":
        # A task fails at once if the API does not answer yet.
        wait(f"{API_HEALTH} to answer", lambda: answers(API_HEALTH))
    if part == "spark-worker":
        wait_for_port(SPARK_MASTER)


def initialise() -> int:
    """Migrate the database and make the pools. Both are idempotent."""
    pools = {
        name: {"slots": 1, "description": "made by deploy/container.py", "include_deferred": False} for name in POOLS
    }
    file = Path(os.environ["AIRFLOW_HOME"]) / "pools.json"
    subprocess.run(["airflow", "db", "migrate"], check=True)  # noqa: S607
    file.write_text(json.dumps(pools), encoding="utf-8")
    subprocess.run(["airflow", "pools", "import", str(file)], check=True)  # noqa: S603, S607
    return 0


def write_passwords(path: Path, environ: Mapping[str, str]) -> None:
    """Write the file of passwords for Airflow's simple auth manager."""
    write_private(path, json.dumps({"admin": environ["HINDCAST_ADMIN_PASSWORD"]}))


def write_spark_conf(directory: Path, environ: Mapping[str, str]) -> None:
    """Write the settings of master, workers and drivers: deploy/spark/spark-defaults.conf and their shared secret."""
    settings = SPARK_DEFAULTS.read_text(encoding="utf-8")
    secret = environ["HINDCAST_SPARK_SECRET"]
    write_private(directory / SPARK_DEFAULTS.name, f"{settings}spark.authenticate.secret {secret}\n")


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, with mode 0600 from its creation."""
    scratch = path.with_name(path.name + ".new")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    scratch.replace(path)


def wait_for_port(address: tuple[str, int]) -> None:
    """Wait until a process listens on a port."""
    wait(f"{address[0]}:{address[1]} to listen", lambda: listens(address))


def wait(what: str, is_there: Callable[[], bool], *, patience_s: float = PATIENCE_S, pause_s: float = 1.0) -> None:
    """Wait until a condition holds.

    Raises:
        SystemExit: it did not hold within `patience_s`. The container ends, and the container engine restarts it.
    """
    end = time.monotonic() + patience_s
    while not is_there():
        if time.monotonic() >= end:
            raise SystemExit(f"container.py: waited {patience_s:.0f} s for {what}; see the log of that container")
        time.sleep(pause_s)


def listens(address: tuple[str, int]) -> bool:
    """Return whether a port accepts a connection: False also while the name does not resolve yet."""
    try:
        socket.create_connection(address, timeout=2).close()
    except OSError:
        return False
    return True


def answers(url: str) -> bool:
    """Return whether a GET request is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own health pages
            return bool(response.status == HTTPStatus.OK)
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
