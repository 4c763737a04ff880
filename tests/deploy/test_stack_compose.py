"""The containers of docker-compose.yml, for real: a backfill on a two-worker Spark gives what one machine gives.

`make test-compose` runs these tests; `make test` does not. They need a container engine (`tests.deploy.stack`), 6 GB of
memory, and some minutes. Each fault has a pipeline of its own over the same log, so that each backfill starts anew.
"""

import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy import container, make_env
from jobs.review import links
from tests.deploy.backfills import (
    DAYS,
    END,
    START,
    Embedded,
    check_february,
    check_health,
    check_same_and_once,
    check_survives,
    cut_off_worker,
    load_log,
    make_place,
    until_tasks_run,
)
from tests.deploy.stack import RUN_S, START_S, EngineMissing, Stack, find_engine
from tests.support.places import ROOT

pytestmark = [pytest.mark.compose, pytest.mark.soak, pytest.mark.timeout(4 * RUN_S)]

FAULTS = ("worker_killed", "worker_cut_off", "database_restarted", "scheduler_killed")
BACKED_UP = "backed_up"
DATABASE_TOOLS = 'export PGUSER=airflow PGPASSWORD="$POSTGRES_PASSWORD" PATH="$(echo /usr/lib/postgresql/*/bin):$PATH"'
RESTORE = "createdb copy && pg_dump airflow | psql --quiet --output /dev/null copy"


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    return Embedded(make_place(tmp_path_factory.mktemp("stack"), (*FAULTS, BACKED_UP)))


@pytest.fixture(scope="module")
def stack(embedded: Embedded) -> Iterator[Stack]:
    try:
        engine = find_engine()
    except EngineMissing as error:
        pytest.fail(str(error), pytrace=False)
    with Stack(engine=engine, directory=embedded.place) as stack:
        load_log(stack)
        yield stack


def test_the_february_backfill_gives_the_runs_of_the_embedded_default(stack: Stack, embedded: Embedded) -> None:
    check_february(stack, embedded)


def test_the_review_pages_show_what_is_published_to_a_user_who_is_logged_in(stack: Stack) -> None:
    """The API server of the containers finds the plugin, the pipelines and the lake, which it cannot write."""
    url = f"http://127.0.0.1:{stack.port}"
    day = links.slice_page("flights", START)
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        assert client.get(links.overview()).status_code != HTTPStatus.OK
        login = {"username": "admin", "password": stack.values["HINDCAST_ADMIN_PASSWORD"]}
        client.headers["Authorization"] = f"Bearer {client.post('/auth/token', json=login).json()['access_token']}"
        for path, text in ((links.overview(), "flights"), (links.pipeline_page("flights"), START), (day, START)):
            answer = client.get(path)
            assert answer.status_code == HTTPStatus.OK, (path, answer.text[:2000])
            assert answer.headers["content-type"].startswith("text/html")
            assert text in answer.text
    assert "Read-only file system" in stack.inside("airflow-api", "sh", "-c", "touch /lake/x 2>&1 || true")


def test_the_tasks_ran_on_both_workers_with_the_drivers_code(stack: Stack) -> None:
    """`compose.test.yml` hides the packages from the workers, so the tasks had the archive that the driver sent."""
    for number in (1, 2):
        files = stack.inside("spark-worker", "find", "/opt/hindcast/jobs", "/opt/hindcast/windowlib", number=number)
        assert files.split() == ["/opt/hindcast/jobs", "/opt/hindcast/windowlib"]
    logs = [stack.log("spark-worker", number) for number in (1, 2)]
    assert all("Launching" in log or "Asked to launch executor" in log for log in logs)


@pytest.mark.parametrize(
    ("pipeline", "fault"),
    [
        ("worker_killed", lambda stack: stack.kill("spark-worker", 2)),
        ("worker_cut_off", cut_off_worker),
        ("database_restarted", lambda stack: stack.restart("postgres")),
        ("scheduler_killed", lambda stack: stack.kill("airflow-scheduler")),
    ],
    ids=FAULTS,
)
def test_a_fault_in_the_middle_changes_no_digest_and_doubles_nothing(
    stack: Stack, embedded: Embedded, pipeline: str, fault: Callable[[Stack], None]
) -> None:
    check_survives(stack, pipeline, fault, wanted=lambda: embedded.runs(pipeline))


def test_a_backup_made_during_a_replay_is_whole_and_continues_to_the_same_runs(
    stack: Stack, embedded: Embedded
) -> None:
    """The drill of docs/how-to/deployment.md: back up during a backfill, restore elsewhere, verify, run again."""
    dag_run = stack.start_backfill(BACKED_UP, START, END)
    until_tasks_run(stack, BACKED_UP, dag_run)
    stack.inside("airflow-scheduler", "back-up-lake", "/lake", "/scratch/backup")
    for pipeline in ("flights", BACKED_UP):
        stack.inside("airflow-scheduler", "hindcast", "verify", pipeline, "--lake", "/scratch/backup")
    assert stack.finish(BACKED_UP, dag_run) == "success"
    wanted = embedded.runs(BACKED_UP)
    check_same_and_once(stack, BACKED_UP, wanted)
    again = ["hindcast", "run", BACKED_UP, "--from", START, "--to", END, "--lake", "/scratch/backup"]
    stack.inside("airflow-scheduler", *again, "--master", "local[2]")
    assert stack.staged(BACKED_UP, lake="/scratch/backup") == wanted
    runs = "psql --tuples-only --no-align --command 'select count(*) from dag_run'"
    copied = stack.inside("postgres", "bash", "-c", f"{DATABASE_TOOLS}; {RESTORE}; {runs} copy; {runs} airflow").split()
    assert copied[0] == copied[1] != "0"


def test_every_part_passes_its_own_health_check_after_the_faults(stack: Stack) -> None:
    check_health(stack)


@pytest.mark.parametrize("part", [*container.PARTS])
def test_a_part_has_no_rights_and_writes_in_its_volumes_only(stack: Stack, part: str) -> None:
    look = "id -u; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status; touch /opt/hindcast/x 2>&1 || true"
    user, capabilities, new_rights, written = stack.inside(part, "sh", "-c", look).splitlines()
    assert user == "10001"
    assert int(capabilities.split()[1], base=16) == 0
    assert new_rights.split()[1] == "1"
    assert "Read-only file system" in written
    limit = int(stack.inspected(stack.container(part), "{{.HostConfig.Memory}}"))
    assert 2**29 <= limit <= 6 * 2**30


def test_the_image_has_no_compiler_no_installer_and_no_test_package(stack: Stack) -> None:
    programs = "for one in cc gcc javac pip uv pytest; do command -v $one; done; true"
    assert stack.inside("airflow-scheduler", "sh", "-c", programs) == ""
    packages = (
        "import importlib.util as u; print([n for n in ('hypothesis', 'mypy', 'pip', 'pytest') if u.find_spec(n)])"
    )
    assert stack.inside("airflow-scheduler", "python", "-c", packages) == "[]\n"


def test_each_fixed_port_that_a_part_listens_on_is_in_the_table_of_the_docs(stack: Stack) -> None:
    [table] = re.findall(
        r"\| port \| of .*?\n\n", (ROOT / "docs" / "how-to" / "deployment.md").read_text("utf-8"), re.DOTALL
    )
    listed = {int(port) for row in table.splitlines() for port in re.findall(r"\d{4}", "".join(row.split("|")[1:2]))}
    found = {port for part in ("postgres", *container.PARTS) for port in _listened(stack, part)}
    assert found
    assert found <= listed


def _listened(stack: Stack, part: str) -> set[int]:
    """Return the ports below Linux's range of ports for any purpose, on which a process of a container listens."""
    lines = stack.inside(part, "cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()
    states = [line.split()[1:4] for line in lines]
    ports = {int(local.rpartition(":")[2], base=16) for local, _, state in states if state == "0A"}
    return {port for port in ports if port < 32_768}


def test_the_metrics_of_the_lake_are_gauges_of_prometheus(stack: Stack) -> None:
    text = stack.inside("airflow-scheduler", "hindcast", "metrics", "flights")
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    [published] = found["hindcast_published_slices"]
    assert published.value == DAYS
    assert [one.value for one in found["hindcast_readable"]] == [1.0]


def test_a_worker_with_another_secret_is_refused(stack: Stack) -> None:
    """Its replays would read the lake. The master closes the connection, and the worker gives up."""
    start = "timeout 45 spark-class org.apache.spark.deploy.worker.Worker --webui-port 0 spark://spark-master:7077"
    conf = "mkdir -p /tmp/wrong && sed 's/^\\(spark.authenticate.secret\\) .*/\\1 wrong/' $SPARK_CONF_DIR/*.conf"
    script = f"{conf} > /tmp/wrong/spark-defaults.conf; SPARK_CONF_DIR=/tmp/wrong {start} 2>&1 || true"
    printed = stack.inside("spark-worker", "sh", "-c", script)
    assert "Connecting to master spark-master" in printed
    assert "Successfully registered with master" not in printed


def test_a_worker_is_added_while_the_others_run(stack: Stack) -> None:
    before = stack.containers()
    stack.scale(3)
    stack.until(
        lambda: "Successfully registered with master" in stack.log("spark-worker", 3),
        what="the third worker",
        patience_s=START_S,
    )
    assert set(before) < set(stack.containers())


def test_a_missing_secret_stops_compose_with_its_name(stack: Stack, tmp_path: Path) -> None:
    for name in sorted(setting.name for setting in make_env.SETTINGS if setting.secret is not None):
        file = tmp_path / f"{name}.env"
        lines = [f"{one}={value}" for one, value in stack.values.items() if one != name]
        file.write_text("\n".join(lines), encoding="utf-8")
        assert name in stack.refusal("--env-file", str(file), "-f", str(ROOT / "docker-compose.yml"), "config")


def test_no_secret_is_in_the_image_a_log_a_command_line_or_the_lake(stack: Stack) -> None:
    """The settings hold new secrets for this test. They reach a container as its environment, and nothing else."""
    secrets = [value for name, value in stack.values.items() if re.search(r"PASSWORD|SECRET|KEY", name) and value]
    assert len(secrets) >= 6
    for name in stack.containers():
        seen = stack.log_of(name) + stack.processes_of(name)
        assert not [secret for secret in secrets if secret in seen], name
    tasks = stack.inside("airflow-scheduler", "sh", "-c", "find /logs -type f -exec cat {} +")
    assert not [secret for secret in secrets if secret in tasks]
    image = stack.image_description("hindcast:local")
    assert not [secret for secret in secrets if secret in image]
    patterns = [text for secret in secrets for text in ("-e", secret)]
    assert stack.inside("airflow-scheduler", "grep", "-rlF", *patterns, "/lake", check=False) == ""
