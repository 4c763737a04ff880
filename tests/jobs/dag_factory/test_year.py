"""A year of a daily pipeline with random faults, against an independent count of what the log has.

The clock is injected. The operators of the DAG file, the requests, the ledger, the log and the messages are the real
ones; `FakeReplayer` stands for Spark. All choices come from a seed. `tests/jobs/dag_factory/year` has what is drawn:
days that arrive late, twice or never, erasures, faults of workers, disks and stores, a clock that jumps, days of 23 and
25 hours, edits of the pipeline file, and a person who decides some days later. A clean-up runs once a week.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jobs.dag_factory.year.year import play
from tests.support.fuzzing import seeds
from tests.support.message_sinks import WebhookSink

if TYPE_CHECKING:
    from tests.jobs.dag_factory.conftest import LoadDags

pytestmark = pytest.mark.dags


@pytest.mark.parametrize(
    "days", [14, pytest.param(45, marks=pytest.mark.slow), pytest.param(366, marks=pytest.mark.soak)]
)
def test_readers_see_every_record_or_a_cause_is_named(
    days: int, load_dags: "LoadDags", tmp_path: Path, hook: WebhookSink
) -> None:
    for seed in seeds(1):
        happened = play(seed, days, tmp_path=tmp_path, load=load_dags, hook=hook)
        print(f"seed {seed}, {days} days: {dict(happened)}")  # noqa: T201 - `pytest -s` shows it
