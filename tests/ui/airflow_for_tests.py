"""An Airflow with its own lake, in a temporary directory, for the tests of the interface."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.orchestration.embedded import airflow_service, postgres as embedded_postgres
from jobs.orchestration.embedded.airflow_env import Home
from jobs.orchestration.embedded.airflow_service import Login
from tests.support.places import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A running Airflow, its accounts and its lake."""

    login: Login
    home: Home

    def hindcast(self, *arguments: str, status: int = 0) -> str:
        """Run a command of `hindcast` on the lake that ends with an exit status, and return what it printed."""
        program = Path(sys.executable).with_name("hindcast")
        done = subprocess.run(
            [program, *arguments, "--lake", self.home.lake, "--pipelines", str(self.home.pipelines)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stdout


@contextmanager
def running_airflow(root: Path, *, pipelines: Path = ROOT / "pipelines") -> Iterator[Place]:
    """Run Airflow on `root/lake` during the body of a `with` statement."""
    home = Home(root=root / "airflow", lake=str(root / "lake"), pipelines=pipelines)
    Path(home.lake).mkdir(parents=True, exist_ok=True)
    try:
        with airflow_service.running(home, print) as login:
            yield Place(login=login, home=home)
    finally:
        embedded_postgres.remove(home.cluster)
