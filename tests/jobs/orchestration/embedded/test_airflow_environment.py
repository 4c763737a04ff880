"""The configuration of the embedded Airflow."""

import json
import shutil
import socket
import stat
from pathlib import Path

import pytest
import yaml

from jobs.orchestration.embedded import airflow_service
from jobs.orchestration.embedded.airflow_env import (
    HOST,
    USER,
    VIEWER,
    Home,
    Ports,
    airflow_environment,
    free_ports,
    prepare_home,
    write_private,
)
from tests.support.places import ROOT
from windowlib.errors import RequestError

PORTS = Ports(api=18080, worker_logs=18081, triggerer_logs=18082)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(root=tmp_path / "airflow", lake=str(tmp_path / "lake"), pipelines=tmp_path / "pipelines")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_made_once_and_are_private(home: Home) -> None:
    known = prepare_home(home)
    assert prepare_home(home) == known
    assert len(known.jwt.encode()) >= 64, "HS512 wants 64 bytes"
    assert json.loads(home.passwords_file.read_text(encoding="utf-8")) == {
        USER: known.password,
        VIEWER: known.viewer_password,
    }
    assert _mode(home.root) == 0o700
    assert _mode(home.secrets_file) == _mode(home.passwords_file) == 0o600


def test_a_new_home_does_not_get_the_database_of_a_deleted_clone_at_its_path(home: Home) -> None:
    old = home.cluster.data / "PG_VERSION"
    old.parent.mkdir(parents=True)
    old.write_text("18")
    prepare_home(home)
    assert not old.exists()
    old.parent.mkdir(parents=True)
    old.write_text("18")
    prepare_home(home)
    assert old.exists(), "the home is not new any more"
    shutil.rmtree(home.cluster.root)


def test_a_private_file_replaces_one_that_was_open_to_all(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o644)
    write_private(path, "new")
    assert (path.read_text(encoding="utf-8"), _mode(path)) == ("new", 0o600)
    assert [one.name for one in tmp_path.iterdir()] == ["secret"]


def test_a_home_is_the_same_after_json(home: Home) -> None:
    assert Home.from_json(home.to_json()) == home


def test_a_port_that_is_taken_is_not_chosen() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HOST, 8080))
            taken.listen()
        except OSError:
            pass  # another process has it, which is the same for this test
        ports = free_ports()
    assert len({8080, ports.api, ports.worker_logs, ports.triggerer_logs}) == 4
    for port in (ports.api, ports.worker_logs, ports.triggerer_logs):
        with socket.socket() as probe:
            probe.bind((HOST, port))


def test_a_port_whose_connections_were_closed_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: `make up` within a minute after `make down` had another port."""
    with socket.create_server((HOST, 0)) as server:  # it sets SO_REUSEADDR, as uvicorn does
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # the side that closes first keeps the connection in TIME_WAIT
            client.recv(1)
        monkeypatch.setenv("HINDCAST_PORT", str(port))
        assert free_ports().api != port, "the server listens"
    assert free_ports().api == port


@pytest.mark.parametrize("text", ["abc", "0", "70000", "-1", "8080 "])
def test_a_wrong_port_is_refused_before_anything_starts(home: Home, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HINDCAST_PORT", text)
    with pytest.raises(RequestError, match=f"HINDCAST_PORT must be the number of a port, 1 to 65535; found '{text}'"):
        airflow_service.start(home, print)
    assert not home.root.exists()


def test_the_environment_has_no_setting_of_another_airflow(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW_CONN_OTHER": "{}",
        "PYTHONPATH": "/elsewhere",
        "SPARK_HOME": "/elsewhere",
        "NO_PROXY": "example.org",
        "KEPT": "yes",
    }.items():
        monkeypatch.setenv(name, value)
    known = prepare_home(home)
    environ = airflow_environment(home, ports=PORTS, known=known, database_url="postgresql+psycopg2://x")
    assert environ["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert "AIRFLOW_CONN_OTHER" not in environ
    assert "SPARK_HOME" not in environ
    assert environ["KEPT"] == "yes"
    assert environ["PYTHONPATH"] != "/elsewhere"
    assert environ["NO_PROXY"] == f"example.org,{HOST},localhost"
    assert environ["HINDCAST_LAKE"] == home.lake
    assert environ["SPARK_LOCAL_IP"] == HOST, "else Spark looks up the name of the machine, which may have no address"
    assert all(isinstance(value, str) for value in environ.values())


def test_airflow_listens_on_the_port_that_tasks_use(home: Home) -> None:
    """Tasks look for the API at port 8080, unless both addresses are set with the port."""
    environ = airflow_environment(home, ports=PORTS, known=prepare_home(home), database_url="postgresql+psycopg2://x")
    assert (environ["AIRFLOW__API__HOST"], environ["AIRFLOW__API__PORT"]) == ("127.0.0.1", "18080")
    assert environ["AIRFLOW__API__BASE_URL"] == "http://127.0.0.1:18080"
    assert environ["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:18080/execution/"
    spark = json.loads(environ["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert (spark["conn_type"], spark["host"], spark["extra"]) == ("spark", "local[*]", {"deploy-mode": "client"})


@pytest.mark.slow
def test_airflow_has_every_setting(home: Home, airflow_home: Path) -> None:
    """Airflow ignores a setting with a wrong name, and reports no error."""
    from airflow.configuration import conf

    assert airflow_home.is_dir()
    environ = airflow_environment(home, ports=PORTS, known=prepare_home(home), database_url="postgresql+psycopg2://x")
    settings = [name.split("__")[1:] for name in environ if name.startswith("AIRFLOW__")]
    assert len(settings) > 20
    description = conf.configuration_description
    unknown = [
        f"{section}.{option}"
        for section, option in ((part.lower() for part in setting) for setting in settings)
        if option not in description.get(section, {}).get("options", {})
    ]
    assert unknown == []


def test_a_request_of_a_task_outlives_the_restart_of_an_api_server(home: Home) -> None:
    """Airflow's client waits for a random time up to the next power of two, and at most up to the configured time."""
    environ = airflow_environment(home, ports=PORTS, known=prepare_home(home), database_url="postgresql+psycopg2://x")
    attempts = int(environ["AIRFLOW__WORKERS__EXECUTION_API_RETRIES"])
    longest_s = float(environ["AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX"])
    assert sum(min(2**number, longest_s) / 2 for number in range(attempts - 1)) > 180


@pytest.mark.parametrize(
    "name",
    [
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT",
        "AIRFLOW__WORKERS__EXECUTION_API_RETRIES",
        "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX",
    ],
)
def test_the_containers_have_the_same_settings(home: Home, name: str) -> None:
    environ = airflow_environment(home, ports=PORTS, known=prepare_home(home), database_url="postgresql+psycopg2://x")
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert compose["x-airflow-environment"][name] == environ[name]
