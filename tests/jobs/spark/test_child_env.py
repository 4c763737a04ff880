"""The environment that a replay inherits from Airflow: settings, but no secrets."""

import os
import subprocess
from pathlib import Path

import pytest

from jobs.orchestration.embedded.airflow_env import HOST, Home, Ports, airflow_environment, prepare_home
from jobs.spark.child_env import BACKTRACES, clean_environment, is_secret
from tests.support.places import ROOT

WRAPPER = ROOT / "jobs" / "bin" / "spark-submit-pdeathsig"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of tasks of the embedded Airflow, and the variables of docker-compose.yml."""
    home = Home(root=tmp_path / "airflow", lake=str(tmp_path / "lake"), pipelines=tmp_path / "pipelines")
    ports = Ports(api=18080, worker_logs=18081, triggerer_logs=18082)
    known = prepare_home(home)
    whole = airflow_environment(
        home, ports=ports, known=known, database_url="postgresql+psycopg2://airflow:pw-secret@/x"
    )
    return whole | {
        "AIRFLOW__CORE__FERNET_KEY": "fernet-secret",
        "AIRFLOW_CONN_OTHER": "conn-secret",
        "AIRFLOW_VAR_OTHER": "var-secret",
        "_AIRFLOW_WWW_USER_PASSWORD": "www-secret",
        "POSTGRES_PASSWORD": "postgres-secret",
        "PGPASSWORD": "pg-secret",
        "HINDCAST_SPARK_SECRET": "spark-secret",
        "HINDCAST_ADMIN_PASSWORD": "admin-secret",
        "SPARK_LOCAL_DIRS": f"{tmp_path}/disk,/other",
        "TOKEN": "kept",
    }


def _secrets(environ: dict[str, str], tmp_path: Path) -> set[str]:
    home = Home(root=tmp_path / "airflow", lake="", pipelines=tmp_path)
    known = prepare_home(home)
    return {known.jwt, known.session, known.password} | {environ[name] for name in environ if is_secret(name)}


def test_spark_submit_and_its_children_get_no_secret(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "spark-submit").write_text('#!/bin/sh\nexec env "$@"\n')
    (tmp_path / "spark-submit").chmod(0o755)
    environ["PATH"] = f"{tmp_path}{os.pathsep}{environ['PATH']}"
    found = subprocess.run([WRAPPER, "-0"], env=environ, capture_output=True, text=True, check=True).stdout
    child = dict(line.split("=", 1) for line in found.split("\0") if "=" in line)
    secrets = {secret for secret in _secrets(environ, tmp_path) if len(secret) > 8} - {HOST}
    assert len(secrets) > 10
    assert not [secret for secret in secrets if secret in set(child.values())]
    assert "-secret" not in found
    for name in ("HINDCAST_LAKE", "JAVA_HOME", "PYTHONPATH", "PYSPARK_PYTHON", "TOKEN", "AIRFLOW_HOME"):
        assert child[name] == environ[name]
    assert child["AWS_EC2_METADATA_DISABLED"] == "true"
    assert (child["TMPDIR"], "SPARK_LOCAL_DIRS" in child) == (f"{tmp_path}/disk", False)
    same = dict(environ)
    clean_environment(same)
    shells = {*BACKTRACES, "AWS_EC2_METADATA_DISABLED", "TMPDIR", "SPARK_LOCAL_DIRS", "_", "SHLVL", "PWD", "OLDPWD"}
    assert set(same) - shells == set(child) - shells, "both drop the same"


def test_a_choice_about_the_metadata_service_is_kept(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "spark-submit").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "spark-submit").chmod(0o755)
    environ |= {"PATH": f"{tmp_path}{os.pathsep}{environ['PATH']}", "AWS_EC2_METADATA_DISABLED": "false"}
    found = subprocess.run([WRAPPER], env=environ, capture_output=True, text=True, check=True).stdout
    assert "AWS_EC2_METADATA_DISABLED=false" in found.splitlines()


def test_no_native_call_stack_gets_into_a_message() -> None:
    environ = {"RUST_BACKTRACE": "full", "RUST_LIB_BACKTRACE": "1", "KEPT": "1"}
    clean_environment(environ)
    assert environ == {"KEPT": "1"}
