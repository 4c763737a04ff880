"""The object store, and a Spark session with the S3 file system."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from jobs.demo.flights import load_flights
from jobs.storage import file_system
from tests.support.object_store import BUCKET, SOURCE, ObjectStore
from tests.support.spark_session import SparkSession


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The running store with an empty bucket. The variables of this process name it."""
    found = ObjectStore(tmp_path_factory.mktemp("s3"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.environ.items():
            patch.setenv(name, value)
        found.start()
        assert found.put("", b"") == 200
        yield found
        found.kill()


@pytest.fixture
def lake(store: ObjectStore, request: pytest.FixtureRequest) -> str:  # noqa: ARG001 - it has to run
    """The URI of a lake of the test's own."""
    return f"s3://{BUCKET}/{request.node.name.partition('[')[0][-40:]}"


@pytest.fixture(scope="session")
def spark(store: ObjectStore) -> "Iterator[SparkSession]":  # noqa: ARG001 - it has to run
    """A session that reads the store. The store's variables are set before the JVM starts."""
    from jobs.spark.session import spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC")
        session = spark_session("hindcast s3 tests", "local[2]", reads=(f"s3://{BUCKET}",))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks of flights, loaded into the lake SOURCE in the store; a lake on the disk with a copy of the log."""
    spark.sparkContext.setLogLevel("ERROR")
    load_flights(SOURCE.replace("s3:", "s3a:"), date(2013, 2, 1), date(2013, 2, 15))
    directory = tmp_path_factory.mktemp("disk")
    system, root = file_system(SOURCE)
    pafs.copy_files(root, str(directory), source_filesystem=system, destination_filesystem=pafs.LocalFileSystem())
    return directory
