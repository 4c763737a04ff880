"""The supervisor process of the embedded Airflow: it starts the database and Airflow, and stops both when it ends.

`python -m jobs.orchestration.embedded.airflow_supervisor HOME_JSON` runs until a signal (INT, TERM, HUP) or until
Airflow ends. With `--until-stdin-ends` it also stops at the end of its standard input. So a caller that passes a pipe
stops it even if the caller is killed with `kill -9`. If the supervisor itself is killed, Airflow and the database get
their death signal. The supervisor writes its progress and its failure to the service file, which
`jobs.orchestration.embedded.airflow_service` reads.
"""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType

import httpx

from jobs.orchestration.embedded import postgres as embedded_postgres
from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.orchestration.embedded.airflow_env import (
    POOLS,
    USER,
    Home,
    Ports,
    airflow_environment,
    free_ports,
    prepare_home,
    write_private,
)
from jobs.plain_text import EscapingFormatter
from jobs.processes import end_session, process
from windowlib.errors import HindcastError

log = logging.getLogger(__name__)

HEALTH_TIMEOUT_S = 1200
STOP_TIMEOUT_S = 20
COMMAND_TIMEOUT_S = 1200
_POLL_S = 0.5
_HEALTH = "/api/v2/monitor/health"
_COMPONENTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")


class AirflowFailed(HindcastError):  # noqa: N818
    """A part of the embedded Airflow did not start, or ended by itself. The message names the log with the reason."""


class StopAskedFor(Exception):  # noqa: N818
    """A signal came, or the standard input ended."""


@dataclass(slots=True)
class Supervisor:
    """Starts the parts one after the other, and holds the processes that it has to stop."""

    home: Home
    until_stdin_ends: bool
    database: subprocess.Popen[bytes] | None = None
    airflow: subprocess.Popen[bytes] | None = None
    ports: Ports = field(default_factory=free_ports)

    def run(self) -> None:
        """Start the database and Airflow, wait until one of them ends or a stop is requested, and stop both.

        Raises:
            AirflowFailed: a part did not start, or Airflow ended by itself.
            AirflowRefused: Airflow makes no pool.
            DatabaseFailed: the database did not start.
        """
        try:
            self._tell("starting the database")
            self.database = embedded_postgres.start(self.home.cluster)
            known = prepare_home(self.home)
            environ = airflow_environment(
                self.home, ports=self.ports, known=known, database_url=self.home.cluster.url()
            )
            self._tell("making Airflow's tables")
            self._migrate(environ)
            self._tell("starting Airflow")
            # In its own session, so that `end_session` finds all its processes.
            self.airflow = self._started(environ, "standalone", death_signal="INT", log="airflow", own_session=True)
            self._wait_until_healthy()
            # A task waits until its pool exists.
            with AirflowApi(url=self.ports.url, user=USER, password=known.password) as api:
                for name, description in POOLS.items():
                    api.add_pool(name, description)
            self._tell("running")
            self._wait_for_the_end()
        except StopAskedFor as reason:
            log.info("stopping: %s", reason)
        finally:
            _ignore_signals()
            self._tell("stopping")
            self._stop()

    def _migrate(self, environ: Mapping[str, str]) -> None:
        """Make or renew Airflow's tables. A request to stop ends it."""
        running = self._started(environ, "db", "migrate", death_signal="KILL", log="db-migrate")
        try:
            deadline = time.monotonic() + COMMAND_TIMEOUT_S
            while running.poll() is None and time.monotonic() < deadline:
                self._listen()
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
        if running.returncode:
            raise AirflowFailed(
                f"`airflow db migrate` ended with status {running.returncode}; its messages are in "
                f"{self.home.logs / 'db-migrate.log'}"
            )

    def _started(
        self, environ: Mapping[str, str], *arguments: str, death_signal: str, log: str, own_session: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start an `airflow` command, which gets a signal when this process ends. Its messages go to a file."""
        command = ["setpriv", "--pdeathsig", death_signal, environ["HINDCAST_AIRFLOW"], *arguments]
        with (self.home.logs / f"{log}.log").open("wb") as out:
            return subprocess.Popen(  # noqa: S603
                command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.home.root,
                start_new_session=own_session,
            )  # fmt: skip

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + HEALTH_TIMEOUT_S
        while sick := _sick_components(self.ports.url):
            self._check_airflow()
            if time.monotonic() > deadline:
                raise AirflowFailed(
                    f"Airflow is not healthy after {HEALTH_TIMEOUT_S} s (missing: {', '.join(sick)}); "
                    f"its messages are in {self.home.logs / 'airflow.log'}"
                )
            self._listen()

    def _wait_for_the_end(self) -> None:
        while True:
            self._check_airflow()
            self._listen()

    def _listen(self) -> None:
        """Wait for `_POLL_S`. Raises StopAskedFor when the standard input ends; a signal handler raises it, too."""
        if not self.until_stdin_ends:
            time.sleep(_POLL_S)
            return
        readable, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            raise StopAskedFor("the standard input ended: the process that started this Airflow has ended")

    def _check_airflow(self) -> None:
        if self.airflow is not None and self.airflow.poll() is not None:
            raise AirflowFailed(
                f"Airflow ended by itself with status {self.airflow.returncode}; "
                f"its messages are in {self.home.logs / 'airflow.log'}"
            )

    def _stop(self) -> None:
        """Stop Airflow with SIGINT, the only signal it handles, then the rest of its session, then the database."""
        if self.airflow is not None:
            if self.airflow.poll() is None:
                self.airflow.send_signal(signal.SIGINT)
                try:
                    self.airflow.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    log.warning("Airflow did not stop within %d s after SIGINT", STOP_TIMEOUT_S)
            left_over = end_session(self.airflow.pid, grace_s=5)
            self.airflow.wait()
            log.info("Airflow stopped; %d processes of its session got SIGTERM", left_over)
        if self.database is not None:
            embedded_postgres.stop(self.database)
            log.info("database stopped")

    def _tell(self, phase: str) -> None:
        log.info("%s", phase)
        write_service_file(self.home, {"phase": phase, "url": self.ports.url})


def write_service_file(home: Home, fields: Mapping[str, object]) -> None:
    """Write fields and the identity of this process. Mode 0600, because readers send signals to that process."""
    me = process(os.getpid())
    if me is None:
        raise AirflowFailed("/proc cannot be read, and Hindcast needs it to identify its processes; mount it")
    identity = {"pid": me.pid, "start_ticks": me.start_ticks, "lake": home.lake}
    write_private(home.service_file, json.dumps(identity | dict(fields)))


def _sick_components(url: str) -> list[str]:
    """Return the components that are not `healthy`: all of them if Airflow does not answer."""
    try:
        answer = httpx.get(url + _HEALTH, timeout=5, trust_env=False).raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return list(_COMPONENTS)
    return [name for name in _COMPONENTS if (answer.get(name) or {}).get("status") != "healthy"]


def _stop_on_signal(number: int, _frame: FrameType | None) -> None:
    raise StopAskedFor(signal.Signals(number).name)


def _ignore_signals() -> None:
    """Ignore signals while stopping, so that a second ctrl-C leaves no process running."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def main() -> int:
    """Run until a stop is requested. Return 0, or 1 with the error in the service file and the log."""
    home = Home.from_json(sys.argv[1])
    prepare_home(home)
    handler = logging.FileHandler(home.logs / "supervisor.log")
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop_on_signal)
    supervisor = Supervisor(home=home, until_stdin_ends="--until-stdin-ends" in sys.argv[2:])
    try:
        supervisor.run()
    except HindcastError as error:
        log.exception("failed")
        write_service_file(home, {"phase": "failed", "url": supervisor.ports.url, "error": str(error)})
        return 1
    home.service_file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
