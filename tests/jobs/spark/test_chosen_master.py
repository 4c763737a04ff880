"""Which Spark master a process uses: that of its argument, of spark-submit, of the environment, or this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.spark.session import DEFAULT_MASTER, chosen_master
from tests.support.places import ROOT
from windowlib.errors import RequestError

PRINT = """
from jobs.spark.lazy_session import LazySession
from jobs.spark.session import chosen_master
print("found", chosen_master(), chosen_master("local[9]"), LazySession.named("test").is_local)
"""


def test_an_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("HINDCAST_MASTER", raising=False)
    assert chosen_master() == DEFAULT_MASTER
    monkeypatch.setenv("HINDCAST_MASTER", "spark://host:7077")
    assert chosen_master() == "spark://host:7077"
    assert chosen_master("local[2]") == "local[2]"


@pytest.mark.parametrize("master", ["foo", "local[0]", "local[]", "local [2]", "yarn-cluster", "spark://"])
def test_a_master_that_spark_does_not_know_is_refused(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: it ended with the call stack of the JVM."""
    monkeypatch.setenv("HINDCAST_MASTER", master)
    with pytest.raises(
        RequestError, match=r"the Spark master \(--master, or HINDCAST_MASTER\) is .*; allowed are local,"
    ):
        chosen_master()
    for known in ("local", "local[3, 2]", "local-cluster[2,1,1024]", "yarn", "k8s://https://host:6443"):
        assert chosen_master(known) == known


@pytest.mark.slow
@pytest.mark.e2e
def test_the_master_of_spark_submit_comes_before_the_environment(tmp_path: Path) -> None:
    """Airflow's Spark connection becomes the master of spark-submit. A replay there must not run on this machine."""
    script = tmp_path / "script.py"
    script.write_text(PRINT, encoding="utf-8")
    environ = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "HINDCAST_MASTER": "local[1]",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "spark://nowhere:7077", str(script)]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=120)
    assert "found spark://nowhere:7077 local[9] False" in done.stdout
