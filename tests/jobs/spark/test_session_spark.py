"""The Spark session keeps its temporary files private, starts with little work, and ends at once."""

import stat
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from jobs.spark.private_dir import private_directory
from jobs.spark.session import socket_settings, stop_spark
from tests.support.spark_session import SparkSession

if TYPE_CHECKING:
    from pyspark import SparkContext
pytestmark = pytest.mark.spark


def test_spark_keeps_its_blocks_in_a_private_directory(spark: SparkSession) -> None:
    spark.range(100_000).repartition(3).localCheckpoint().count()
    context: Any = spark.sparkContext._jsc.sc()
    directories = [Path(str(one)) for one in context.env().blockManager().diskBlockManager().localDirs()]
    assert directories
    blocks = [path for one in directories for path in one.rglob("*") if path.is_file()]
    assert blocks, "the shuffle wrote some"
    private = private_directory()
    assert all(one.is_relative_to(private) for one in directories)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_local_spark_does_not_look_up_the_name_of_the_machine(spark: SparkSession) -> None:
    """Defect: on a machine whose name has no address, the set-up passed and each replay with Spark failed."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert jvm.java.lang.System.getenv("SPARK_LOCAL_IP") == "127.0.0.1"


def test_python_workers_use_sockets_in_the_private_directory(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([1, 2], 2).map(lambda one: one + 1).collect() == [2, 3]
    assert any(path.is_socket() for path in private_directory().iterdir())


def test_a_socket_whose_path_is_too_long_is_not_used() -> None:
    assert socket_settings("/private") != {}
    assert socket_settings("/" + "long" * 20) == {}


def test_python_workers_import_the_installed_pyspark_and_not_the_archive(spark: SparkSession) -> None:
    def files(_number: int) -> list[str]:
        import sys

        return [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]

    worker = spark.sparkContext.parallelize([1], 1).flatMap(files).collect()
    assert any(file.endswith("pyspark/worker.py") for file in worker)
    assert not [file for file in worker if ".zip" in file]


def test_the_end_of_a_context_does_not_wait_for_its_receiver_of_accumulators() -> None:
    stopped, may_end, ended = Event(), Event(), Event()

    def shutdown() -> None:
        may_end.wait(60)
        ended.set()

    receiver = SimpleNamespace(shutdown=shutdown)
    context = SimpleNamespace(_accumulatorServer=receiver, stop=stopped.set)
    stop_spark(cast("SparkContext", context))
    assert stopped.is_set()
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(60)
