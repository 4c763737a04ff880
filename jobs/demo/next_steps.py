"""The last lines of a demonstration: what to do next, in a browser and in a shell."""

import os
from collections.abc import Sequence
from pathlib import Path

from jobs.demo.stage import LIVE_PIPELINE, PIPELINE, SECOND_PIPELINE, Stage, shown
from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.orchestration.embedded.airflow_env import HOST, PREFERRED_PORT
from jobs.project import demo_in_use
from jobs.review import links

SETTINGS = ("HINDCAST_LAKE", "HINDCAST_PIPELINES", "HINDCAST_EXPECTATIONS")


def take_settings() -> list[str]:
    """Remove the settings that name other places than those of a demonstration, and return the names of those found."""
    return [name for name in SETTINGS if os.environ.pop(name, None) is not None]


def settings_lines(stage: Stage, settings: Sequence[str]) -> list[str]:
    """Return the shell lines after which commands use the lake of the demonstration.

    `settings` are the names that the shell has set, as `take_settings` returns them.
    """
    lines = [f"unset {' '.join(settings)}   # this shell names other places"] if settings else []
    if demo_in_use() != stage.directory:
        lines.append(f"export HINDCAST_LAKE={shown(Path(stage.lake.root))}   # else commands use another lake")
    return lines


def tell_next_steps(
    stage: Stage, request_id: str, *, login: AirflowApi, stays: bool, settings: Sequence[str] = ()
) -> None:
    """Print the next steps after `make demo`. `stays`: Airflow goes on running. `settings`: as in `settings_lines`."""
    url = login.url if stays else f"http://{HOST}:{PREFERRED_PORT}"
    again = "start it again, with its DAG runs" if demo_in_use() == stage.directory else "start one on this lake"
    log_in = (
        f"log in as {login.user} with the password {login.password}" if stays else "log in with what `make up` printed"
    )
    first = settings_lines(stage, settings)
    if not stays:
        first.append(f"make up                                          # {again}")
    clicks = [
        f"open {url}",
        f"    {log_in}; a card on the Home page leads to the held day, which is also at",
        f"    {links.in_airflow(links.request_page(SECOND_PIPELINE, request_id), base_url=url)}",
        "    write why the day may pass, and click 'Waive and publish'",
        f"open {url}/dags/replay_{LIVE_PIPELINE}",
        "    unpause it: it replays two weeks, holds the bad days, and waits for the day that has not come",
        f"open {url}/dags/clicks_live_writer",
        "    when you have decided the bad days, unpause it: the day comes, and published days change",
    ]
    steps = [
        f".venv/bin/hindcast status {PIPELINE}                # published slices, held requests",
        f".venv/bin/hindcast show {PIPELINE} --limit 20       # published windows",
        f"$EDITOR pipelines/{PIPELINE}.yaml                   # change the windows; then: .venv/bin/hindcast plan …",
        "make down                                        # stop Airflow",
        f"make up                                          # {again}",
    ]
    stage.console.print("\n[bold cyan]How to go on[/]")
    for title, lines in (("First, in a shell:", first), ("In a browser:", clicks), ("In a shell:", steps)):
        if lines:
            stage.say(title)
        for line in lines:
            stage.console.print(f"  {line}", markup=False)
    state = f"running at {url}" if stays else "stopped, and keeps its DAG runs"
    stage.note(f"Airflow is {state}. Its logs are in {shown(stage.home.logs)}")
