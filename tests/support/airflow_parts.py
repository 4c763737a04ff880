"""The parts of an embedded Airflow: a test kills them one by one, and starts them again as a service manager does."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from jobs.orchestration.embedded import airflow_service, postgres as embedded_postgres
from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.orchestration.embedded.airflow_env import Home
from jobs.processes import ProcessRef, end_session, process
from tests.ui.airflow_for_tests import Place

PARTS = ("scheduler", "dag-processor", "triggerer", "api-server")


@dataclass(slots=True)
class AirflowParts:
    """The processes of an embedded Airflow, and those that a test has started in place of killed ones."""

    home: Home
    place: Place = field(init=False)
    _parts: dict[str, ProcessRef] = field(default_factory=dict)
    _environ: Mapping[str, str] = field(default_factory=dict)
    _again: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    _database: "subprocess.Popen[bytes] | None" = None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def up(self) -> None:
        """Start Airflow and its database, as `make up`, and find the processes of the parts."""
        self.place = Place(login=self._stack.enter_context(airflow_service.running(self.home, print)), home=self.home)
        service = airflow_service.find(self.home)
        assert service is not None
        children = psutil.Process(service.supervisor.pid).children()
        [standalone] = [child for child in children if "standalone" in child.cmdline()]
        self._environ = standalone.environ()
        for child in standalone.children():
            self._parts[next((name for name in PARTS if name in child.cmdline()), "api-server")] = _ref(child.pid)
        assert sorted(self._parts) == sorted(PARTS)

    def down(self) -> None:
        """Stop Airflow and its database, as `make down`, and what the test has started."""
        for started in self._again:
            end_session(started.pid, grace_s=5)
            started.wait()
        self._again.clear()
        self._stack.close()
        if self._database is not None:
            embedded_postgres.stop(self._database)
            self._database = None

    def kill(self, name: str) -> None:
        """Send SIGKILL to a part. Its children keep running."""
        self._parts[name].send(signal.SIGKILL)
        assert self._parts[name].wait(30)

    def workers(self) -> list[ProcessRef]:
        """Return the descendants of the scheduler: its workers, and the processes of their tasks."""
        return [_ref(child.pid) for child in psutil.Process(self._parts["scheduler"].pid).children(recursive=True)]

    def busy_worker(self) -> ProcessRef:
        """Return the worker of the only task that runs."""
        children = psutil.Process(self._parts["scheduler"].pid).children()
        titles = {child.pid: " ".join(child.cmdline()) for child in children}
        [pid] = [pid for pid, title in titles.items() if "LocalExecutor: " in title and "<idle>" not in title]
        return _ref(pid)

    def start_missing(self) -> list[str]:
        """Start each part that has ended, and return their names. The database is not among them."""
        missing = [name for name, part in self._parts.items() if not part.is_alive()]
        for name in missing:
            with (self.home.logs / f"{name}.log").open("ab") as log:
                started = subprocess.Popen(
                    ["airflow", name],
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.home.root,
                    start_new_session=True,
                )
            self._again.append(started)
            self._parts[name] = _ref(started.pid)
        return missing

    def stop_database(self) -> None:
        """Let the database close all its connections and end."""
        if self._database is not None:
            embedded_postgres.stop(self._database)
            return
        server = _ref(int((self.home.cluster.data / "postmaster.pid").read_text(encoding="utf-8").split()[0]))
        server.send(signal.SIGINT)
        assert server.wait(60)

    def start_database(self) -> None:
        self._database = embedded_postgres.start(self.home.cluster)

    @contextmanager
    def api(self) -> Iterator[AirflowApi]:
        login = self.place.login
        with AirflowApi(url=login.url, user=login.user, password=login.password) as api:
            yield api


def _ref(pid: int) -> ProcessRef:
    ref = process(pid)
    assert ref is not None
    return ref
