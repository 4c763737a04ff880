"""The entry point of the containers of docker-compose.yml: each container runs one part of Airflow or Spark.

    container.py PART                   wait for what the part needs, then run it (`PARTS` below)
    container.py healthy URL [PART …]   exit status 0 if URL answers with 200, and names each PART as healthy

Containers start in any order, and each of them may end at any time. A part waits at its start for the other parts that
it needs. The container engine restarts a container that ends. Standard library only, because a health check runs often.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

PATIENCE_S = 300
SPARK_DEFAULTS = Path(__file__).resolve().parent / "spark" / "spark-defaults.conf"
API_HEALTH = "http://airflow-api:8080/api/v2/monitor/health"
POOLS = ("hindcast_daily", "hindcast_backfill")
SPARK_MASTER = ("spark-master", 7077)
POSTGRES = ("postgres", 5432)
STORAGE_PREFIX = "AWS_"
DRIVER = "airflow-scheduler"
"""The part whose container runs Spark's drivers. Executors connect to them by this name."""

PARTS: Mapping[str, list[str]] = {
    "airflow-api": ["airflow", "api-server"],
    DRIVER: ["airflow", "scheduler"],
    "airflow-dag-processor": ["airflow", "dag-processor"],
    "airflow-triggerer": ["airflow", "triggerer"],
    "airflow-clean": ["clean-airflow"],
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
WITH_SPARK = (DRIVER, "spark-master", "spark-worker")


def main(arguments: list[str]) -> int:
    """Run the command of the command line, and return the exit status. A part replaces this process."""
    match arguments:
        case ["healthy", url, *components]:
            return 0 if is_healthy(url, components) else 1
        case ["airflow-init"]:
            prepare(os.environ)
            wait_for_port(POSTGRES)
            return initialise()
        case [part] if part in PARTS:
            prepare(os.environ)
            wait_for_needs(part)
            return become(PARTS[part])
        case _:
            known = ", ".join(["airflow-init", *PARTS])
            sys.stderr.write(f"container.py: one of {known}, or: healthy URL [PART …]; found {arguments}\n")
            return 2


def become(command: list[str]) -> NoReturn:
    """Replace this process by a command, so that the command gets the signals of the container."""
    sys.stdout.flush()
    os.execvp(command[0], command)  # noqa: S606 - the image's own commands


def prepare(environ: MutableMapping[str, str]) -> None:
    """Make the private directories of the settings, which are on a new file system at each start."""
    drop_empty(environ)
    for name in ("AIRFLOW_HOME", "SPARK_CONF_DIR"):
        Path(environ[name]).mkdir(mode=0o700, exist_ok=True)


def drop_empty(environ: MutableMapping[str, str]) -> None:
    """Remove the storage variables that docker-compose.yml passes on without a value. Empty ones are not defaults."""
    for name in [one for one, value in environ.items() if one.startswith(STORAGE_PREFIX) and not value]:
        del environ[name]


def wait_for_needs(part: str) -> None:
    """Wait for the other parts that a part needs at its start, and write its configuration files."""
    if part in WITH_SPARK:
        write_spark_conf(Path(os.environ["SPARK_CONF_DIR"]), os.environ, part=part)
    if part.startswith("airflow-"):
        wait_for_port(POSTGRES)
        subprocess.run(["airflow", "db", "check-migrations", "-t", str(PATIENCE_S)], check=True)  # noqa: S603, S607
    if part == "airflow-api":
        write_passwords(Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]), os.environ)
    if part == DRIVER:
        # A task fails at once if the API does not answer yet.
        wait(f"{API_HEALTH} to answer", lambda: is_healthy(API_HEALTH))
    if part == "spark-worker":
        wait_for_port(SPARK_MASTER)


def initialise() -> int:
    """Migrate the database, and make the pools that are missing. A pool keeps the slots that a person gave it."""
    subprocess.run(["airflow", "db", "migrate"], check=True)  # noqa: S607
    file = Path(os.environ["AIRFLOW_HOME"]) / "pools.json"
    subprocess.run(["airflow", "pools", "export", str(file)], check=True)  # noqa: S603, S607
    there = json.loads(file.read_text(encoding="utf-8"))
    new = {"slots": 1, "description": "made by deploy/container.py", "include_deferred": False}
    missing = {name: new for name in POOLS if name not in there}
    if missing:
        file.write_text(json.dumps(missing), encoding="utf-8")
        subprocess.run(["airflow", "pools", "import", str(file)], check=True)  # noqa: S603, S607
    return 0


def write_passwords(path: Path, environ: Mapping[str, str]) -> None:
    """Write the file of passwords for Airflow's simple auth manager."""
    write_private(path, json.dumps({"admin": environ["HINDCAST_ADMIN_PASSWORD"]}))


def write_spark_conf(directory: Path, environ: Mapping[str, str], *, part: str) -> None:
    """Write the settings of a master, a worker or a driver: deploy/spark/spark-defaults.conf and those of `.env`."""
    settings = SPARK_DEFAULTS.read_text(encoding="utf-8")
    added = "".join(f"{name} {value}\n" for name, value in spark_settings(environ, part=part))
    write_private(directory / SPARK_DEFAULTS.name, settings + added)


def spark_settings(environ: Mapping[str, str], *, part: str) -> Iterator[tuple[str, str]]:
    """Yield the Spark settings of the environment."""
    yield "spark.authenticate.secret", environ["HINDCAST_SPARK_SECRET"]
    if part == DRIVER:
        yield "spark.driver.host", DRIVER
        yield "spark.driver.bindAddress", "0.0.0.0"  # noqa: S104 - of the containers' own network
        yield "spark.cores.max", environ["SPARK_APP_CORES"]
        yield "spark.executor.memory", environ["SPARK_EXECUTOR_MEMORY"]


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


def is_healthy(url: str, components: Sequence[str] = ()) -> bool:
    """Return whether a GET request is answered with 200, and the answer has the status `healthy` for each component.

    Airflow's API server answers for `scheduler`, `dag_processor` and `triggerer`: it compares the newest heartbeat of
    each with the clock. So a check of these parts needs neither Airflow's libraries nor the database.
    """
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own health pages
            found = response.status == HTTPStatus.OK
            answer = json.load(response) if found and components else {}
    except (OSError, ValueError):
        return False
    return found and all(answer.get(one, {}).get("status") == "healthy" for one in components)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
