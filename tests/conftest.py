"""Fixtures of all tests: one Spark session, a seeded generator, a hostile time zone, Hypothesis profiles."""

import logging
import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Verbosity, settings
from xdist.scheduler import LoadScopeScheduling

from tests.support.fuzzing import ASKED, BUDGET, TimeOver, cases, first_seed
from tests.support.spark_session import SparkSession

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

HOSTILE_ZONE = "Asia/Kathmandu"  # UTC+05:45: code that uses the machine's zone is wrong by hours and minutes

# Set before a JVM starts, which takes its default zone from here, too.
os.environ["TZ"] = HOSTILE_ZONE
time.tzset()
# A test ends before a loss of power. tests/e2e/test_every_write.py counts the calls of fsync.
os.environ.setdefault("HINDCAST_FSYNC", "off")

USUAL_CASES = 25

settings.register_profile(
    "ci",
    derandomize=True,  # the same examples on every machine; `fuzz` looks for new ones
    deadline=None,
    max_examples=cases(USUAL_CASES),  # `make slow` plays 200 of each, `make fuzz` 10,000
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("fuzz", settings.get_profile("ci"), derandomize=False)
settings.register_profile("debug", settings.get_profile("ci"), max_examples=10, verbosity=Verbosity.verbose)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fuzz" if ASKED else "ci"))


FIRST = ("spark", "e2e", "dags", "gx")
"""Markers of the longest tests, which start first."""
CUT = "cases played until the time was over"
"""The name of the property of a report."""
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC")
IN_SPARK = "_spark.py"
"""The files whose tests share the Spark session have names that end so."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long tests first. Mark tests that loop over `seeds` or `chances` as `fuzz`, which `make fuzz` selects."""
    items.sort(key=_place)
    for item in items:
        function = getattr(item, "function", None)
        if {"seeds", "chances"} & {*getattr(getattr(function, "__code__", None), "co_names", ())}:
            item.add_marker("fuzz")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> "Generator[None, Any, None]":
    """Give each test its time for random cases, and note which tests of `make fuzz` did not play all of theirs."""
    BUDGET.start()
    if ASKED and (handle := getattr(getattr(item, "obj", None), "hypothesis", None)) is not None:
        BUDGET.limit(handle, usual=USUAL_CASES)
    outcome: Any = yield
    if BUDGET.is_cut:
        if outcome.excinfo is not None and issubclass(outcome.excinfo[0], TimeOver):
            outcome.force_result(None)
        item.user_properties.append((CUT, BUDGET.played))


def pytest_terminal_summary(terminalreporter: Any) -> None:  # noqa: ANN401 - pytest exports no type for it
    """List the tests whose time was over, with the number of cases that they played."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    cut = {
        report.nodeid: played
        for report in reports
        for name, played in getattr(report, "user_properties", ())
        if name == CUT
    }
    if cut:
        terminalreporter.section(f"{len(cut)} tests played fewer than {ASKED:,} cases in their time")
        for nodeid, played in sorted(cut.items(), key=lambda one: one[1]):
            terminalreporter.line(f"{played:>9,}  {nodeid}")


def _place(item: pytest.Item) -> int:
    return next((place for place, name in enumerate(FIRST) if item.get_closest_marker(name)), len(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:  # noqa: ANN401 - xdist's
    """Schedule several processes: one runs all tests of a file, and one runs all tests with the Spark session."""
    return OneSession(config, log)


class OneSession(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Keeps the tests of one file together, and all tests that need the Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.partition("::")[0].endswith(IN_SPARK) else nodeid.partition("::")[0]


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The one Spark session of this run: two cores, few shuffle partitions, a session zone that is not UTC.

    The jars come from HINDCAST_JARS or from what `make setup` fetched; without them the test fails, it is not skipped.
    """
    from jobs.spark.session import spark_session

    # A test runs most code of the JVM only a few times: without the optimising compiler it takes 40 % less CPU time.
    # The slow tests start whole commands, whose JVMs have the default options.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", " ".join(JVM_OPTIONS))
        session = spark_session("hindcast tests", "local[2]")
    session.conf.set("spark.sql.session.timeZone", HOSTILE_ZONE)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it writes when the interpreter has closed the output
    yield session
    session.stop()


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Path]":
    """AIRFLOW_HOME of this session; set before anything imports airflow, which reads it once."""
    home = tmp_path_factory.mktemp("airflow")
    assert "airflow" not in sys.modules, "airflow was imported before its home was set; import it inside of tests only"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(home))
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        patch.setenv("AIRFLOW__CORE__UNIT_TEST_MODE", "True")
        for name in [name for name in os.environ if name.startswith("AIRFLOW_CONN_")]:
            patch.delenv(name)
        yield home


@pytest.fixture
def rng() -> random.Random:
    """A seeded generator. A failure shows the seed; HINDCAST_SEED=<int> repeats it, =random takes a new one."""
    seed = first_seed()
    print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    return random.Random(seed)
