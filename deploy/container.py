"""What a container of docker-compose.yml runs: one part of Airflow or Spark, started when what it needs is there.

    container.py PART           wait, then become that part (`PARTS` below)
    container.py healthy URL    exit status 0 if URL answers with 200

Containers start in any order and any of them may go away: each part waits for what it needs at its start, and what dies
later is started again by the container engine. Standard library only.
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
    """Run what the command line names. Does not return for a part: the process becomes it."""
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
    """Replace this process by a command, which then gets the container's signals."""
    sys.stdout.flush()
    os.execvp(command[0], command)  # noqa: S606 - the image's own commands


def wait_for_needs(part: str) -> None:
    """Wait for what a part cannot start without."""
    write_spark_conf(Path(os.environ["SPARK_CONF_DIR"]), os.environ)
    if part.startswith("airflow-"):
        wait_for_port(POSTGRES)
        subprocess.run(["airflow", "db", "check-migrations", "-t", str(PATIENCE_S)], check=True)  # noqa: S603, S607
    if part == "airflow-api":
        write_passwords(Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]), os.environ)
    if part == "airflow-scheduler":
        # A task whose API does not answer yet fails at once.
        wait(f"{API_HEALTH} to answer", lambda: answers(API_HEALTH))
    if part == "spark-worker":
        wait_for_port(SPARK_MASTER)


def initialise() -> int:
    """Migrate the database and make the pools; both may be done again at any time."""
    pools = {
        name: {"slots": 1, "description": "made by deploy/container.py", "include_deferred": False} for name in POOLS
    }
    file = Path(os.environ["AIRFLOW_HOME"]) / "pools.json"
    subprocess.run(["airflow", "db", "migrate"], check=True)  # noqa: S607
    file.write_text(json.dumps(pools), encoding="utf-8")
    subprocess.run(["airflow", "pools", "import", str(file)], check=True)  # noqa: S603, S607
    return 0


def write_passwords(path: Path, environ: Mapping[str, str]) -> None:
    """Write the file that Airflow's simple auth manager reads."""
    write_private(path, json.dumps({"admin": environ["HINDCAST_ADMIN_PASSWORD"]}))


def write_spark_conf(directory: Path, environ: Mapping[str, str]) -> None:
    """Write what master, workers and drivers read: deploy/spark/spark-defaults.conf and the secret they share."""
    settings = SPARK_DEFAULTS.read_text(encoding="utf-8")
    secret = environ["HINDCAST_SPARK_SECRET"]
    write_private(directory / SPARK_DEFAULTS.name, f"{settings}spark.authenticate.secret {secret}\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else can read at any moment."""
    scratch = path.with_name(path.name + ".new")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    scratch.replace(path)


def wait_for_port(address: tuple[str, int]) -> None:
    """Wait until something listens."""
    wait(f"{address[0]}:{address[1]} to listen", lambda: listens(address))


def wait(what: str, is_there: Callable[[], bool], *, patience_s: float = PATIENCE_S, pause_s: float = 1.0) -> None:
    """Wait until a condition holds.

    Raises:
        SystemExit: it did not within `patience_s`; the container ends, and is started again.
    """
    end = time.monotonic() + patience_s
    while not is_there():
        if time.monotonic() >= end:
            raise SystemExit(f"container.py: waited {patience_s:.0f} s for {what}; look at that container's log")
        time.sleep(pause_s)


def listens(address: tuple[str, int]) -> bool:
    """Whether a connection is accepted; a name that does not resolve yet is a no."""
    try:
        socket.create_connection(address, timeout=2).close()
    except OSError:
        return False
    return True


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own health pages
            return bool(response.status == HTTPStatus.OK)
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
