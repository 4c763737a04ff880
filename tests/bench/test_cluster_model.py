"""The simulation of a cluster: its bounds, and the measured times that it has to give."""

import json

import pytest
from hypothesis import given, strategies as st

from bench.cluster_model import COSTS, Costs, Log, makespan, predict
from jobs.replay.sizes import Sizes

MEASURED = json.loads(COSTS.read_text("utf-8"))
OWN = Costs.of(MEASURED)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.integers(1, 8))
def test_tasks_end_within_the_bounds_of_a_list_schedule(tasks: list[float], cores: int) -> None:
    ended = makespan(tasks, cores)
    work = sum(tasks) / cores
    assert ended >= max(*tasks, work) - 1e-9 if len(tasks) > 1 else ended == tasks[0]
    assert ended <= work + max(tasks) + 1e-9  # Graham, 1966
    assert makespan(tasks, 1) == pytest.approx(sum(tasks))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_model_gives_the_measured_times(workers: int) -> None:
    measured = MEASURED["workers"][str(workers)]
    log = Log(records=MEASURED["records"], steps=measured["steps"]["number"])
    # Two workers share the two cores of the machine with the driver and with their JVMs, which the model leaves out.
    assert 0.75 < predict(log, OWN, cores=workers).wall_s / measured["figures"]["wall_s"] < 1.1


@given(st.integers(1, 10**9), st.integers(1, 512), st.floats(0, 1), st.integers(1, 64), st.integers(1, 10**7))
def test_more_cores_never_make_a_replay_much_slower(
    records: int, cores: int, hot: float, parts: int, least: int
) -> None:
    sizes = Sizes(records_per_task=least, records_per_columnar_bucket=least, least_records=max(least // 10, 1))
    log = Log(records=records, steps=records // 9, hot=hot, parts=parts)
    one, many = predict(log, OWN, cores=1, sizes=sizes), predict(log, OWN, cores=cores, sizes=sizes)
    # More cores mean more buckets, and each bucket reads all steps and has the cost of a task.
    buckets = sizes.buckets_for(records, cores=cores, has_keys=True, is_columnar=True)
    extra_s = 4 * buckets * (OWN.task_s + log.steps * OWN.step_s)
    assert many.wall_s <= one.wall_s + extra_s
    assert many.driver_s == one.driver_s


def test_a_hot_key_and_a_file_of_one_row_group_are_one_task() -> None:
    even = Log(records=10**9, steps=10**6)
    hot, whole = (Log(records=10**9, steps=10**6, hot=0.1), Log(records=10**9, steps=10**6, parts=1))
    of_even, of_hot, of_whole = (predict(log, OWN, cores=256) for log in (even, hot, whole))
    assert of_even.bound == "the work"
    assert of_hot.bound == of_whole.bound == "one task"
    assert of_hot.wall_s >= 0.1 * 10**9 * OWN.bucket_s
    assert of_whole.wall_s >= 10**9 * OWN.scan_s
