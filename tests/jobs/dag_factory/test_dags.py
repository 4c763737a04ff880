"""The DAGs of every pipeline file: schedules, tasks, pools, forms, pages, and the DAGs of broken files."""

import json
import os
import random
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
import pytest

from jobs.orchestration.embedded.airflow_env import POOLS
from jobs.pipeline.files import load_file, load_pipeline
from jobs.pipeline.slices import SliceGrid, slice_grid, slices_ending_in
from jobs.plain_text import escaped
from tests.jobs.dag_factory.conftest import import_dag_file
from tests.support.fake_replay import PIPELINE, sales
from tests.support.fuzzing import seeds
from tests.support.places import ROOT
from windowlib.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import DAG
    from airflow.timetables.base import TimeRestriction

    from jobs.pipeline.models.pipeline import Pipeline
    from tests.jobs.dag_factory.conftest import LoadDags

pytestmark = pytest.mark.dags

PIPELINES = ROOT / "pipelines"
NAMES = sorted(path.stem for path in PIPELINES.glob("*.yaml"))
BY_CRON = [name for name in NAMES if (when := load_pipeline(name, PIPELINES).schedule) is not None and when.cron]
RESTATING = [
    name for name in NAMES if (rule := load_pipeline(name, PIPELINES).restate) is not None and rule.mode == "auto"
]
TASKS = {"plan", "replay", "gate", "publish"}

# Measures the cost of our file for the DAG processor, which imports airflow.sdk before it forks for the file.
PROBE = """
import importlib.util, json, sys, time
began = time.process_time()
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit, airflow.providers.standard.sensors.python
started = time.process_time()
spec = importlib.util.spec_from_file_location("dags_of_hindcast", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
heavy = [name for name in ("pyspark", "great_expectations", "delta", "pandas", "deltalake") if name in sys.modules]
dags = [name for name in vars(module) if name.startswith("replay_")]
print(json.dumps({"ours": time.process_time() - started, "airflows": started - began, "heavy": heavy, "dags": dags}))
"""


DAG_FILE_OF_A_USER = """
from jobs.dag_factory import Pools, hindcast_dags

pools = Pools(daily="nightly", backfill="spare")
dags = hindcast_dags({pipelines!r}, pools=pools, spark_connection="cluster", owner="data team", tags=("events",))
"""


@pytest.fixture
def dags(load_dags: "LoadDags") -> "dict[str, DAG]":
    return dict(load_dags(PIPELINES))


def _restriction(dag: "DAG", *, catchup: bool) -> "TimeRestriction":
    """Return the range of dates in which the DAG may have runs."""
    from airflow.timetables.base import TimeRestriction

    first, last = (None if at is None else pendulum.instance(at) for at in (dag.start_date, dag.end_date))
    return TimeRestriction(earliest=first, latest=last, catchup=catchup)


def _replaying(dags: "dict[str, DAG]") -> "list[DAG]":
    return [dag for dag in dags.values() if not dag.dag_id.startswith("decide_")]


def test_every_pipeline_has_its_three_dags(dags: "dict[str, DAG]") -> None:
    assert NAMES
    assert sorted(dags) == sorted(f"{kind}_{name}" for kind in ("replay", "backfill", "decide") for name in NAMES)


def test_the_dag_of_decisions_is_not_paused_and_publishes_to_the_same_asset(dags: "dict[str, DAG]") -> None:
    for name in NAMES:
        dag = dags[f"decide_{name}"]
        assert dag.is_paused_upon_creation is False
        assert dag.get_task("decide").downstream_task_ids == {"publish"}
        assert dag.get_task("publish").downstream_task_ids == {"clear_gate"}
        assert dag.get_task("publish").outlets == dags[f"backfill_{name}"].get_task("publish").outlets


def test_the_four_tasks_run_in_order(dags: "dict[str, DAG]") -> None:
    for dag in _replaying(dags):
        also = {"restate"} if dag.dag_id.removeprefix("replay_") in RESTATING else set()
        assert set(dag.task_ids) == TASKS | also
        for before, after in (("plan", "replay"), ("replay", "gate"), ("gate", "publish")):
            assert dag.get_task(before).downstream_task_ids == {after}


@pytest.mark.parametrize("name", BY_CRON)
def test_a_scheduled_run_covers_an_interval_that_is_not_empty(dags: "dict[str, DAG]", name: str) -> None:
    """Airflow's default timetable for a cron text has empty intervals, which would cover no slice."""
    from airflow.serialization.serialized_objects import DagSerialization

    dag = dags[f"replay_{name}"]
    scheduled = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    restriction = _restriction(dag, catchup=True)
    run = scheduled.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    assert run is not None
    assert run.data_interval is not None
    assert run.data_interval.end > run.data_interval.start
    follower = scheduled.timetable.next_dagrun_info(
        last_automated_data_interval=run.data_interval, restriction=restriction
    )
    assert follower is not None
    assert follower.data_interval is not None
    assert follower.data_interval.start == run.data_interval.end


def test_the_schedule_of_a_log_ends_90_days_after_it(dags: "dict[str, DAG]", monkeypatch: pytest.MonkeyPatch) -> None:
    """The last slices may be late or held. Without catch-up, Airflow starts at the latest interval."""
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import DataInterval

    dag = dags["replay_flights"]
    assert dag.catchup is False
    assert str(dag.end_date) == "2014-04-02 00:00:00+00:00"
    timetable = DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable
    before = DataInterval(pendulum.datetime(2013, 12, 30, 6), pendulum.datetime(2013, 12, 31, 6))
    for now, ends in ((pendulum.datetime(2014, 3, 1, 9), "2014-03-01"), (pendulum.datetime(2014, 4, 4), None)):
        monkeypatch.setattr("airflow.timetables.interval.utcnow", lambda now=now: now)
        for last in (None, before):
            run = timetable.next_dagrun_info(
                last_automated_data_interval=last, restriction=_restriction(dag, catchup=False)
            )
            end = None if run is None or run.data_interval is None else run.data_interval.end.date().isoformat()
            assert end == ends


def test_the_first_run_is_at_the_first_time_of_the_schedule_after_the_first_slices(
    load_dags: "LoadDags", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow starts no run of an interval that begins before the DAG: it would come a week after the first slices."""
    from airflow.serialization.serialized_objects import DagSerialization

    text = PIPELINE.replace("{by: day}", "{by: day, first: 2024-01-03}").replace("0 6 * * *", "0 6 * * 1")
    (tmp_path / "sales.yaml").write_text(text, encoding="utf-8")
    dag = load_dags(tmp_path)["replay_sales"]
    timetable = DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable
    monkeypatch.setattr("airflow.timetables.interval.utcnow", lambda: pendulum.datetime(2024, 1, 8, 7))
    restriction = _restriction(dag, catchup=False)
    run = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    assert run is not None
    assert run.run_after == pendulum.datetime(2024, 1, 8, 6)


def test_a_dag_has_one_active_run_and_retries(dags: "dict[str, DAG]") -> None:
    for dag in _replaying(dags):
        assert dag.max_active_runs == 1
        for task in dag.tasks:
            assert task.retries == 2, f"{dag.dag_id}.{task.task_id}"
            assert not task.depends_on_past


def test_only_the_replay_task_takes_a_slot_of_an_existing_pool(dags: "dict[str, DAG]") -> None:
    """A task in a pool that does not exist waits for ever. The embedded Airflow creates the pools of `POOLS`."""
    for dag in _replaying(dags):
        pool = dag.get_task("replay").pool
        assert pool == ("hindcast_daily" if dag.dag_id.startswith("replay_") else "hindcast_backfill")
        assert pool in POOLS
        assert all(task.pool == "default_pool" for task in dag.tasks if task.task_id != "replay")


@pytest.mark.parametrize(
    ("schedule", "assets", "cron"),
    [
        ('"0 6 * * *"', [], "0 6 * * *"),
        ("{asset: 's3://events/raw'}", ["s3://events/raw"], None),
        (
            "['s3://events/raw', 'hindcast://flights/publications']",
            ["s3://events/raw", "hindcast://flights/publications"],
            None,
        ),
        ("{cron: '0 6 * * *', asset: 's3://events/raw'}", ["s3://events/raw"], "0 6 * * *"),
    ],
)
def test_a_schedule_is_a_cron_expression_assets_or_both(
    load_dags: "LoadDags", tmp_path: Path, schedule: str, assets: list[str], cron: str | None
) -> None:
    """After it has been stored by Airflow. The assets are found by URI: a second name for one of them is refused."""
    from airflow.serialization.serialized_objects import DagSerialization

    (tmp_path / "sales.yaml").write_text(PIPELINE.replace('"0 6 * * *"', schedule), encoding="utf-8")
    dag = load_dags(tmp_path)["replay_sales"]
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    timetable: Any = stored.timetable
    assert [ref.uri for ref in timetable.asset_condition.iter_asset_refs()] == assets
    assert list(timetable.asset_condition.iter_assets()) == []
    clock = timetable if not assets else getattr(timetable, "timetable", None)
    assert getattr(clock, "_expression", None) == cron
    assert ("Airflow's own backfill** makes" in str(dag.doc_md)) == (cron is not None)
    assert (timetable.periodic and timetable.can_be_scheduled) == (cron is not None), "else Airflow has no backfill"


def test_only_automatic_restatements_add_a_task_which_also_runs_without_work(
    load_dags: "LoadDags", tmp_path: Path
) -> None:
    dags: Mapping[str, DAG] = {}
    for mode, tasks in (("propose", TASKS), ("off", TASKS), ("auto", TASKS | {"restate"})):
        text = f"{PIPELINE}restate: {{mode: {mode}}}\n"
        (tmp_path / "sales.yaml").write_text(text, encoding="utf-8")
        dags = load_dags(tmp_path)
        assert set(dags["replay_sales"].task_ids) == tasks
        assert set(dags["backfill_sales"].task_ids) == TASKS
    restate = dags["replay_sales"].get_task("restate")
    # If publish has failed, so does the DAG run: a leaf that runs in any case would hide the failure.
    assert (restate.trigger_rule, restate.upstream_task_ids) == ("none_failed", {"publish"})


def test_spark_is_submitted_through_the_wrapper_with_the_death_signal(dags: "dict[str, DAG]") -> None:
    for dag in _replaying(dags):
        assert "broken" not in dag.tags, dag.doc_md
        replay: Any = dag.get_task("replay")
        wrapper = Path(replay._spark_binary)
        assert wrapper.name == "spark-submit-pdeathsig"
        assert wrapper.stat().st_mode & 0o111
        # A script's directory comes first on Python's path, so another module in it could hide a library.
        assert [path.name for path in Path(replay.application).parent.glob("*.py")] == ["replay_job.py"]


def test_the_form_of_a_backfill_is_typed(dags: "dict[str, DAG]") -> None:
    from airflow.sdk.exceptions import ParamValidationError

    params = dags["backfill_flights"].params
    assert set(params) == {"from", "to", "reason", "publish", "fresh", "if_open", "request"}
    good = {"from": "2013-02-04", "to": "2013-02-15", "reason": "a test", "publish": True, "fresh": False}
    for name, value in good.items():
        params.get_param(name).resolve(value)
    bad = {"from": "4 February", "to": 20130215, "reason": " ", "publish": "yes", "fresh": None}
    for name, value in bad.items():
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(value)


def test_replay_and_gate_link_to_the_page_of_their_dag_run(dags: "dict[str, DAG]") -> None:
    from airflow.sdk.types import TaskInstanceKey

    for name in ("replay", "gate"):
        task: Any = dags["backfill_flights"].get_task(name)
        [link] = task.operator_extra_links
        key = TaskInstanceKey("backfill_flights", name, "manual__2013-02-04+00:00", 1)
        assert link.get_link(task, ti_key=key) == (
            "/plugin/hindcast/hindcast/dag-run?dag_id=backfill_flights&run_id=manual__2013-02-04%2B00%3A00"
        )


def test_the_page_of_a_dag_links_to_its_pages_and_the_schedule_explains_an_interval(dags: "dict[str, DAG]") -> None:
    scheduled, by_hand = (dags[f"{kind}_flights"].doc_md or "" for kind in ("replay", "backfill"))
    assert "/plugin/hindcast/hindcast/pipelines/flights" in by_hand
    assert "replays the days that *end* in its interval" in scheduled
    assert "interval" not in by_hand


@pytest.mark.parametrize(
    ("cut", "example"),
    [
        ("by: day", "2013-02-08, which ends at 2013-02-09 00:00:00 UTC."),
        ("by: day, timezone: America/Los_Angeles", "2013-02-07, which ends at 2013-02-08 08:00:00 UTC."),
        ("by: at, every: 1h", "2013-02-08T06 to 2013-02-09T05."),
    ],
)
def test_the_example_of_an_interval_is_that_of_the_slices_of_the_pipeline(cut: str, example: str) -> None:
    from jobs.dag_factory.dag_page import backfill_of_airflow

    pipeline = sales(PIPELINE.replace("slice: {by: day}", f"slice: {{{cut}}}"))
    assert f"2013-02-08 06:00 to 2013-02-09 06:00 UTC replays {example}" in backfill_of_airflow(pipeline)
    interval = [1000 * int(datetime(2013, 2, day, 6, tzinfo=UTC).timestamp()) for day in (8, 9)]
    slices = [slice_.slice_id for slice_ in slices_ending_in(pipeline, interval[0], interval[1])]
    assert example.startswith(slices[0])
    assert slices[-1] in example


def test_tags_and_alerts_of_the_file_are_those_of_its_dags(load_dags: "LoadDags", tmp_path: Path) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    text = GOOD + 'tags: [traffic]\nalerts: {to: mail, not_published_by: "08:30"}\n'
    (tmp_path / "flights.yaml").write_text(text, encoding="utf-8")
    dags = load_dags(tmp_path)
    assert sorted(dags) == ["alert_flights", "backfill_flights", "decide_flights", "replay_flights"]
    for dag in dags.values():
        assert {"traffic", "hindcast"} < set(dag.tags)
        assert dag.default_args["owner"] == "operations"
        DagSerialization.to_dict(dag)
    assert all(task.on_failure_callback for task in dags["replay_flights"].tasks)


def test_the_form_shows_from_and_to_first_and_its_bounds_may_be_empty(dags: "dict[str, DAG]") -> None:
    params = dags["backfill_flights"].params
    assert list(params)[:2] == ["from", "to"]
    for name in ("from", "to"):
        param = params.get_param(name)
        assert param.resolve(None) is None
        assert "section" not in param.schema, "Airflow shows a section collapsed"
        assert "**2013-01-01**" in param.schema["description_md"]


def test_the_form_asks_for_times_if_slices_are_shorter_than_a_day(load_dags: "LoadDags", tmp_path: Path) -> None:
    text = (PIPELINES / "flights.yaml").read_text(encoding="utf-8")
    hourly = text.replace("every: 1d", "every: 1h").replace(
        "first: 2013-01-01, last: 2014-01-01", "first: 2013-01-01T00, last: 2014-01-01T00"
    )
    (tmp_path / "flights.yaml").write_text(hourly, encoding="utf-8")
    dag = load_dags(tmp_path)["backfill_flights"]
    assert dag.params.get_param("from").schema["format"] == "date-time"


def test_a_broken_file_becomes_dags_that_show_its_error(load_dags: "LoadDags", tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text((PIPELINES / "flights.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("pipeline: broken\nlgo: {table: x}\n", encoding="utf-8")
    dags = load_dags(tmp_path)
    good = ["backfill_flights", "decide_flights", "replay_flights"]
    assert sorted(dags) == sorted([*good, "alert_broken", "backfill_broken", "replay_broken"])
    broken = dags["replay_broken"]
    assert type(broken.timetable).__name__ == "NullTimetable"
    assert "lgo" in (broken.doc_md or "")
    plan: Any = broken.get_task("plan")
    with pytest.raises(SpecError, match="lgo"):
        plan.execute({})


def test_a_file_that_is_broken_for_a_while_ends_no_run_that_is_under_way(load_dags: "LoadDags", tmp_path: Path) -> None:
    """Airflow removes tasks that a DAG does not have any more from its runs. A task is tried again with a new parse."""
    file = tmp_path / "flights.yaml"
    file.write_text(GOOD, encoding="utf-8")
    good = load_dags(tmp_path)
    file.write_text(GOOD[:90], encoding="utf-8")
    broken = load_dags(tmp_path)
    for dag_id in ("replay_flights", "backfill_flights"):
        assert "broken" in broken[dag_id].tags
        assert broken[dag_id].max_active_runs == good[dag_id].max_active_runs
        for task in good[dag_id].tasks:
            instead = broken[dag_id].get_task(task.task_id)
            assert (instead.downstream_task_ids, instead.pool) == (task.downstream_task_ids, task.pool)
            assert instead.retries
            assert instead.on_failure_callback
    plan: Any = broken["replay_flights"].get_task("plan")
    with pytest.raises(SpecError, match=r"flights\.yaml"):
        plan.resume_execution("decide_again", {"event": {}}, {})


GOOD = (PIPELINES / "flights.yaml").read_text(encoding="utf-8")
OTHER = GOOD.replace("pipeline: flights", "pipeline: other")
DAMAGED = {
    "a space": ("my pipeline.yaml", OTHER),
    "245 letters": ("x" * 245 + ".yaml", OTHER),
    "a line break": ("a\nb\x1b[31m.yaml", OTHER),
    "no UTF-8 name": (os.fsdecode(b"\xff\xfe.yaml"), OTHER),
    "not UTF-8": ("other.yaml", "pipeline: \udcff"),
    "year 1": ("other.yaml", OTHER.replace("first: 2013-01-01", "first: 0001-01-01")),
    "year 9999": ("other.yaml", OTHER.replace("last: 2014-01-01", "last: 9999-12-31")),
    "a long zone": ("other.yaml", OTHER.replace("timezone: UTC", f"timezone: {'A' * 6_000}")),
    "never runs": ("other.yaml", OTHER.replace("0 6 * * *", "0 0 30 2 *")),
    "a surrogate": ("other.yaml", OTHER.replace("owner: operations", 'owner: "\\ud800"')),
    "a NUL": ("other.yaml", OTHER.replace("owner: operations", 'owner: "a\\0"')),
    "a long owner": ("other.yaml", OTHER.replace("owner: operations", f"owner: {'x' * 5_000}")),
    "a fence": ("other.yaml", OTHER.replace("owner: operations", "owner: {'```': 1}")),
    "a set": ("other.yaml", OTHER.replace("key: [origin]", "key: !!set {origin}")),
    "another's name": ("other.yaml", GOOD),
}


def _check_dags(dags: "Mapping[str, DAG]") -> None:
    """Validate and serialise each DAG, as Airflow does before it stores all of them in one transaction."""
    from airflow.serialization.serialized_objects import DagSerialization

    for dag_id, dag in dags.items():
        assert dag.dag_id == dag_id
        dag.validate()  # type: ignore[no-untyped-call]
        text = json.dumps(DagSerialization.to_dict(dag), ensure_ascii=False)
        assert len(dag_id) <= 250
        text.encode()  # no lone surrogate
        assert "\\u0000" not in text, "PostgreSQL refuses NUL"
        assert all(len(task.owner) <= 500 for task in dag.tasks)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_becomes_its_own_broken_dags(load_dags: "LoadDags", tmp_path: Path, name: str) -> None:
    (tmp_path / "flights.yaml").write_text(GOOD, encoding="utf-8")
    file, text = DAMAGED[name]
    (tmp_path / file).write_text(text, encoding="utf-8", errors="surrogateescape")
    dags = load_dags(tmp_path)
    _check_dags(dags)
    assert {"replay_flights", "backfill_flights"} < set(dags)
    assert "broken" not in dags["replay_flights"].tags
    broken = {dag_id: dag for dag_id, dag in dags.items() if "broken" in dag.tags}
    assert sorted(dag_id.partition("_")[0] for dag_id in broken) == ["backfill", "replay"]
    alerts = {dag_id for dag_id in dags if dag_id.startswith("alert_")}
    assert len(dags) == 3 + 2 + len(alerts)
    assert alerts <= {"alert_other"}, "no pipeline can have the name of another file"
    for dag in broken.values():
        plan: Any = dag.get_task("plan")
        with pytest.raises(SpecError, match=escaped(file)[:40].replace("\\", ".").replace("[", ".")):
            plan.execute({})


def test_two_files_of_one_pipeline_are_both_refused(load_dags: "LoadDags", tmp_path: Path) -> None:
    for file in ("flights.yaml", "flights.yml"):
        (tmp_path / file).write_text(GOOD, encoding="utf-8")
    dags = load_dags(tmp_path)
    assert sorted(dags) == ["alert_flights", "backfill_flights", "replay_flights"]
    assert all("the directory also has" in (dag.doc_md or "") for dag in dags.values() if "broken" in dag.tags)


@pytest.mark.parametrize("extra", ["alerts: {to: hook, digest_at: '07:00'}", "wrong: 1"])
def test_two_pipelines_never_have_assets_of_one_name(load_dags: "LoadDags", tmp_path: Path, extra: str) -> None:
    """Airflow activates one asset of a name only, and the tasks of the other pipeline fail."""
    for name in ("sales", "sales_publications", "other_publications"):
        text = PIPELINE.replace("pipeline: sales", f"pipeline: {name}") + (
            extra if name == "sales_publications" else ""
        )
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    dags = load_dags(tmp_path)
    assets = [asset for dag in dags.values() for task in dag.tasks for asset in (*task.outlets, *task.inlets)]
    uris = {(asset.name, asset.uri) for asset in assets}
    assert len({name for name, _ in uris}) == len(uris) == 4
    assert "'sales_publications' is not allowed beside the pipeline" in str(dags["replay_sales_publications"].doc_md)
    assert "decide_other_publications" in dags


@pytest.mark.slow
def test_the_process_of_a_task_reads_the_file_of_its_dag_alone(
    load_dags: "LoadDags", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the process of each task parsed all files, which takes 3 s with 200 pipelines."""
    from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID
    from airflow.serialization.serialized_objects import DagSerialization

    extra = "alerts: {to: hook, digest_at: '07:00'}\nretention: {superseded: 90d}\n"
    names = ("sales", "sales_daily", "daily", "replay_sales", "sales_publications")
    files = {f"{name}.yaml": PIPELINE.replace("pipeline: sales", f"pipeline: {name}") + extra for name in names}
    files |= {"my sales.yaml": PIPELINE, "other.yml": "pipeline: broken", f"{'x' * 120}.yaml": PIPELINE}
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    read: list[Path] = []

    def load(path: Path) -> "Pipeline":
        read.append(path)
        return load_file(path)

    monkeypatch.setattr("jobs.pipeline.files.load_file", load)
    every = load_dags(tmp_path)
    assert (len(read), len(every)) == (len(files), 4 * 5 + 2 + 3 + 2 * 2)
    for dag_id, dag in every.items():
        monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, dag_id)
        read.clear()
        own = load_dags(tmp_path)
        assert DagSerialization.to_dict(own[dag_id]) == DagSerialization.to_dict(dag)
        assert len(read) == 1, f"{dag_id} is of {read}"
    for foreign in ("weekly_sales", "replay_sales_weekly", "sales", ""):
        monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, foreign)
        assert load_dags(tmp_path).keys() == every.keys(), "the file of a user's own DAG may name each of them"


def test_a_directory_without_files_that_can_be_read_becomes_broken_dags(load_dags: "LoadDags", tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, problem in (("nowhere", "cannot be read: No such file"), ("empty", "has no file that ends in .yaml or")):
        dags = load_dags(tmp_path / name)
        assert sorted(dags) == ["backfill_all", "replay_all"]
        assert problem in (dags["replay_all"].doc_md or "")


def test_a_pipeline_whose_dags_cannot_be_made_breaks_only_its_own_dags(
    load_dags: "LoadDags", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grid(pipeline: "Pipeline") -> SliceGrid:
        return slice_grid(pipeline) if pipeline.name == "flights" else 1 / 0  # type: ignore[return-value]

    monkeypatch.setattr("jobs.dag_factory.pipeline_dags.slice_grid", grid)
    for name in ("flights", "rotations"):
        (tmp_path / f"{name}.yaml").write_text((PIPELINES / f"{name}.yaml").read_text(encoding="utf-8"))
    dags = load_dags(tmp_path)
    assert [dag_id for dag_id, dag in dags.items() if "broken" in dag.tags] == [
        "replay_rotations",
        "backfill_rotations",
    ]
    assert "its DAGs cannot be made: ZeroDivisionError" in (dags["replay_rotations"].doc_md or "")


@pytest.mark.slow
def test_random_damage_of_a_file_does_not_change_the_dags_of_other_files(load_dags: "LoadDags", tmp_path: Path) -> None:
    """Law L10. The damage is to the bytes and to the name of the file."""
    hostile = [
        *(bytes([value]) for value in range(256)),
        b"\\ud800",
        b"!!set ",
        b"&a ",
        b"*a",
        b"0001-01-01",
        b"9" * 5_000,
    ]
    letters = [*"abc x.-\n\x1b[", "\udcff", "é", "y" * 60]
    for seed in seeds(25):
        rng = random.Random(seed)
        directory = tmp_path / str(seed)
        directory.mkdir()
        (directory / "flights.yaml").write_text(GOOD, encoding="utf-8")
        content = OTHER.encode()
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(content))
            content = content[:place] + rng.choice(hostile) + content[place + rng.randrange(0, 12) :]
        name = rng.choice(["other", "".join(rng.choice(letters) for _ in range(rng.randrange(1, 5)))])
        (directory / f"{name}.{rng.choice(['yaml', 'yml'])}").write_bytes(content)
        dags = load_dags(directory)
        _check_dags(dags)
        assert "broken" not in dags["replay_flights"].tags
        assert "broken" not in dags["backfill_flights"].tags
        kinds = [dag_id.partition("_")[0] for dag_id in dags]
        shown = 1 if name.startswith(".") else 2  # a hidden file is no pipeline file
        assert (kinds.count("replay"), kinds.count("backfill")) == (shown, shown)
        assert "decide_flights" in dags


@pytest.mark.parametrize(
    ("first", "last"), [("0001-01-04", "0001-01-04"), ("9999-12-28", "9999-12-28"), ("0001-01-04", "9999-12-28")]
)
def test_the_scheduler_accepts_the_first_and_the_last_day_of_the_calendar(
    load_dags: "LoadDags", tmp_path: Path, first: str, last: str
) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    text = OTHER.replace("first: 2013-01-01, last: 2014-01-01", f"first: {first}, last: {last}")
    (tmp_path / "other.yaml").write_text(text, encoding="utf-8")
    dag = load_dags(tmp_path)["replay_other"]
    assert "broken" not in dag.tags
    scheduled = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    for catchup in (False, True):
        restriction = _restriction(dag, catchup=catchup)
        scheduled.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)


def test_a_dag_file_of_an_existing_airflow_chooses_pools_connection_owner_and_tags(tmp_path: Path) -> None:
    for name in NAMES:
        text = (PIPELINES / f"{name}.yaml").read_text(encoding="utf-8")
        (tmp_path / f"{name}.yaml").write_text(text.replace("owner: operations\n", ""), encoding="utf-8")
    dag_file = tmp_path / "events.py"
    dag_file.write_text(DAG_FILE_OF_A_USER.format(pipelines=str(tmp_path)), encoding="utf-8")
    dags: dict[str, DAG] = import_dag_file(dag_file).dags
    assert sorted(dags) == sorted(f"{kind}_{name}" for kind in ("replay", "backfill", "decide") for name in NAMES)
    for dag_id, dag in dags.items():
        kind = dag_id.partition("_")[0]
        assert "broken" not in dag.tags, dag.doc_md
        if kind != "decide":
            replay: Any = dag.get_task("replay")
            assert replay.pool == {"replay": "nightly", "backfill": "spare"}[kind]
            assert replay._conn_id == "cluster"
        assert dag.tags == {"events", kind}
        assert {task.owner for task in dag.tasks} == {"data team"}


def test_the_dags_are_the_same_after_serialisation_to_json(dags: "dict[str, DAG]") -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    for dag_id, dag in dags.items():
        document = json.loads(json.dumps(DagSerialization.to_dict(dag)))
        again = DagSerialization.from_dict(document)
        assert (again.dag_id, again.task_ids, again.max_active_runs) == (dag.dag_id, dag.task_ids, dag.max_active_runs)
        for task in dag.tasks:
            assert again.get_task(task.task_id).pool == task.pool
            assert set(again.get_task(task.task_id).template_fields) == set(task.template_fields)
        assert set(again.params) == set(dag.params)
        assert again.timetable.summary == ("0 6 * * *" if dag_id == "replay_flights" else again.timetable.summary)


@pytest.mark.slow
def test_parsing_is_fast_and_does_not_import_spark_or_great_expectations() -> None:
    """Runs in a new process, because this one has imported these modules already."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, str(ROOT / "dags" / "hindcast_dags.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(probe.stdout.splitlines()[-1])
    assert sorted(found["dags"])[-len(NAMES) :]
    assert found["heavy"] == []
    assert found["ours"] < found["airflows"], "less than the DAG processor spends before it forks for our file"


def test_a_log_that_has_ended_is_told_by_the_dag_of_the_schedule(
    load_dags: "LoadDags", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flights.yaml").write_text(GOOD, encoding="utf-8")
    sentence = "log ends with 2014-01-01 (log.slice.last), so the schedule replays no later slice. It starts runs until"
    end_ms = round(datetime(2014, 1, 2, tzinfo=UTC).timestamp()) * 1000
    for now_ms, is_told in ((end_ms - 1, False), (end_ms, True)):
        monkeypatch.setattr("jobs.dag_factory.pipeline_dags.now_ms", lambda now_ms=now_ms: now_ms)
        dags = load_dags(tmp_path)
        assert (sentence in (dags["replay_flights"].description or "")) is is_told
        assert (sentence in (dags["replay_flights"].doc_md or "")) is is_told
        assert sentence not in (dags["backfill_flights"].doc_md or "")
    (tmp_path / "flights.yaml").write_text(GOOD.replace(", last: 2014-01-01", ""), encoding="utf-8")
    assert "no later slice" not in (load_dags(tmp_path)["replay_flights"].doc_md or "")


def test_tasks_read_the_file_by_a_path_that_outlives_the_release_that_a_link_leads_to(
    load_dags: "LoadDags", tmp_path: Path
) -> None:
    (tmp_path / "releases" / "42").mkdir(parents=True)
    extra = "\nretention: {schedule: '0 4 * * *'}\nalerts: {to: hook}\nrestate: {mode: auto}\n"
    (tmp_path / "releases" / "42" / "sales.yaml").write_text(f"{PIPELINE}{extra}", encoding="utf-8")
    (tmp_path / "current").symlink_to("releases/42")
    dags = load_dags(tmp_path / "current")
    files = {task.pipeline_file for dag in dags.values() for task in dag.tasks if hasattr(task, "pipeline_file")}
    assert files == {str(tmp_path / "current" / "sales.yaml")}


def test_the_page_about_airflow_names_the_dags_of_a_pipeline(load_dags: "LoadDags", tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(GOOD, encoding="utf-8")
    usual = {dag_id.removesuffix("_flights") for dag_id in load_dags(tmp_path)}
    text = GOOD + 'alerts: {to: mail, not_published_by: "08:30"}\nretention: {superseded: 90d}\n'
    (tmp_path / "flights.yaml").write_text(text, encoding="utf-8")
    every = {dag_id.removesuffix("_flights") for dag_id in load_dags(tmp_path)}
    assert usual == every - {"alert", "maintain"}
    table = (ROOT / "docs" / "how-to" / "airflow.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)_NAME` \|", table, re.MULTILINE)) == every


@pytest.mark.parametrize("is_demo", [False, True])
def test_only_the_airflow_of_a_demonstration_has_the_writer_of_clicks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_demo: bool
) -> None:
    from airflow.sdk import DAG

    monkeypatch.delenv("HINDCAST_DEMO", raising=False)
    if is_demo:
        monkeypatch.setenv("HINDCAST_DEMO", "1")
    module = import_dag_file(ROOT / "dags" / "clicks_live_writer.py")
    dags = [value for value in vars(module).values() if isinstance(value, DAG)]
    assert [dag.dag_id for dag in dags] == (["clicks_live_writer"] if is_demo else [])
    for dag in dags:
        monkeypatch.setenv("HINDCAST_LAKE", str(tmp_path))
        task: Any = dag.get_task("append")
        assert len(task.python_callable()) >= 11
        assert (tmp_path / "event_logs" / "clicks_live" / "_delta_log").is_dir()
