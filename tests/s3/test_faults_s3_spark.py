"""Whole commands over an object store: outages, kills, a canary for secrets, and every command that reads a lake."""

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.demo.flights import TABLE
from jobs.processes import session_members
from tests.support.commands import Commands, until_from
from tests.support.object_store import ACCESS_KEY, BUCKET, SECRET, SOURCE, ObjectStore
from tests.support.places import ROOT

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.e2e]

FROM, TO = "2013-02-01", "2013-02-05"
OUTAGE_S = 30
Runs = list[dict[str, object]]


@pytest.fixture
def commands() -> Iterator[Commands]:
    with Commands() as started:
        yield started


@pytest.fixture(scope="module")
def pipeline(log: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pipeline over the log in the store."""
    assert log.exists()
    text = (ROOT / "pipelines" / "flights.yaml").read_text(encoding="utf-8")
    text = text.replace(f"table: {TABLE}", f"table: {SOURCE}/{TABLE}")
    found = tmp_path_factory.mktemp("pipelines") / "flights.yaml"
    found.write_text(text, encoding="utf-8")
    return str(found)


@pytest.fixture(scope="module")
def expected(pipeline: str, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The runs of an undisturbed replay into a lake on the disk."""
    with Commands() as commands:
        lake = str(tmp_path_factory.mktemp("undisturbed"))
        found: Runs = _done(commands, "run", pipeline, *_RANGE, "--lake", lake)["runs"]
    return found


_RANGE = ("--from", FROM, "--to", TO, "--json", "--master", "local[1]")


def _done(commands: Commands, *arguments: str) -> dict[str, Any]:
    process = commands.python("-m", "jobs.cli.main", *arguments)
    out, err = process.communicate()
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def _objects(store: ObjectStore, lake: str) -> Path:
    """The directory in which the server keeps the objects of a lake."""
    return store.directory / "objects" / BUCKET / lake.rpartition("/")[2]


@pytest.mark.parametrize("moment", ["ledger", "watermarks"], ids=["before it computes", "while it writes"])
def test_a_run_survives_an_outage_of_half_a_minute(
    store: ObjectStore, lake: str, pipeline: str, commands: Commands, expected: Runs, moment: str
) -> None:
    own = f"{lake}{moment}"
    running = commands.python("-m", "jobs.cli.main", "run", pipeline, *_RANGE, "--lake", own)
    first = _objects(store, own) / "flights" / moment / "_delta_log" / f"{0:020}.json"
    until_from(running, first.exists, what=f"the table {moment} exists")
    store.kill()
    time.sleep(OUTAGE_S)
    store.start()
    out, err = running.communicate()
    assert running.returncode == 0, err
    assert json.loads(out)["runs"] == expected
    assert json.loads(out)["published"]


def test_without_a_store_the_command_fails_in_one_paragraph_and_its_retry_does_the_work(
    store: ObjectStore, lake: str, pipeline: str, commands: Commands, expected: Runs
) -> None:
    running = commands.python(
        "-m", "jobs.cli.main", "run", pipeline, *_RANGE, "--lake", lake, environ={"HINDCAST_STORAGE_RETRY": "2s"}
    )
    first = _objects(store, lake) / "flights" / "watermarks" / "_delta_log" / f"{0:020}.json"
    until_from(running, first.exists, what="the table watermarks exists")
    store.kill()
    _out, err = running.communicate()
    store.start()
    assert running.returncode == 1, err
    assert "error: " in err
    assert "bug" not in err
    assert SECRET not in err
    again = _done(commands, "run", pipeline, *_RANGE, "--lake", lake)
    assert again["runs"] == expected
    assert again["published"]
    assert _verified(commands, pipeline, lake)


def test_a_killed_driver_leaves_nothing_visible_and_what_it_left_is_cleaned(
    store: ObjectStore, lake: str, pipeline: str, commands: Commands, expected: Runs
) -> None:
    killed = commands.python("-m", "jobs.cli.main", "run", pipeline, *_RANGE, "--lake", lake)
    first = _objects(store, lake) / "flights" / "invalid_records" / "_delta_log" / f"{1:020}.json"
    until_from(killed, first.exists, what="rows are committed to invalid_records")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    shown = commands.python("-m", "jobs.cli.main", "show", pipeline, "--json", "--lake", lake)
    assert shown.communicate()[0] == ""
    again = _done(commands, "run", pipeline, *_RANGE, "--lake", lake)
    assert again["runs"] == expected
    assert again["published"]
    assert _verified(commands, pipeline, lake)
    clean = ("clean", pipeline, "--older-than", "0s", "--remove", "--json", "--lake", lake)
    left = _done(commands, *clean)
    assert len(left["condemned"]) == 1, "the killed attempt has committed rows, and was never staged"
    assert not [one for one in left["files"] if (store.directory / "objects" / one).exists()]
    assert _done(commands, *clean)["files"] == []
    assert _verified(commands, pipeline, lake)


def _verified(commands: Commands, pipeline: str, lake: str) -> bool:
    return bool(_done(commands, "verify", pipeline, "--lake", lake, "--json")["findings"] == [])


def test_no_secret_is_in_command_lines_output_or_lake(
    store: ObjectStore, lake: str, pipeline: str, commands: Commands, tmp_path: Path
) -> None:
    texts: list[str] = []
    lines: set[str] = set()
    # A small run starts no JVM. A reader with Spark does.
    read = (
        "from jobs.readers import published; from jobs.spark.session import spark_session; "
        f"print(published(spark_session('a reader', None, reads=({lake!r},)), {lake!r}, 'flights').count())"
    )
    run = ("-m", "jobs.cli.main", "run", pipeline, *_RANGE, "--lake", lake)
    for command in (run, ("-c", read)):
        running = commands.python(*command)
        while running.poll() is None:
            lines |= _command_lines(running.pid)
            time.sleep(0.1)
        texts += running.communicate()
        assert running.returncode == 0, texts
    texts += lines
    assert any("java" in line for line in lines), "the JVM was seen"
    page = tmp_path / "report.html"
    for arguments in (
        ("status", pipeline),
        ("show", pipeline),
        ("explain", pipeline, "2013-02-04-HA-51-JFK"),
        ("report", pipeline, "--output", str(page)),
        ("plan", pipeline, "--from", FROM, "--to", TO, "--explain"),
        ("verify", pipeline),
        ("rollback", pipeline, "--publication", "999", "--reason", "canary"),
        ("status", pipeline, "--lake", f"s3://no-such-bucket/{BUCKET}"),
    ):
        texts += _output(commands, [*arguments, *(() if "--lake" in arguments else ("--lake", lake))])
    wrong = {"AWS_SECRET_ACCESS_KEY": f"{SECRET}-wrong"}
    process = commands.python("-m", "jobs.cli.main", "status", pipeline, "--lake", lake, environ=wrong)
    texts += process.communicate()
    assert process.returncode == 1
    texts.append(page.read_text(encoding="utf-8"))
    assert [text for text in texts if SECRET in text] == []
    stored = [path for path in _objects(store, lake).rglob("*") if path.is_file()]
    assert len(stored) > 20
    assert [
        path for path in stored if SECRET.encode() in path.read_bytes() or ACCESS_KEY.encode() in path.read_bytes()
    ] == []


def _output(commands: Commands, arguments: Sequence[str]) -> tuple[str, str]:
    return commands.python("-m", "jobs.cli.main", *arguments).communicate()


def _command_lines(session: int) -> set[str]:
    found = set()
    for one in session_members(session):
        try:
            found.add(" ".join(psutil.Process(one.pid).cmdline()))
        except psutil.Error:
            continue
    return found


def test_every_command_takes_a_lake_in_the_store(
    store: ObjectStore, lake: str, pipeline: str, commands: Commands, tmp_path: Path
) -> None:
    run = _done(commands, "run", pipeline, *_RANGE, "--lake", lake.replace("s3:", "s3a:"))
    assert run["published"]
    verified = _output(commands, ["plan", pipeline, "--from", FROM, "--to", TO, "--verify", "--lake", lake])
    assert "4 " in verified[0]
    status = _done(commands, "status", pipeline, "--json", "--lake", lake)
    publication = status["pipelines"][0]["newest_publication"]["publication"]
    explained = _output(commands, ["explain", pipeline, "2013-02-03-HA-51-JFK", "--lake", lake])
    assert "late" in explained[0]
    report = tmp_path / "report.html"
    _output(commands, ["report", pipeline, "--output", str(report), "--lake", lake])
    assert report.stat().st_size > 10_000
    written = _output(commands, ["report", pipeline, "--lake", lake])
    assert written[0] == f"report: {lake}/reports/flights.html\n"
    assert (_objects(store, lake) / "reports" / "flights.html").read_bytes() == report.read_bytes()
    leftovers = _done(commands, "clean", pipeline, "--older-than", "0s", "--remove", "--json", "--lake", lake)
    assert (leftovers["condemned"], leftovers["removed"]) == ([], True)
    rolled = _output(
        commands, ["rollback", pipeline, "--publication", str(publication), "--reason", "a test", "--lake", lake]
    )
    assert _output(commands, ["show", pipeline, "--json", "--lake", lake])[0] == "", rolled
