"""docker-compose.yml as data: it has no secret, opens no port to the network, and has all parts."""

import ast
import base64
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tomllib
from datetime import datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import container, make_env, slim_environment, write_metadata
from jobs.wall_clock import now_ms
from tests.support.places import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
SECRETS = {setting.name for setting in make_env.SETTINGS if setting.secret is not None}
PLAIN = {setting.name: setting.default for setting in make_env.SETTINGS if setting.secret is None}
STORAGE = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"}
"""Empty unless the lake is in object storage."""
OURS = {"airflow-init", *container.PARTS}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
    return parsed


def test_the_parts_are_all_there(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == OURS | {"postgres", "object-store"}
    assert [name for name, service in services.items() if "profiles" in service] == ["object-store"]
    assert {services[name]["image"] for name in OURS} == {"hindcast:local"}


def test_every_secret_is_required_and_none_has_a_default() -> None:
    demanded = set(re.findall(r"\$\{(\w+):\?[^}]+\}", TEXT))
    assert demanded == SECRETS
    defaults = dict(re.findall(r"\$\{(\w+):-((?:[^{}]|\$\{[^}]*\})*)\}", TEXT))
    assert defaults == PLAIN | {"AIRFLOW_BASE_URL": "http://127.0.0.1:${AIRFLOW_PORT:-8080}"}
    assert not re.findall(r"\$\{\w+\}|(?<!\$)\$\w+", TEXT), "a variable that may be empty without anybody noticing"


def test_no_value_that_looks_secret_is_written_out(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD$|SECRET|_KEY|TOKEN|SQL_ALCHEMY_CONN", name) and name not in STORAGE:
                assert re.search(r"\$\{\w+:\?", value), f"{name} must come from .env"


def test_ports_are_open_on_the_loopback_interface_only(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", port) for port in ports)
    assert not any("network_mode" in service or service.get("privileged") for service in services.values())


def test_every_lasting_part_has_a_health_check_and_restarts(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        if name == "airflow-init":
            assert service["restart"] == "on-failure"
        else:
            assert service["restart"] == "unless-stopped"
        if name != "airflow-init":
            assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}


def test_no_part_relies_on_start_order(services: dict[str, dict[str, Any]]) -> None:
    """Not every container engine has health conditions, so each part waits for the others itself."""
    assert all(isinstance(service.get("depends_on", []), list) for service in services.values())


def test_each_command_is_a_part_of_container_py(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS - {"airflow-init"}:
        [command] = services[name]["command"]
        assert command == name
        assert command in container.PARTS


def test_no_part_can_write_outside_of_its_volumes(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS:
        service = services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]  # noqa: S108
    assert services["object-store"]["read_only"] is True


def test_logs_are_on_the_volume_and_bounded(services: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """Defect: the logs of the DAG processor filled the 512 MB of `/tmp` in a year, and nothing removed other logs."""
    environment = services["airflow-dag-processor"]["environment"]
    names = {name.removeprefix("AIRFLOW__") for name in environment if name.startswith("AIRFLOW__")}
    assert names <= {name.upper() for name in airflow_options()}
    places = {name: place for name, place in environment.items() if name.startswith("AIRFLOW__LOGGING__")}
    assert len(places) == 2
    assert all(Path("/logs") in (Path(place), *Path(place).parents) for place in places.values())
    parts = [services[name] for name in container.PARTS if name.startswith("airflow")]
    assert all("logs:/logs" in part["volumes"] for part in parts)
    assert all({"max-size", "max-file"} == service["logging"]["options"].keys() for service in services.values())
    logs, programs = tmp_path / "logs", tmp_path / "bin"
    for name, days in (("old/a.log", 91), ("old/b.log", 89), ("older/a.log", 200)):
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text("x", encoding="utf-8")
        os.utime(logs / name, (now_ms() / 1000 - days * 86_400,) * 2)
    programs.mkdir()
    for name, line in (("airflow", f'echo "$@" >{tmp_path}/done'), ("sleep", "exit 9")):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(logs)}
    [command] = container.PARTS["airflow-clean"]
    script = ROOT / "deploy" / "bin" / command
    keep = {"AIRFLOW_KEEP_DAYS": PLAIN["AIRFLOW_KEEP_DAYS"]}
    assert subprocess.run([script], env=environ | keep, check=False).returncode == 9
    assert [path.relative_to(logs).as_posix() for path in logs.rglob("*.log")] == ["old/b.log"]
    done = (tmp_path / "done").read_text(encoding="utf-8").split()
    before = datetime.fromisoformat(done[done.index("--clean-before-timestamp") + 1])
    assert 0 <= now_ms() / 1000 - 90 * 86_400 - before.timestamp() < 60
    refused = subprocess.run([script], env=environ | {"AIRFLOW_KEEP_DAYS": "0"}, check=False, capture_output=True)
    assert (refused.returncode, b"found: '0'" in refused.stderr) == (2, True)


def airflow_options() -> set[str]:
    """The options of the installed Airflow, as `section__option`."""
    [directory] = importlib.util.find_spec("airflow").submodule_search_locations  # type: ignore[union-attr, misc]
    sections = yaml.safe_load((Path(directory) / "config_templates" / "config.yml").read_text(encoding="utf-8"))
    return {f"{section}__{option}" for section, parts in sections.items() for option in parts["options"]}


def test_every_part_has_a_memory_limit(services: dict[str, dict[str, Any]]) -> None:
    assert all("mem_limit" in service for service in services.values())


def test_no_health_check_starts_airflow_or_a_jvm(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS - {"airflow-init"}:
        command = services[name]["healthcheck"]["test"]
        assert command[:5] == ["CMD", "python", "-IS", "/opt/hindcast/deploy/container.py", "healthy"]


def test_a_secret_reaches_only_the_parts_that_use_it(services: dict[str, dict[str, Any]]) -> None:
    def parts(variable: str) -> set[str]:
        return {name for name, service in services.items() if variable in service.get("environment", {})}

    assert parts("HINDCAST_SPARK_SECRET") == {container.DRIVER, "spark-master", "spark-worker"}
    assert parts("HINDCAST_ADMIN_PASSWORD") == {"airflow-api"}
    assert not parts("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") & {"spark-master", "spark-worker", "postgres"}


def test_the_parts_that_have_the_lake_get_the_setting_of_waiting_for_the_disk(
    services: dict[str, dict[str, Any]],
) -> None:
    """Defect: in containers, `HINDCAST_FSYNC=off` in `.env` had no effect."""
    variables = {name: service.get("environment", {}) for name, service in services.items()}
    users = {name for name, values in variables.items() if "HINDCAST_LAKE" in values}
    assert {container.DRIVER, "spark-worker"} < users
    assert {name: variables[name].get("HINDCAST_FSYNC") for name in users} == dict.fromkeys(
        users, "${HINDCAST_FSYNC:-on}"
    )


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    files = [str(ROOT / "Dockerfile"), *map(str, sorted((ROOT / "tests" / "deploy").glob("*/Dockerfile")))]
    assert len(files) == 3
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, "--no-color", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_build_context_has_only_what_the_image_needs() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "**", "everything is left out, except what is listed"
    allowed = {rule[1:].removesuffix("/**") for rule in rules if rule.startswith("!")}
    assert allowed == {
        "requirements-bootstrap.txt",
        "requirements-build.lock",
        "requirements-fast.lock",
        "requirements.lock",
        "pyproject.toml",
        "dags",
        "deploy",
        "expectations",
        "jobs",
        "pipelines",
        "setup",
        "windowlib",
    }


def test_the_slim_environment_matches_the_installed_packages() -> None:
    """An entry that matches nothing is stale. What is imported stays: the classes are tested by `make test-compose`."""
    packages = Path(sysconfig.get_paths()["purelib"])
    assert [pattern for pattern, found in slim_environment.matches(packages) if not found] == []


def test_tasks_and_workers_see_the_same_lake(services: dict[str, dict[str, Any]]) -> None:
    for name in ("airflow-scheduler", "spark-worker"):
        assert "lake:/lake" in services[name]["volumes"]
    for name in ("airflow-api", "airflow-dag-processor", "airflow-triggerer"):
        assert "lake:/lake:ro" in services[name]["volumes"], "only tasks write"
    assert "HINDCAST_LAKE=/lake" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_api_server_knows_the_pipelines_and_the_lake_for_its_pages(services: dict[str, dict[str, Any]]) -> None:
    api, scheduler = services["airflow-api"], services["airflow-scheduler"]
    assert api["environment"]["HINDCAST_LAKE"] == scheduler["environment"]["HINDCAST_LAKE"]
    pipelines = "./pipelines:/opt/hindcast/pipelines:ro"
    assert pipelines in api["volumes"]
    assert pipelines in scheduler["volumes"]


def test_the_image_has_the_entry_points_of_the_project(tmp_path: Path) -> None:
    """Airflow finds the plugin by them."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    found = Distribution.at(write_metadata.write_metadata(tmp_path))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"console_scripts": project["scripts"], **project.get("entry-points", {})}
    assert (found.metadata["Name"], found.version) == ("hindcast", project["version"])
    assert {(one.group, one.name, one.value) for one in found.entry_points} == {
        (group, name, value) for group, entries in wanted.items() for name, value in entries.items()
    }


def test_airflow_runs_on_postgres_with_a_local_executor(services: dict[str, dict[str, Any]]) -> None:
    environment = services["airflow-scheduler"]["environment"]
    assert environment["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].startswith("postgresql+psycopg2://")
    assert "spark://spark-master" in environment["AIRFLOW_CONN_SPARK_DEFAULT"]


def test_the_example_of_the_settings_is_up_to_date() -> None:
    assert (ROOT / ".env.example").read_text(encoding="utf-8") == make_env.render(with_secrets=False)
    assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").replace("/.env", ".env").splitlines()


def test_made_settings_hold_fresh_secrets_for_their_owner_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_env.main([], tmp_path) == 0
    file = tmp_path / ".env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    values = dict(
        line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    )
    assert set(values) == SECRETS | set(PLAIN)
    assert all(re.fullmatch(r"[A-Za-z0-9_=-]{16,}", values[name]) for name in SECRETS)
    assert len(base64.urlsafe_b64decode(values["AIRFLOW_FERNET_KEY"])) == 32
    assert len(values["AIRFLOW_JWT_SECRET"]) >= 64
    before = file.read_bytes()
    assert make_env.main([], tmp_path) == 1
    assert file.read_bytes() == before
    assert "remove the file first" in capsys.readouterr().err
    assert make_env.render(with_secrets=True) != make_env.render(with_secrets=True)


def test_the_image_holds_no_secret_and_does_not_run_as_root() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "USER 10001" in text
    assert not re.search(r"(PASSWORD|SECRET|TOKEN|_KEY)\s*=", text)
    last = text[text.rindex("\nFROM ") :]
    assert "--chown" not in last, "the code belongs to root"
    assert last.index("USER 10001") < last.index("COPY --from=code"), "a change of code rebuilds the last layer only"
    assert "apt-get" not in last, "no tool of a build stage is in the image"


def test_the_settings_are_made_by_the_python_of_an_older_linux() -> None:
    """Defect: `make env` was a traceback with the Python 3.9 of RHEL 9."""
    text = (ROOT / "deploy" / "make_env.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 9))
    assert "from __future__ import annotations\n" in text, "for `X | None`"
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = {(ast.unparse(call.func), word.arg) for call in calls for word in call.keywords}
    assert not {("dataclass", "slots"), ("dataclass", "kw_only")} & named


def test_the_code_in_the_image_may_be_read_by_its_user() -> None:
    """Defect: a clone that was made with umask 077 gave an image that could not start."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"\nCOPY \. \.\n(#.*\n)*RUN chmod -R a\+rX \. ", text)
