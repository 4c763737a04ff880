"""What a run listens on: nothing without Spark, and with a local Spark only addresses of this machine."""

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from jobs.replay.orders import ReplayOrder
from jobs.runs import RunResult
from tests.support import small_lake
from tests.support.small_lake import SmallLake
from tests.support.spark_session import SparkSession


def listening() -> set[tuple[str, int]]:
    """Return the addresses on which this process and its children accept connections over a network."""
    own = psutil.Process()
    return {address for process in (own, *own.children(recursive=True)) for address in _of(process)}


def _of(process: psutil.Process) -> Iterator[tuple[str, int]]:
    try:
        connections = process.net_connections(kind="inet")
    except psutil.Error:  # it has ended
        return
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN:
            yield connection.laddr.ip, connection.laddr.port


def test_a_run_without_spark_listens_on_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it connect to anything: the lake is on a disk."""
    lake, before, replay = SmallLake(tmp_path), listening(), small_lake.replay
    while_it_runs: list[set[tuple[str, int]]] = []

    def looked(order: ReplayOrder) -> list[RunResult]:
        results = replay(order)
        while_it_runs.append(listening() - before)
        return results

    monkeypatch.setattr(small_lake, "replay", looked)
    lake.append(Random(1))
    assert lake.run(0, 0).is_published
    assert while_it_runs == [set()]


@pytest.mark.spark
def test_the_ports_of_a_local_spark_need_a_secret(spark: SparkSession) -> None:
    """Else every user of the machine could send messages to the driver, and Java would deserialize them."""
    jvm: Any = spark.sparkContext._jvm
    manager = jvm.org.apache.spark.SparkEnv.get().securityManager()
    assert manager.isAuthenticationEnabled()
    assert len(manager.getSecretKey()) > 30


@pytest.mark.spark
def test_a_local_spark_listens_on_addresses_of_this_machine_only(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    addresses = listening()
    assert addresses, "the driver has ports for its executors"
    assert {ip for ip, _port in addresses if not _is_local(ip)} == set()


def _is_local(ip: str) -> bool:
    address = ip_address(ip)
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
