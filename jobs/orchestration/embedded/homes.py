"""The embedded Airflows of a clone: its own, and one for each demonstration. At most one of them runs."""

import os
from dataclasses import replace
from pathlib import Path

from jobs.lake.lake import Lake
from jobs.orchestration.embedded import airflow_service
from jobs.orchestration.embedded.airflow_env import Home
from jobs.pipeline.files import lasting
from jobs.project import HOME, PIPELINES, demo_directories, demo_in_use
from jobs.storage import is_remote
from windowlib.errors import RequestError


def demo_home(directory: Path) -> Home:
    """Return the Airflow of the demonstration in a directory. It has the pipelines of the clone."""
    return Home(root=directory / "airflow", lake=str(directory / "lake"), pipelines=PIPELINES, is_demo=True)


def own_home() -> Home:
    """Return the Airflow of this clone: its state is in .hindcast/airflow, its lake is that of HINDCAST_LAKE."""
    lake = Lake(root=os.environ.get("HINDCAST_LAKE") or str(HOME / "lake")).root
    return Home(
        root=HOME / "airflow",
        lake=lake if is_remote(lake) else str(Path(lake).resolve()),  # tasks run in another directory
        pipelines=_pipelines(),
    )


def chosen_home() -> Home:
    """Return the Airflow that `make up` starts: that of the demonstration whose lake commands use, else the own one."""
    demo = None if os.environ.get("HINDCAST_LAKE") else demo_in_use()
    return own_home() if demo is None else replace(demo_home(demo), pipelines=_pipelines())


def all_homes() -> tuple[Home, ...]:
    """Return the Airflows of this clone, which may have no files yet."""
    return (own_home(), *map(demo_home, [*demo_directories(), *demo_directories("year")]))


def refuse_second(home: Home | None = None) -> None:
    """Refuse to start an Airflow, this one or a new one, while another one of this clone runs.

    Raises RequestError: another one runs. The message has its address and its lake.
    """
    others = (airflow_service.find(other) for other in all_homes() if home is None or other.root != home.root)
    running = next((other for other in others if other is not None and other.supervisor.is_alive()), None)
    if running is not None:
        raise RequestError(
            f"another Airflow of this clone is {running.phase} at {running.url}, on the lake {running.lake}; "
            "`make down` stops it"
        )


def _pipelines() -> Path:
    return lasting(Path(os.environ.get("HINDCAST_PIPELINES") or PIPELINES))
