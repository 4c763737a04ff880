"""What every test may use: one Spark session, a seeded generator, a hostile time zone, Hypothesis profiles."""

import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Verbosity, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

HOSTILE_ZONE = "Asia/Kathmandu"  # UTC+05:45: whoever lets the machine's zone in is wrong by hours and minutes
DEFAULT_SEED = 20130208

# Before anything starts a JVM: it takes its default zone from here too.
os.environ["TZ"] = HOSTILE_ZONE
time.tzset()

settings.register_profile(
    "ci",
    derandomize=True,  # the same examples on every machine; `nightly` looks for new ones
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("nightly", settings.get_profile("ci"), derandomize=False, max_examples=1_000)
settings.register_profile("debug", settings.get_profile("ci"), max_examples=10, verbosity=Verbosity.verbose)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The one Spark session of this run: two cores, few shuffle partitions, a session zone that is not UTC.

    The jars come from HINDCAST_JARS or from what `make setup` fetched; without them the test fails, it is not skipped.
    """
    from jobs.session import spark_session

    session = spark_session("hindcast tests", "local[2]")
    session.conf.set("spark.sql.session.timeZone", HOSTILE_ZONE)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture
def rng() -> random.Random:
    """A seeded generator. A failure shows the seed; HINDCAST_SEED=<int> repeats it, =random takes a new one."""
    asked = os.environ.get("HINDCAST_SEED", str(DEFAULT_SEED))
    seed = random.SystemRandom().randrange(2**32) if asked == "random" else int(asked)
    print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    return random.Random(seed)
