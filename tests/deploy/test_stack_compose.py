"""The containers of docker-compose.yml, for real: a backfill on a two-worker Spark gives what one machine gives.

`make test-compose` runs these tests; `make test` does not. They need a container engine (`tests.deploy.stack`), 6 GB of
memory, and some minutes. Each fault has a pipeline of its own over the same log, so that each backfill starts anew.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import make_env
from tests.deploy.ledger_runs import runs
from tests.deploy.stack import EngineMissing, Stack, find_engine
from tests.support.commands import Commands
from tests.support.places import ROOT

pytestmark = [pytest.mark.compose, pytest.mark.soak, pytest.mark.timeout(3600)]

START, END = "2013-02-01", "2013-02-15"
DAYS = 14
STORMY = ("2013-02-08", "2013-02-09")
"""The days of a blizzard: the suite of `flights` fails for them, in a container as elsewhere."""
HINDCAST = "import sys; from jobs.cli.main import main; sys.exit(main())"
FAULTS = ("worker_killed", "database_restarted", "scheduler_killed")
BACKED_UP = "backed_up"
DATABASE_TOOLS = (
    'export PGHOST=/tmp PGUSER=airflow PGPASSWORD="$POSTGRES_PASSWORD" PATH="$(echo /usr/lib/postgresql/*/bin):$PATH"'
)
RESTORE = "createdb copy && pg_dump airflow | psql --quiet --output /dev/null copy"


def write_pipelines(directory: Path) -> Path:
    """Write `flights.yaml` as it is in the clone, and for each other test a copy without checks and schedule."""
    directory.mkdir()
    text = (ROOT / "pipelines" / "flights.yaml").read_text(encoding="utf-8")
    (directory / "flights.yaml").write_text(text, encoding="utf-8")
    for name in (*FAULTS, BACKED_UP):
        spec = yaml.safe_load(text) | {"pipeline": name}
        del spec["quality"], spec["schedule"]
        (directory / f"{name}.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    directory.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stack")
    write_pipelines(directory / "pipelines")
    (directory / "empty").mkdir(mode=0o755)
    return directory


@pytest.fixture(scope="module")
def stack(place: Path) -> Iterator[Stack]:
    try:
        engine = find_engine()
    except EngineMissing as error:
        pytest.fail(str(error), pytrace=False)
    with Stack(engine=engine, directory=place) as stack:
        # The log is the same wherever it is loaded. Fourteen small commits take minutes on a cluster.
        stack.inside(
            "airflow-scheduler", "hindcast", "load-flights", "--from", START, "--to", END, "--master", "local[2]"
        )
        yield stack


@pytest.fixture(scope="module")
def expected(place: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Return a function: the runs of a pipeline on this machine, by the command line, without containers."""
    lake = place / "lake"
    span = ["--from", START, "--to", END]

    def hindcast(*arguments: str) -> int:
        with Commands() as commands:
            process = commands.python(
                "-c",
                HINDCAST,
                *arguments,
                "--lake",
                str(lake),
                environ={"HINDCAST_PIPELINES": str(place / "pipelines")},
            )
            process.communicate()
            return process.returncode

    assert hindcast("load-flights", *span) == 0

    def expected(pipeline: str) -> list[dict[str, Any]]:
        hindcast("run", pipeline, *span)
        return runs(str(lake), pipeline)

    return expected


def test_the_february_backfill_gives_the_runs_of_the_embedded_default(
    stack: Stack, expected: Callable[[str], list[dict[str, Any]]]
) -> None:
    """The blizzard's checks fail, so nothing is published until a person waives them and publishes."""
    dag_run = stack.start_backfill("flights", START, END)
    assert stack.finish("flights", dag_run) == "failed"
    states = stack.task_states("flights", dag_run)
    assert (states["replay"], states["gate"]) == ("success", "failed")
    wanted, found = expected("flights"), stack.staged("flights")
    assert len(found) == DAYS
    assert found == wanted
    assert {one["slice"] for one in found if one["verdict"] == "fail"} == set(STORMY)
    assert not any(one["is_published"] for one in found)
    for day in STORMY:
        stack.inside("airflow-scheduler", "hindcast", "waive", "flights", day, "--reason", "a blizzard")
    stack.inside("airflow-scheduler", "hindcast", "publish", "flights")
    assert all(one["is_published"] for one in stack.staged("flights"))
    stack.inside("airflow-scheduler", "hindcast", "verify", "flights")


def test_the_tasks_ran_on_both_workers_with_the_drivers_code(stack: Stack) -> None:
    """`compose.test.yml` hides the packages from the workers, so the tasks had the archive that the driver sent."""
    for number in (1, 2):
        files = stack.inside("spark-worker", "find", "/opt/hindcast/jobs", "/opt/hindcast/windowlib", number=number)
        assert files.split() == ["/opt/hindcast/jobs", "/opt/hindcast/windowlib"]
    logs = [stack.log("spark-worker", number) for number in (1, 2)]
    assert all("Launching" in log or "Asked to launch executor" in log for log in logs)


def _during_the_replay(stack: Stack, pipeline: str, dag_run: str) -> None:
    """Wait until executors run the tasks of a DAG run's replay."""

    def tasks_run() -> bool:
        state = stack.task_states(pipeline, dag_run).get("replay")
        assert state not in {"success", "failed"}, "the replay was over before the fault"
        return state == "running" and any("pyspark.daemon" in stack.processes("spark-worker", one) for one in (1, 2))

    stack.until(tasks_run, what="the tasks of the replay", patience_s=900, pause_s=0.2)


def _same_and_once(stack: Stack, pipeline: str, wanted: list[dict[str, Any]]) -> None:
    """Check that the runs are those of one machine, published, and that no stored row is missing or doubled."""
    found = stack.staged(pipeline)
    assert len(found) == DAYS
    assert found == wanted
    assert all(one["is_published"] for one in found)
    stack.inside("airflow-scheduler", "hindcast", "verify", pipeline)


@pytest.mark.parametrize(
    ("pipeline", "fault"),
    [
        ("worker_killed", lambda stack: stack.kill("spark-worker", 2)),
        ("database_restarted", lambda stack: stack.restart("postgres")),
        ("scheduler_killed", lambda stack: stack.kill("airflow-scheduler")),
    ],
    ids=FAULTS,
)
def test_a_fault_in_the_middle_changes_no_digest_and_doubles_nothing(
    stack: Stack,
    expected: Callable[[str], list[dict[str, Any]]],
    pipeline: str,
    fault: Callable[[Stack], None],
) -> None:
    dag_run = stack.start_backfill(pipeline, START, END)
    _during_the_replay(stack, pipeline, dag_run)
    fault(stack)
    assert stack.finish(pipeline, dag_run) == "success"
    _same_and_once(stack, pipeline, expected(pipeline))


def test_a_backup_made_during_a_replay_is_whole_and_continues_to_the_same_runs(
    stack: Stack, expected: Callable[[str], list[dict[str, Any]]]
) -> None:
    """The drill of docs/DEPLOYMENT.md: back up while a backfill runs, restore elsewhere, verify, and run again."""
    dag_run = stack.start_backfill(BACKED_UP, START, END)
    _during_the_replay(stack, BACKED_UP, dag_run)
    stack.inside("airflow-scheduler", "back-up-lake", "/lake", "/scratch/backup")
    for pipeline in ("flights", BACKED_UP):
        stack.inside("airflow-scheduler", "hindcast", "verify", pipeline, "--lake", "/scratch/backup")
    assert stack.finish(BACKED_UP, dag_run) == "success"
    wanted = expected(BACKED_UP)
    _same_and_once(stack, BACKED_UP, wanted)
    again = ["hindcast", "run", BACKED_UP, "--from", START, "--to", END, "--lake", "/scratch/backup"]
    stack.inside("airflow-scheduler", *again, "--master", "local[2]")
    assert stack.staged(BACKED_UP, lake="/scratch/backup") == wanted
    runs = "psql --tuples-only --no-align --command 'select count(*) from dag_run'"
    copied = stack.inside("postgres", "bash", "-c", f"{DATABASE_TOOLS}; {RESTORE}; {runs} copy; {runs} airflow").split()
    assert copied[0] == copied[1] != "0"


def test_a_missing_secret_stops_compose_with_its_name(stack: Stack, tmp_path: Path) -> None:
    for name in sorted(setting.name for setting in make_env.SETTINGS if setting.secret is not None):
        file = tmp_path / f"{name}.env"
        lines = [f"{one}={value}" for one, value in stack.values.items() if one != name]
        file.write_text("\n".join(lines), encoding="utf-8")
        assert name in stack.refusal("--env-file", str(file), "-f", str(ROOT / "docker-compose.yml"), "config")


def test_no_secret_is_in_the_image_a_log_or_a_command_line(stack: Stack) -> None:
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
