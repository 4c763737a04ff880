"""The embedded database: private, on a socket, with a password. It stops with its starter."""

import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs.orchestration.embedded import postgres as embedded_postgres, server_user
from jobs.orchestration.embedded.postgres import Cluster, DatabaseFailed

START_AND_DIE = """
import os, signal, sys
from pathlib import Path
from jobs.orchestration.embedded import postgres as embedded_postgres
from jobs.orchestration.embedded import server_user
cluster = embedded_postgres.cluster_for(Path(sys.argv[1]), Path(sys.argv[2]))
print(embedded_postgres.start(cluster).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = embedded_postgres.cluster_for(tmp_path / "postgres", tmp_path / "postgres.log")
    yield cluster
    embedded_postgres.remove(cluster)


def test_the_database_keeps_rows_and_requires_the_password(cluster: Cluster) -> None:
    import psycopg2

    parents = {path: path.stat().st_mode for path in (cluster.log.parent, *cluster.log.parents)}
    server = embedded_postgres.start(cluster)
    try:
        assert stat.S_IMODE(cluster.root.stat().st_mode) == 0o700
        assert stat.S_IMODE(cluster.password_file.stat().st_mode) == 0o600
        where = {"host": str(cluster.socket_directory), "user": "airflow", "dbname": "postgres"}
        with pytest.raises(psycopg2.OperationalError, match="password"):
            psycopg2.connect(**where)
        with psycopg2.connect(cluster.url().replace("+psycopg2", "")) as connection, connection.cursor() as cursor:
            cursor.execute("create table kept as select 42 as answer")
        connection.close()
    finally:
        embedded_postgres.stop(server)
    server = embedded_postgres.start(cluster)
    try:
        with psycopg2.connect(cluster.url().replace("+psycopg2", "")) as connection, connection.cursor() as cursor:
            cursor.execute("select answer from kept")
            assert cursor.fetchone() == (42,)
        connection.close()
    finally:
        embedded_postgres.stop(server)
    assert server.returncode == 0
    assert {path: path.stat().st_mode for path in parents} == parents, "no mode of any parent was changed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_the_binaries_are_copied_if_the_servers_user_cannot_read_the_clone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Path(tempfile.mkdtemp(dir="/var/tmp"))
    state.chmod(0o755)
    monkeypatch.setattr(embedded_postgres, "_ROOT_STATE", state)
    monkeypatch.setattr(embedded_postgres, "_reachable", lambda binary, _owner: binary.is_relative_to(state))
    try:
        server = embedded_postgres.start(cluster)
        executable = Path(psutil.Process(server.pid).exe())
        embedded_postgres.stop(server)
        assert executable.is_relative_to(state)
        assert server.returncode == 0
    finally:
        shutil.rmtree(state)


def _user_and_group_ids(server: "subprocess.Popen[bytes]") -> set[int]:
    """Return the real, effective and saved ids of users and groups."""
    process = psutil.Process(server.pid)
    return {*process.uids(), *process.gids()}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_root_runs_each_cluster_with_its_own_user_id(cluster: Cluster, tmp_path: Path) -> None:
    other = embedded_postgres.cluster_for(tmp_path / "other", tmp_path / "other.log")
    embedded_postgres.stop(embedded_postgres.start(cluster))
    nobody = pwd.getpwnam("nobody")
    server_user.hand_over(cluster.root, server_user.Owner(nobody.pw_uid, nobody.pw_gid))  # as an older Hindcast left it
    found = []
    servers = []
    try:
        for one in (cluster, other):
            servers.append(embedded_postgres.start(one))
            uid = one.root.stat().st_uid
            assert _user_and_group_ids(servers[-1]) == {uid}
            assert uid in server_user.UIDS
            with pytest.raises(KeyError):
                pwd.getpwuid(uid)
            owners = {path.lstat().st_uid for path in one.root.rglob("*")}
            assert owners == {uid}
            found.append(uid)
    finally:
        for server in servers:
            embedded_postgres.stop(server)
        embedded_postgres.remove(other)
    assert found[0] != found[1]
    assert server_user.owner_of(cluster.root, among=cluster.root.parent).uid == found[0], "the next start finds it"


@pytest.mark.skipif(os.geteuid() == 0, reason="anybody else runs the server themselves")
def test_without_root_the_invoking_user_runs_the_server(cluster: Cluster) -> None:
    server = embedded_postgres.start(cluster)
    embedded_postgres.stop(server)
    assert cluster.root.stat().st_uid == os.geteuid()


def test_the_server_stops_when_its_starter_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-c", START_AND_DIE, str(tmp_path / "postgres"), str(cluster.log)]
    starter = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    server = int(starter.stdout)
    while psutil.pid_exists(server):  # the time-out of the test limits the wait
        time.sleep(0.1)
    assert "received fast shutdown request" in cluster.log.read_text(encoding="utf-8")


def test_a_start_that_was_stopped_in_initdb_is_repeated(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program writes PG_VERSION first, so the file does not show that the directory is complete."""

    def stopped(command: list[str | Path], **_options: object) -> None:
        directory = Path(command[command.index("-D") + 1])
        directory.mkdir()
        (directory / "PG_VERSION").write_text("18\n", encoding="utf-8")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("jobs.orchestration.embedded.postgres.subprocess.run", stopped)
        patched.setattr(embedded_postgres, "_binaries", lambda _owner: Path("bin"))
        with pytest.raises(KeyboardInterrupt):
            embedded_postgres.start(cluster)
    embedded_postgres.stop(embedded_postgres.start(cluster))
    assert not cluster.unfinished_data.exists()


def test_a_failed_start_names_the_log(cluster: Cluster) -> None:
    embedded_postgres.stop(embedded_postgres.start(cluster))
    (cluster.data / "postgresql.conf").write_text("no_such_setting = 1\n", encoding="utf-8")
    with pytest.raises(DatabaseFailed, match=str(cluster.log)):
        embedded_postgres.start(cluster)
    assert "no_such_setting" in cluster.log.read_text(encoding="utf-8")


def test_a_socket_has_a_short_name(tmp_path: Path) -> None:
    deep = Cluster(root=tmp_path / ("x" * 120), log=tmp_path / "log")
    name = os.fsencode(deep.socket_directory / ".s.PGSQL.5432")
    assert deep.socket_directory != deep.root
    assert len(name) < 108
    with socket.socket(socket.AF_UNIX) as probe:
        deep.socket_directory.mkdir(exist_ok=True)
        try:
            probe.bind(name)
        finally:
            embedded_postgres.remove(deep)
