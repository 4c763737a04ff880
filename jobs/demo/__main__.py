"""The demonstrations `make demo` and `make year`: Hindcast on real flights, through a real Airflow.

The data are all flights that left New York in 2013. The blizzard of 8 and 9 February was real.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from pathlib import Path
from types import FrameType

import click
from rich.padding import Padding
from rich.table import Table

from jobs.console import run_command
from jobs.demo.airflow import Follower
from jobs.demo.clicks_live import deliver
from jobs.demo.next_steps import settings_lines, take_settings, tell_next_steps
from jobs.demo.stage import LIVE_PIPELINE, PIPELINE, SECOND_PIPELINE, Stage, StoryBroken, new_stage, shown
from jobs.orchestration.embedded import airflow_service, postgres as embedded_postgres
from jobs.orchestration.embedded.airflow_api import AirflowApi, DagRunState
from jobs.orchestration.embedded.homes import all_homes, refuse_second
from jobs.reading.published import read_published_table
from jobs.runs import Verdict
from jobs.wall_clock import now_ms
from windowlib.records.tables import LATE_RECORDS

DAILY_PIPELINE = "airports_daily"
FIRST, SINGLE_DAYS_END, END = date(2013, 2, 1), date(2013, 2, 4), date(2013, 2, 15)
BLIZZARD = ("2013-02-08", "2013-02-09")
LEFT_HELD = BLIZZARD[0]
YEAR = (date(2013, 1, 1), date(2014, 1, 2))
HONOLULU, NOON_UTC = "HNL", "17:00"
MAX_SHARE = 0.25


@click.group(help=__doc__)
@click.pass_context
def main(context: click.Context) -> None:
    """Run one of the two demonstrations, with the places of the clone and not with those that the shell names."""
    context.obj = take_settings()


@main.command()
@click.pass_obj
def story(settings: list[str]) -> None:
    """Replay two weeks of February 2013, in chapters with explanations.

    On a terminal, Airflow goes on running at the end; HINDCAST_DEMO_KEEP=1 or =0 chooses.
    """
    refuse_second()
    for home in all_homes():
        if home.is_demo:
            embedded_postgres.remove(home.cluster)  # `make up` starts the newest demonstration only
    stage, stays = new_stage("demo", PIPELINE), _airflow_stays()
    _opening(stage)
    _load(stage, FIRST, END)
    stage.chapter("Airflow starts", "Airflow standalone with its own PostgreSQL. It listens on this machine only.")
    with _airflow(stage, stays=stays) as follower:
        _single_days(stage, follower)
        _decision(stage, follower, _blizzard(stage, follower))
        _chain(stage)
        request_id = _left_for_you(stage, follower)
        _ending(stage)
        login = follower.api
    tell_next_steps(stage, request_id, login=login, stays=stays, settings=settings)


@main.command()
@click.pass_obj
def year(settings: list[str]) -> None:
    """Replay the whole year as one backfill, without explanations."""
    refuse_second()
    stage = new_stage("year", PIPELINE)
    _opening(stage)
    _load(stage, *YEAR)
    stage.chapter("Airflow starts", "As in the demonstration.")
    with _airflow(stage, stays=False) as follower:
        stage.chapter("One backfill", "One DAG run replays every slice of 2013, up to 31 of them together.")
        follower.wait_for_dag(f"backfill_{PIPELINE}")
        run = follower.trigger(f"backfill_{PIPELINE}", _params(*YEAR, "the whole year"))
    view = stage.ledger()
    held = [staged for staged in view.runs.values() if not staged.is_publishable]
    if len(view.runs) < (YEAR[1] - YEAR[0]).days:
        raise StoryBroken(
            f"only {len(view.runs)} slices were replayed (DAG run {run.state}); the logs are in {stage.home.logs}"
        )
    stage.chapter(
        "The result", f"{len(view.runs)} slices replayed; {len(view.published)} published; {len(held)} held by a check."
    )
    for held_run in held:
        stage.tell_run(held_run)
    if held:
        stage.say(
            "Nothing is published while a check holds a day. Look at each day, then waive its run, whose id is above: "
            f"`hindcast waive {PIPELINE} DAY --run RUN --reason …`. Then `hindcast publish {PIPELINE}` publishes the "
            "whole year at once."
        )
    stage.hindcast("report", PIPELINE, "--output", shown(stage.directory / f"{PIPELINE}.html"))
    embedded_postgres.remove(stage.home.cluster)
    stage.say("To go on, choose this lake; then `make up` starts an Airflow on it:")
    for line in settings_lines(stage, settings):
        stage.console.print(f"  {line}", markup=False)


def _opening(stage: Stage) -> None:
    stage.say(
        "Below, `hindcast` is .venv/bin/hindcast. Every command uses the lake of this demonstration: "
        f"{shown(Path(stage.lake.root))}"
    )


def _load(stage: Stage, first: date, end: date) -> None:
    stage.chapter(
        "An event log",
        "Flights that left New York, in the order of their reports. A flight is reported after it landed. The log is "
        "an append-only Delta table with one commit a day. Ranges are half-open: [from, to).",
    )
    stage.hindcast("load-flights", "--from", first.isoformat(), "--to", end.isoformat())


def _single_days(stage: Stage, follower: Follower) -> None:
    """Replay three days with a backfill of Airflow, one DAG run for each."""
    stage.chapter(
        "Three days, one by one",
        "Airflow's own backfill of the daily DAG replay_flights. Each DAG run finds the slices that are due in the "
        "ledger, replays them from the state after the day before, checks the result, and publishes it. spark-submit "
        "starts the driver, and Spark would distribute the tasks of a large day. A day of flights is little work, so "
        "it runs in the driver's process.",
    )
    for dag_id in (f"replay_{PIPELINE}", f"backfill_{PIPELINE}"):
        follower.wait_for_dag(dag_id)
    follower.backfill_by_airflow(f"replay_{PIPELINE}", FIRST, date.fromordinal(SINGLE_DAYS_END.toordinal() - 1))
    _expect_readers_see(stage, FIRST, SINGLE_DAYS_END)
    stage.hindcast("show", PIPELINE, "--limit", "4")


def _blizzard(stage: Stage, follower: Follower) -> DagRunState:
    """Replay the other days as one backfill, and return its DAG run. Two days fail a check; readers see no change."""
    stage.chapter(
        "The rest, as one backfill",
        f"backfill_flights replays [{SINGLE_DAYS_END}, {END}) together and publishes all of it or nothing. Checks are "
        "computed on columns; a check that fails is run again by Great Expectations itself before it holds its day.",
    )
    before = _what_readers_see(stage)
    run = follower.trigger(f"backfill_{PIPELINE}", _params(SINGLE_DAYS_END, END, "the first half of February"))
    view = stage.ledger()
    failed = {staged.result.slice.slice_id: staged for staged in view.runs.values() if staged.verdict is Verdict.FAIL}
    if run.state != "failed" or tuple(sorted(failed)) != BLIZZARD:
        raise StoryBroken(
            f"backfill_{PIPELINE} ended as {run.state} with failed slices {sorted(failed)}; "
            f"expected failed, with {list(BLIZZARD)}; the logs are in {stage.home.logs}"
        )
    shares = [f"{staged.result.counts.invalid / staged.result.counts.read:.0%}" for _, staged in sorted(failed.items())]
    stage.say(
        f"A check failed, and Great Expectations confirmed it. Because of a blizzard, {shares[0]} and {shares[1]} of "
        f"the flights reported on 8 and 9 February were cancelled; the check allows {MAX_SHARE:.0%}. Nothing is "
        "published, not even the other days:"
    )
    stage.hindcast("status", PIPELINE)
    after = _what_readers_see(stage)
    if after != before:
        raise StoryBroken(f"readers saw {before} before the failed backfill, and {after} after it; expected no change")
    stage.say(f"Readers still see the same as before: {after}.")
    stage.hindcast("diff", PIPELINE, "--limit", "0")
    return run


def _decision(stage: Stage, follower: Follower, held: DagRunState) -> None:
    """Waive the two failed checks on the page of the request, which publishes all days at once."""
    stage.chapter(
        "A person decides",
        "The numbers are unusual but correct. A card on Airflow's Home page leads to the two days. There, a person "
        "waives them with a reason. One commit then publishes all eleven days, and the red DAG run turns green. The "
        "demonstration sends what the form of that page sends:",
    )
    view = stage.ledger()
    [request] = [candidate for candidate in view.open_requests() if set(BLIZZARD) <= set(candidate.runs)]
    fields: dict[str, object] = {
        "action": "waive_and_publish",
        "request_id": request.request_id,
        "ledger_version": view.version,
        "slice": list(BLIZZARD),
        "reason": "blizzard Nemo; the cancellations are real",
    }
    follower.wait_for_dag(f"decide_{PIPELINE}")
    follower.decide(PIPELINE, fields | {f"run.{day}": request.runs[day] for day in BLIZZARD})
    follower.wait_for_success(f"backfill_{PIPELINE}", held.run_id)
    _expect_readers_see(stage, FIRST, END)
    stage.say(
        f"Readers now see {_what_readers_see(stage)}. The table has one window of each day, the hour before {NOON_UTC} "
        "UTC (noon in New York): the number of flights, and their mean delay in minutes. The blizzard is in red."
    )
    _show_noon(stage)


def _chain(stage: Stage) -> None:
    """Bring the pipeline that reads the published windows of the first one up to them."""
    stage.chapter(
        "A pipeline that reads a pipeline",
        f"The log of {DAILY_PIPELINE} is what readers see of {PIPELINE}: hours become days. The command replays the "
        f"slices that follow from the publications. In Airflow, each publication starts replay_{DAILY_PIPELINE}, as "
        "soon as you unpause it.",
    )
    stage.hindcast("follow", PIPELINE)
    stage.hindcast("show", DAILY_PIPELINE, "--limit", "3")


def _show_noon(stage: Stage) -> None:
    """Print one published window of each day: a row for each day, a column for each airport."""
    noon = {(row["window_end"], row["origin"]): row for row in stage.ask("show", PIPELINE)}
    airports = sorted({origin for _, origin in noon})
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("window", *airports):
        table.add_column(name, justify="left" if name == "window" else "right")
    for day in _days(FIRST, END):
        rows = [noon.get((f"{day}T{NOON_UTC}:00Z", airport)) for airport in airports]
        cells = [f"{row['flights']} ({row['delay_mean']:+.0f})" if row else "none" for row in rows]
        table.add_row(f"{day} [16:00, {NOON_UTC})", *cells, style="red" if day in BLIZZARD else None)
    stage.console.print(Padding(table, (0, 0, 0, 3)))


def _left_for_you(stage: Stage, follower: Follower) -> str:
    """Leave something to do: a held day, and a log that grows. Return the id of the request that waits."""
    second = stage.of_pipeline(SECOND_PIPELINE)
    dag_id, end = f"backfill_{SECOND_PIPELINE}", date.fromisoformat(LEFT_HELD) + timedelta(days=1)
    stage.chapter(
        "One day is left for you",
        f"The pipeline {SECOND_PIPELINE} reads the same log: the totals of each airline per day. {dag_id} replays "
        f"[{FIRST}, {end}). The first day of the blizzard fails its check, too. The demonstration does not decide it.",
    )
    other = Follower(stage=second, api=follower.api)
    for name in (dag_id, f"decide_{SECOND_PIPELINE}", f"backfill_{LIVE_PIPELINE}", f"decide_{LIVE_PIPELINE}"):
        other.wait_for_dag(name)
    run = other.trigger(dag_id, _params(FIRST, end, "the first days, for the airlines"))
    view = second.ledger()
    waiting = view.open_requests()
    runs = [run_of_day for request in waiting for run_of_day in request.runs.items()]
    held = {day for day, run_id in runs if not view.run(run_id).is_publishable}
    if run.state != "failed" or held != {LEFT_HELD}:
        raise StoryBroken(f"{dag_id} ended as {run.state} and holds {sorted(held)}; expected failed, {[LEFT_HELD]}")
    files = deliver(stage.lake.root, now_ms=now_ms())
    stage.say(
        f"And a log that grows: {len(files)} days of clicks up to {files[-1].day}, for the pipeline "
        f"{LIVE_PIPELINE}. Its days follow the calendar. replay_{LIVE_PIPELINE} replays them, and clicks_live_writer "
        "appends what comes next. Both are paused until you unpause them."
    )
    return waiting[0].request_id


def _ending(stage: Stage) -> None:
    """Explain one late record, and write the report."""
    stage.chapter(
        "One late record",
        "The watermark is six hours behind the reports. The daily flight to Honolulu takes longer than that, so its "
        "windows are closed when its report arrives. The record is kept in the table late_records, with the reason:",
    )
    stage.hindcast("explain", PIPELINE, _late_flight_to(stage, HONOLULU))
    stage.chapter(
        "The report", "It has every slice, every check with its history, every waiver, and how to reproduce each run:"
    )
    stage.hindcast("report", PIPELINE, "--output", shown(stage.directory / f"{PIPELINE}.html"))


def _airflow_stays() -> bool:
    """Return whether Airflow runs on after the demonstration: on a terminal, or as HINDCAST_DEMO_KEEP says."""
    asked = os.environ.get("HINDCAST_DEMO_KEEP")
    return sys.stdout.isatty() if asked is None else asked == "1"


@contextmanager
def _airflow(stage: Stage, *, stays: bool) -> Iterator[Follower]:
    """Run Airflow during the body of a `with` statement, and after it as well if it `stays` and the body ended well."""

    def tell(phase: str) -> None:
        stage.note(f"{phase} …")

    with ExitStack() as started:
        if stays:
            login = airflow_service.start(stage.home, tell)
            started.callback(airflow_service.stop, stage.home)
        else:
            login = started.enter_context(airflow_service.running(stage.home, tell))
        with AirflowApi(url=login.url, user=login.user, password=login.password) as api:
            until = "" if stays else " until the end of this part"
            stage.note(f"running at {login.url}{until}; user {login.user}, password {login.password}")
            yield Follower(stage=stage, api=api)
        if stays:
            started.pop_all()
    if not stays:
        stage.note("Airflow and its database are stopped")


def _params(first: date, end: date, reason: str) -> dict[str, object]:
    return {"from": first.isoformat(), "to": end.isoformat(), "reason": reason, "publish": True, "fresh": False}


def _what_readers_see(stage: Stage) -> str:
    """Return in words how many windows of which slices a reader sees."""
    rows = stage.ask("show", PIPELINE)
    slices = sorted(stage.ledger().published)
    return f"{len(rows):,} windows of {len(slices)} slices, {slices[0]} to {slices[-1]}" if slices else "nothing"


def _expect_readers_see(stage: Stage, first: date, end: date) -> None:
    wanted = _days(first, end)
    seen = sorted(stage.ledger().published)
    if seen != wanted:
        raise StoryBroken(f"published are {seen}, expected {wanted}; the logs are in {stage.home.logs}")


def _late_flight_to(stage: Stage, destination: str) -> str:
    """Return the id of the first published late record with this destination."""
    late = read_published_table(stage.lake, PIPELINE, LATE_RECORDS, view=stage.ledger()).to_pylist()
    ids = [str(row["record_id"]) for row in late if row["record"]["dest"] == destination]
    if not ids:
        raise StoryBroken(
            f"none of the {len(late)} late records went to {destination}; expected the daily flight there"
        )
    return ids[0]


def _days(first: date, end: date) -> list[str]:
    """Return the days of `[first, end)`, which are the ids of their slices."""
    return [date.fromordinal(day).isoformat() for day in range(first.toordinal(), end.toordinal())]


def _end_by_signal(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def run(command: Callable[..., object] = main) -> int:
    """Run the command line, and return the exit status. Errors are one paragraph; ctrl-C stops Airflow."""
    signal.signal(signal.SIGTERM, _end_by_signal)
    signal.signal(signal.SIGHUP, _end_by_signal)
    return run_command(
        command,
        None,
        name="demo",
        interrupted="stopped; no process is left",
        failed="the demonstration stopped before its end",
    )


if __name__ == "__main__":
    sys.exit(run())
