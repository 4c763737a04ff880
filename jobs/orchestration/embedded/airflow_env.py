"""Configuration of the embedded Airflow: directories, ports, secrets, and the environment of its processes."""

import json
import os
import re
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs.orchestration.embedded.postgres import Cluster, cluster_for, remove as remove_cluster
from jobs.project import PROGRAMS, ROOT
from jobs.spark.java import find_java
from windowlib.errors import RequestError

HOST = "127.0.0.1"
USER = "admin"
VIEWER = "viewer"
"""An account that sees everything and decides nothing."""
PREFERRED_PORT = 8080
MAX_PORT = 65_535
POOLS = {
    "hindcast_daily": "one scheduled replay at a time",
    "hindcast_backfill": "one backfill at a time; separate from the daily replay",
}
_DROPPED = ("AIRFLOW_", "PYTHONPATH", "PYTHONHOME", "SPARK_HOME", "PYSPARK_", "HINDCAST_DEMO")


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """One embedded Airflow: the directory of its files, its lake and its directory of pipelines.

    The Airflow of a demonstration (`is_demo`) has the DAG `clicks_live_writer` as well.
    """

    root: Path
    lake: str
    pipelines: Path
    is_demo: bool = False

    @property
    def logs(self) -> Path:
        """Directory with one log file for each process. The logs of tasks are below `tasks`."""
        return self.root / "logs"

    @property
    def service_file(self) -> Path:
        """File that the supervisor writes while it runs: its process, its phase, and the URL of Airflow."""
        return self.root / "service.json"

    @property
    def secrets_file(self) -> Path:
        """File with the secrets, made once, mode 0600."""
        return self.root / "secrets.json"

    @property
    def passwords_file(self) -> Path:
        """File that Airflow's simple auth manager reads: user -> password, mode 0600."""
        return self.root / "passwords.json"

    @property
    def cluster(self) -> Cluster:
        """The database. For root, its directory is outside `root`, see `cluster_for`."""
        return cluster_for(self.root / "postgres", self.logs / "postgres.log")

    def to_json(self) -> str:
        """Return this home as JSON, for the command line of the supervisor."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "Home":
        fields = json.loads(text)
        return cls(**fields | {name: Path(fields[name]) for name in ("root", "pipelines")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Secrets of one Airflow: the keys that sign tokens and sessions, and the passwords of both accounts."""

    jwt: str
    session: str
    password: str
    viewer_password: str

    @classmethod
    def new(cls) -> "Secrets":
        return cls(
            jwt=secrets.token_urlsafe(64),
            session=secrets.token_urlsafe(32),
            password=secrets.token_urlsafe(12),
            viewer_password=secrets.token_urlsafe(12),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports on the loopback interface. Airflow listens on `api` only; the settings name the two others."""

    api: int
    worker_logs: int
    triggerer_logs: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.api}"


def prepare_home(home: Home) -> Secrets:
    """Make the directories and the files that Airflow reads when it starts, and return the secrets, made once.

    A home without secrets is new. The database of root is outside the clone, so that of a clone that was deleted may be
    at its place. It is removed.
    """
    if not home.secrets_file.exists():
        remove_cluster(home.cluster)
    home.logs.mkdir(parents=True, exist_ok=True)
    home.root.chmod(0o700)
    stored = json.loads(home.secrets_file.read_text(encoding="utf-8")) if home.secrets_file.exists() else {}
    known = Secrets(**(asdict(Secrets.new()) | stored))
    if asdict(known) != stored:
        write_private(home.secrets_file, json.dumps(asdict(known)))
    write_private(home.passwords_file, json.dumps({USER: known.password, VIEWER: known.viewer_password}))
    return known


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, with mode 0600 from its creation."""
    scratch = path.with_name(path.name + ".new")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    scratch.replace(path)


def preferred_port() -> int:
    """Return the port that the web page gets if it is free: HINDCAST_PORT, by default 8080.

    Raises RequestError: the variable is not the number of a port.
    """
    text = os.environ.get("HINDCAST_PORT") or str(PREFERRED_PORT)
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text) or int(text) > MAX_PORT:
        raise RequestError(f"HINDCAST_PORT must be the number of a port, 1 to {MAX_PORT}; found {text!r}")
    return int(text)


def free_ports() -> Ports:
    """Return three ports that are free now, that of the web page as `preferred_port` tells.

    Raises RequestError: as for `preferred_port`.
    """
    with ExitStack() as held:
        ports = [held.enter_context(_bound(wanted)).getsockname()[1] for wanted in (preferred_port(), 0, 0)]
    return Ports(api=ports[0], worker_logs=ports[1], triggerer_logs=ports[2])


def _bound(port: int) -> socket.socket:
    """Return a socket bound to a loopback port: the given one if it is free, else any."""
    for candidate in (port, 0):
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Connections that an earlier server has closed do not keep its port for a minute. A server that listens does.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, candidate != 0)
        try:
            holder.bind((HOST, candidate))
        except OSError:
            holder.close()
            if candidate == 0:
                raise
        else:
            return holder
    raise AssertionError("port 0 was bound or raised")


def airflow_environment(home: Home, *, ports: Ports, known: Secrets, database_url: str) -> dict[str, str]:
    """Return the environment of every `airflow` command: the cleaned one of this process, and Airflow's settings."""
    settings = dict(_settings(home, ports, known))
    settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = database_url
    # The settings of another Airflow, Python or Spark are left out.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    return inherited | settings | _surroundings(home)


def _surroundings(home: Home) -> dict[str, str]:
    """Return what tasks need besides Airflow's settings: commands, Java, this repository, the lake, no proxy."""
    commands = Path(sys.executable).parent
    no_proxy = ",".join(filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), HOST, "localhost")))
    return {
        "PATH": os.pathsep.join([str(PROGRAMS), str(commands), os.environ.get("PATH", os.defpath)]),
        "HINDCAST_AIRFLOW": str(commands / "airflow"),
        "HINDCAST_LAKE": home.lake,
        "HINDCAST_PIPELINES": str(home.pipelines),
        **({"HINDCAST_DEMO": "1"} if home.is_demo else {}),
        "JAVA_HOME": str(find_java()),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "NO_COLOR": "1",
    }


def _settings(home: Home, ports: Ports, known: Secrets) -> Iterator[tuple[str, str]]:
    """Yield Airflow's settings as environment variables. A comment gives the reason where the default is harmful."""
    yield "AIRFLOW_HOME", str(home.root)
    sections = {
        "core": {
            "dags_folder": str(ROOT / "dags"),
            "plugins_folder": str(home.root / "plugins"),
            "load_examples": "False",
            "executor": "LocalExecutor",
            "parallelism": "4",  # the executor starts this many workers at once
            "dags_are_paused_at_creation": "True",
            "dagbag_import_timeout": "300",
            "simple_auth_manager_users": f"{USER}:admin,{VIEWER}:viewer",
            "simple_auth_manager_passwords_file": str(home.passwords_file),
            # Without this and api.base_url, tasks connect to port 8080, also when the API has another port.
            "execution_api_server_url": f"{ports.url}/execution/",
        },
        "api": {
            "host": HOST,
            "port": str(ports.api),
            "base_url": ports.url,
            "secret_key": known.session,
            "expose_config": "False",
        },
        "api_auth": {"jwt_secret": known.jwt},
        "scheduler": {
            "catchup_by_default": "False",
            # The scheduler examines backfill runs last. With the default of 20, other runs would keep them waiting.
            "max_dagruns_per_loop_to_schedule": "200",
            # By default, tasks of a killed scheduler or worker wait for five minutes until they run again.
            "orphaned_tasks_check_interval": "60",
            "task_instance_heartbeat_timeout": "120",
        },
        "dag_processor": {
            "refresh_interval": "10",  # by default, a new file waits five minutes
            "parsing_processes": "1",
            # One file has the DAGs of all pipelines. If it takes longer than this, by default 50 s, Airflow drops all
            # of them, without an import error.
            "dag_file_processor_timeout": "600",
        },
        "workers": {
            "execution_api_timeout": "30",  # the default of 5 s is too short while Airflow starts on two cores
            # If the API server does not answer, a request of a task is repeated for about four minutes. By default, it
            # fails after 20 s, and two minutes without an API server fail a DAG run with all its retries.
            "execution_api_retries": "20",
            "execution_api_retry_wait_max": "30",
        },
        "logging": {
            "base_log_folder": str(home.logs / "tasks"),
            "worker_log_server_port": str(ports.worker_logs),
            "trigger_log_server_port": str(ports.triggerer_logs),
        },
    }
    for section, options in sections.items():
        for option, value in options.items():
            yield f"AIRFLOW__{section.upper()}__{option.upper()}", value
    # Without this connection, Airflow's Spark operator uses YARN and reports no error.
    connection = {"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}
    yield "AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection)
