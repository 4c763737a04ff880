"""The entry point of the containers: waiting, settings, commands."""

import http.server
import json
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import container
from tests.support.places import ROOT


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()
        self.wfile.write(
            json.dumps({"scheduler": {"status": "healthy"}, "triggerer": {"status": "unhealthy"}}).encode()
        )

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


def test_healthy_is_200_and_nothing_else(port: int) -> None:
    assert container.main(["healthy", f"http://127.0.0.1:{port}/health"]) == 0
    assert container.main(["healthy", f"http://127.0.0.1:{port}/ill"]) == 1
    assert container.main(["healthy", f"http://127.0.0.1:{free_port()}/health"]) == 1
    assert container.main(["healthy", "no url"]) == 1


def test_a_part_is_healthy_if_the_answer_says_so(port: int) -> None:
    url = f"http://127.0.0.1:{port}/health"
    assert container.main(["healthy", url, "scheduler"]) == 0
    assert container.main(["healthy", url, "triggerer"]) == 1
    assert container.main(["healthy", url, "scheduler", "unheard_of"]) == 1


def test_a_health_check_imports_little() -> None:
    """It runs in every container, some times a minute."""
    code = "import sys; before = set(sys.modules); import deploy.container; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 120


def test_a_port_is_listened_on_or_not(port: int) -> None:
    assert container.listens(("127.0.0.1", port))
    assert not container.listens(("127.0.0.1", free_port()))
    assert not container.listens(("no-such-host.invalid", 80))


def test_wait_returns_when_the_condition_holds_and_exits_after_its_patience() -> None:
    answers = iter([False, False, True])
    container.wait("the third look", lambda: next(answers), pause_s=0)
    with pytest.raises(SystemExit, match="waited 0 s for the moon"):
        container.wait("the moon", lambda: False, patience_s=0, pause_s=0)


def test_an_unknown_part_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert container.main(["airflow-worker"]) == 2
    assert "one of airflow-init, airflow-api" in capsys.readouterr().err


def test_a_part_waits_for_its_needs_and_runs_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(container, "wait_for_port", done.append)
    monkeypatch.setattr(container, "write_spark_conf", lambda *_, part: None)  # noqa: ARG005
    monkeypatch.setenv("SPARK_CONF_DIR", "unused")
    monkeypatch.setattr("os.execvp", lambda _file, command: done.append(command))
    monkeypatch.setattr(container, "prepare", lambda _: None)
    container.main(["spark-worker"])
    assert done == [container.SPARK_MASTER, container.PARTS["spark-worker"]]


def test_the_scheduler_waits_for_the_database_and_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(container, "wait_for_port", done.append)
    monkeypatch.setattr(container, "write_spark_conf", lambda *_, part: None)  # noqa: ARG005
    monkeypatch.setenv("SPARK_CONF_DIR", "unused")
    monkeypatch.setattr("subprocess.run", lambda command, **_: done.append(command[:3]))
    monkeypatch.setattr(container, "wait", lambda what, _: done.append(what))
    container.wait_for_needs("airflow-scheduler")
    assert done == [container.POSTGRES, ["airflow", "db", "check-migrations"], f"{container.API_HEALTH} to answer"]


@pytest.mark.parametrize("slots", [{}, {"hindcast_daily": 5}, {"hindcast_daily": 5, "hindcast_backfill": 2}])
def test_a_pool_keeps_the_slots_that_a_person_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: dict[str, int]
) -> None:
    """`airflow pools import` sets the slots of a pool that exists, too."""
    pools = {"default_pool": 128, **slots}

    def run(command: list[str], **_: object) -> None:
        match command:
            case ["airflow", "pools", "export", file]:
                Path(file).write_text(json.dumps({name: {"slots": count} for name, count in pools.items()}))
            case ["airflow", "pools", "import", file]:
                pools.update({name: pool["slots"] for name, pool in json.loads(Path(file).read_text()).items()})
            case _:
                assert command == ["airflow", "db", "migrate"]

    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setattr("subprocess.run", run)
    for _ in range(2):
        assert container.initialise() == 0
        assert pools == {"default_pool": 128, "hindcast_daily": 1, "hindcast_backfill": 1} | slots


def test_the_password_file_is_for_its_owner_only_and_may_be_written_again(tmp_path: Path) -> None:
    file = tmp_path / "passwords.json"
    for password in ("first", 'sec"ond'):
        container.write_passwords(file, {"HINDCAST_ADMIN_PASSWORD": password})
        assert json.loads(file.read_text(encoding="utf-8")) == {"admin": password}
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_spark_settings_hold_the_secret_and_ask_for_it_everywhere(tmp_path: Path) -> None:
    container.write_spark_conf(tmp_path, {"HINDCAST_SPARK_SECRET": "s3cret"}, part="spark-worker")
    file = tmp_path / "spark-defaults.conf"
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    settings = {line.split()[0]: line.split()[1] for line in lines}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert settings["spark.authenticate"] == "true"
    assert settings["spark.authenticate.secret"] == "s3cret"
    assert settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.master.rest.enabled"] == "false"
    assert "spark.driver.host" not in settings


def test_executors_find_the_driver_by_the_name_of_its_container() -> None:
    environ = {"HINDCAST_SPARK_SECRET": "s3cret", "SPARK_APP_CORES": "3", "SPARK_EXECUTOR_MEMORY": "2g"}
    found = dict(container.spark_settings(environ, part=container.DRIVER))
    assert found["spark.driver.host"] == container.DRIVER
    assert (found["spark.cores.max"], found["spark.executor.memory"]) == ("3", "2g")


def test_a_start_makes_private_directories_and_drops_empty_storage_settings(tmp_path: Path) -> None:
    environ = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "AWS_ENDPOINT_URL": "",
        "AWS_ACCESS_KEY_ID": "a",
    }
    for _ in range(2):
        container.prepare(environ)
        assert all(stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700 for name in ("airflow", "conf"))
    assert "AWS_ENDPOINT_URL" not in environ
    assert environ["AWS_ACCESS_KEY_ID"] == "a"
