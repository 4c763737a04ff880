"""The containers of docker-compose.yml with the profile `s3`: the lake and the log are in an object store.

`make test-compose` runs these tests. The store is a container, and it ends or hangs for half a minute.
A worker is cut off from the driver, the master and the store at once.
"""

import re
import secrets
from collections.abc import Callable, Iterator

import pytest

from tests.deploy.backfills import (
    Embedded,
    check_february,
    check_health,
    check_survives,
    cut_off_worker,
    load_log,
    make_place,
)
from tests.deploy.stack import RUN_S, EngineMissing, Stack, find_engine

pytestmark = [pytest.mark.compose, pytest.mark.soak, pytest.mark.timeout(4 * RUN_S)]

FAULTS = ("store_stopped", "store_frozen", "worker_cut_off")
OUTAGE_S = 30
ACCESS_KEY = "canarykey"


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    return Embedded(make_place(tmp_path_factory.mktemp("stack"), FAULTS))


@pytest.fixture(scope="module")
def stack(embedded: Embedded) -> Iterator[Stack]:
    try:
        engine = find_engine()
    except EngineMissing as error:
        pytest.fail(str(error), pytrace=False)
    settings = {
        "HINDCAST_LAKE": "s3://lake/hindcast",
        "AWS_ENDPOINT_URL": "http://object-store:7070",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16),
        "S3_JARS": "yes",
    }
    with Stack(engine=engine, directory=embedded.place, settings=settings, profiles=["s3"]) as stack:
        load_log(stack)
        yield stack


def test_the_february_backfill_gives_the_runs_of_the_embedded_default(stack: Stack, embedded: Embedded) -> None:
    check_february(stack, embedded)


def test_lake_and_log_are_in_the_store_only(stack: Stack) -> None:
    stored = stack.inside("object-store", "ls", "/objects/lake/hindcast").split()
    assert {"event_logs", "flights"} <= set(stored)
    assert stack.inside("spark-worker", "ls", "/lake").split() == []


@pytest.mark.parametrize(
    ("pipeline", "fault"),
    [
        ("store_stopped", lambda stack: stack.stop_for("object-store", OUTAGE_S)),
        ("store_frozen", lambda stack: stack.freeze_for("object-store", OUTAGE_S)),
        ("worker_cut_off", cut_off_worker),
    ],
    ids=FAULTS,
)
def test_a_fault_in_the_middle_changes_no_digest_and_doubles_nothing(
    stack: Stack, embedded: Embedded, pipeline: str, fault: Callable[[Stack], None]
) -> None:
    check_survives(stack, pipeline, fault, wanted=lambda: embedded.runs(pipeline))


def test_every_part_passes_its_own_health_check_after_the_faults(stack: Stack) -> None:
    check_health(stack)


def test_no_credential_of_the_store_is_in_a_log_a_command_line_or_the_lake(stack: Stack) -> None:
    secret = stack.values["AWS_SECRET_ACCESS_KEY"]
    for name in stack.containers():
        assert secret not in stack.log_of(name) + stack.processes_of(name), name
    tasks = stack.inside("airflow-scheduler", "sh", "-c", "find /logs -type f -exec cat {} +")
    assert secret not in tasks
    assert not re.search(rf"{ACCESS_KEY}|{secret}", stack.image_description("hindcast:local"))
    found = stack.inside("object-store", "grep", "-rlE", f"{ACCESS_KEY}|{secret}", "/objects", check=False)
    assert found == ""
