"""Start and stop the embedded Airflow: `make up` and `make down`. Exit status 0 or 1."""

import sys

import click

from jobs.console import log_to_stderr, run_command, say
from jobs.orchestration.embedded import airflow_service
from jobs.orchestration.embedded.homes import all_homes, chosen_home, refuse_second
from jobs.review.links import in_airflow, overview


@click.group(help=__doc__)
def main() -> None:
    """The group of the two commands."""


@main.command()
def up() -> None:
    """Start Airflow and its database, wait until they are healthy, and print their addresses. They keep running."""
    home = chosen_home()
    refuse_second(home)
    service = airflow_service.find(home)
    if service is not None and service.supervisor.is_alive() and service.phase == "running":
        login = airflow_service.login(service)
        lake = service.lake
    else:
        login = airflow_service.start(home, lambda phase: say(f"{phase} …", style="dim"))
        lake = home.lake
    say(
        f"Airflow   {login.url}   (from this machine only)",
        f"user      {login.user}   password  {login.password}",
        f"user      {login.viewer}  password  {login.viewer_password}   (may look, not decide)",
        f"review    {in_airflow(overview(), base_url=login.url)}",
    )
    say(f"lake      {lake}", f"logs      {home.logs}", "`make down` stops it.", style="dim")


@main.command()
@click.option("--remove", is_flag=True, help="Also delete Airflow's files and database: its history, users and logs.")
def down(*, remove: bool) -> None:
    """Stop running tasks, Airflow and the database."""
    homes = all_homes()
    stopped = [airflow_service.stop(home) for home in homes]
    for home in homes if remove else ():
        airflow_service.remove(home)
    say("Airflow and its database are stopped." if any(stopped) else "Airflow was not running.")


def run() -> int:
    """Run the command line and return its exit status."""
    log_to_stderr()
    return run_command(main, None, name="airflow", interrupted="stopped; nothing is left running")


if __name__ == "__main__":
    sys.exit(run())
